"""A sealed copy of a runtime's binary in memory, made once for each process that starts many.

Runtimes protect themselves against CVE-2019-5736 by a copy of theirs in a sealed memfd: crun and
youki execute that at once, runc as what becomes the container, where it may not make an overlay of
its binary instead. Started from such a copy they make none: the same protection, a third of crun's
time saved (performance.md 3.1), and the 8 ms in which an ordinary user's runc copies its 16 MB.
"""

from __future__ import annotations

import errno
import fcntl
import os
from _thread import allocate_lock

from ocisbx.plan import fingerprint

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
CHUNK_BYTES = 1 << 24
# memfd_create(2): executable also where vm.memfd_noexec is 1.
MFD_EXEC = 0x10
ELF = b"\x7fELF"

_lock = allocate_lock()
_copies: dict[str, tuple[tuple[int, ...] | None, int | None]] = {}


def sealed_copy(path: str) -> int | None:
    """A descriptor of the copy, kept open for the process's life; made anew when the file changed.

    None for a script: its interpreter would have to open the copy by a name that is gone by then;
    and where nothing in memory may be executed (vm.memfd_noexec = 2).

    Raises:
        OSError: the binary cannot be read, or there is no memory.
    """
    seen = fingerprint(path, "content")
    with _lock:
        known = _copies.get(path)
        if known is not None and known[0] == seen:
            return known[1]
        copy = _copy(path)
        if known is not None and known[1] is not None:
            os.close(known[1])
        _copies[path] = (seen, copy)
        return copy


def _make(name: str) -> int | None:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | MFD_EXEC)
    except PermissionError:
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Before Linux 6.3 all may be executed.
        return os.memfd_create(name, flags)


def _copy(path: str) -> int | None:
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.pread(source, len(ELF), 0) != ELF:
            return None
        target = _make(os.path.basename(path))
        if target is None:
            return None
        try:
            while os.sendfile(target, source, None, CHUNK_BYTES):
                pass
            fcntl.fcntl(target, fcntl.F_ADD_SEALS, SEALS)
        except BaseException:
            os.close(target)
            raise
        return target
    finally:
        os.close(source)
