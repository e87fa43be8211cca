"""When a session was last used: a file in its directory, by which it ends when nobody needs it.

Who runs a command holds a shared lock on it, so that the kernel lets go where the command's driver
is killed, and writes the time since boot (which nobody can set) into it at the beginning and the
end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from typing import TYPE_CHECKING

from ocisbx.bundle.record import boot_s

if TYPE_CHECKING:
    from collections.abc import Iterator

USED_FILE = "used"
_MOMENT = struct.Struct("<d")


@contextlib.contextmanager
def in_use(directory: str) -> Iterator[None]:
    """Have the session of this directory know that it is used. Raises OSError: it is gone."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(f"{directory}/{USED_FILE}", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _note(descriptor)
        yield
        _note(descriptor)
    finally:
        os.close(descriptor)


def _note(descriptor: int) -> None:
    # On a full disk the session only ends earlier.
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, _MOMENT.pack(boot_s()), 0)


def last_used(directory: str, never: float) -> float:
    """When it was, in seconds since boot: now where it is at this moment, `never` where it never
    was."""
    try:
        descriptor = os.open(f"{directory}/{USED_FILE}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return never
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = os.pread(descriptor, _MOMENT.size, 0)
    except BlockingIOError:
        return boot_s()
    finally:
        os.close(descriptor)
    if len(data) < _MOMENT.size:
        return never
    moment: float = _MOMENT.unpack(data)[0]
    # What a payload cannot write is still not believed when it cannot be.
    return moment if never <= moment <= boot_s() else never
