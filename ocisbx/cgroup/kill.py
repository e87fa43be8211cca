"""The certain end of all that runs in a cgroup and below, and the removal of the cgroup.

Every look goes through a descriptor of the cgroup's own directory, and only to names below it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_CLOEXEC
CHUNK_BYTES = 1 << 16
REMOVE_S = 5.0
# A fork bomb in a cgroup that cannot be frozen (Linux before 5.2) may win for as long.
BY_PID_S = 2.0
# How many pidfds are held at once: far below any limit of open files.
BATCH = 64
# How long one blow has to work before the next, for whom a runtime put there after it.
FIRST_BLOW_S = 0.05
RETRY_S = 0.002
GONE = (0, errno.ENOENT)
# What rmdir(2) says of a directory of another file system, of a file, and of a link.
NO_CGROUP = (errno.ENOTEMPTY, errno.ENOTDIR, errno.ELOOP)


def kill_cgroup(path: str) -> None:
    """SIGKILL to everything in the cgroup and below, frozen, stopped and traced processes too.

    They end soon after it has returned: `wait_empty`.
    """
    if not kill_by_file(path):
        kill_by_pid(path)


def kill_by_file(path: str) -> bool:
    """By cgroup.kill; False where that cannot be: it came with Linux 5.14."""
    try:
        with _opened(path) as directory:
            _write_one(directory, "cgroup.kill")
    except OSError:
        return False
    return True


def kill_by_pid(path: str, timeout_s: float = BY_PID_S) -> None:
    """One by one, until nobody is left or `timeout_s` is over.

    Frozen first, so that nothing new comes; a frozen process of cgroup v2 dies of SIGKILL as it is.
    """
    deadline = time.monotonic() + timeout_s
    # Where the cgroup is gone, so is everything that was in it.
    with contextlib.suppress(OSError), _opened(path) as directory:
        # It came with Linux 5.2.
        with contextlib.suppress(OSError):
            _write_one(directory, "cgroup.freeze")
        while _kill_round(directory) and time.monotonic() < deadline:
            time.sleep(RETRY_S)


def wait_empty(path: str, timeout_s: float) -> bool:
    """Whether no process lives in the cgroup or below, now or within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    try:
        with _opened(path) as directory, _opened("cgroup.events", FILE, directory) as events:
            poller = select.poll()
            poller.register(events, select.POLLPRI)
            while b"populated 0" not in os.pread(events, CHUNK_BYTES, 0).split(b"\n"):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                poller.poll(left_s * 1000 + 1)
    except OSError:
        # ENOENT and ENODEV where it is gone; nothing else tells that it is empty.
        return not os.path.lexists(path)
    return True


def remove_cgroup(path: str, timeout_s: float = REMOVE_S) -> bool:
    """Kill what is in the cgroup and below, wait for the end, remove all of it; True: it is gone.

    False: somebody is still there after `timeout_s` (in a system call that nothing interrupts, or
    held at its exit by a debugger outside), or it is no cgroup, or not ours to remove.
    """
    deadline = time.monotonic() + timeout_s
    blow_s = FIRST_BLOW_S
    while (failed := _rmdir(path)) not in GONE:
        if failed in NO_CGROUP:
            return False
        kill_cgroup(path)
        if wait_empty(path, min(blow_s, max(0.0, deadline - time.monotonic()))):
            _remove_below(path)
            if failed != errno.EBUSY:
                return False
        if time.monotonic() >= deadline:
            return _rmdir(path) in GONE
        # Just after `populated 0` rmdir(2) may say EBUSY once more.
        time.sleep(RETRY_S)
        blow_s *= 2
    return True


def _rmdir(path: str) -> int:
    """The error number; 0: removed."""
    try:
        os.rmdir(path)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _remove_below(path: str) -> None:
    """Remove every cgroup below that can go, leaves first."""
    with contextlib.suppress(OSError), _opened(path) as directory:
        for parent, name in _below(directory):
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=parent)


def _kill_round(directory: int) -> bool:
    """Kill all that are listed now; whether there was anybody."""
    found = _kill_listed(directory, "cgroup.procs")
    for parent, name in _below(directory):
        found = _kill_listed(parent, f"{name}/cgroup.procs") or found
    return found


def _kill_listed(directory: int, procs: str) -> bool:
    listed = _pids(directory, procs)
    for start in range(0, len(listed), BATCH):
        with contextlib.ExitStack() as stack:
            held: dict[int, int] = {}
            for pid in listed[start : start + BATCH]:
                # ESRCH: it has ended meanwhile.
                with contextlib.suppress(OSError):
                    held[pid] = stack.enter_context(_closing(os.pidfd_open(pid)))
            # A pid may have been reused before it was opened: whoever is listed now is the one that
            # we hold, or the one that we hold is dead.
            for pid in held.keys() & set(_pids(directory, procs)):
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(held[pid], signal.SIGKILL)
    return bool(listed)


def _pids(directory: int, procs: str) -> list[int]:
    """The processes of one cgroup; none of a threaded one (EOPNOTSUPP): the nearest domain above,
    which is among those that we go through, lists them."""
    text = b""
    with contextlib.suppress(OSError), _opened(procs, FILE, directory) as file:
        while chunk := os.read(file, CHUNK_BYTES):
            text += chunk
    return [int(word) for word in text.split()]


def _below(top: int) -> Iterator[tuple[int, str]]:
    """Every directory below, leaves first: a descriptor of the one above it, and its name there.

    It holds one descriptor, however deep a payload nested them.
    """
    current = os.dup(top)
    names: list[str] = []
    left = [_children(current)]
    try:
        while names or left[-1]:
            if left[-1]:
                name = left[-1].pop()
                # ENOENT: it vanished meanwhile.
                with contextlib.suppress(OSError):
                    current = _moved(current, name)
                    names.append(name)
                    left.append(_children(current))
            else:
                current = _moved(current, "..")
                left.pop()
                yield current, names.pop()
    finally:
        os.close(current)


def _moved(current: int, name: str) -> int:
    """The neighbour's descriptor instead of this one. Raises OSError, and closes nothing then."""
    reached = os.open(name, DIRECTORY, dir_fd=current)
    os.close(current)
    return reached


def _children(directory: int) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def _write_one(directory: int, name: str) -> None:
    with _opened(name, os.O_WRONLY | os.O_CLOEXEC, directory) as file:
        os.write(file, b"1")


def _opened(
    path: str, flags: int = DIRECTORY, directory: int | None = None
) -> contextlib.AbstractContextManager[int]:
    return _closing(os.open(path, flags, dir_fd=directory))


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
