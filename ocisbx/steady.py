"""Small files and directories of the host that a root may have as copies: whether one is small
enough, and whether it still is what was copied.

A mount costs each start 45 us on crun and 170 on runc; to look at a file, 4 (measured). So a
container gets copies of what is small and rarely changes, made once; and who looks at every
directory and file of it knows from their ctimes, which nobody can set (inode(7)), that they are
true.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# What is larger is a mount: all of it is looked at before each call, and of views there are many.
LOOKED_LIMIT = 5
ENTRIES_LIMIT = 64
SIZE_LIMIT_BYTES = 128 << 10
# Before Linux 6.13 all changes within one tick of the timer have one ctime.
TICK_NS = 20_000_000


class Looked(NamedTuple):
    """A directory or file, as lstat(2) has it. A symlink changes with its directory only."""

    path: str
    device: int
    inode: int
    ctime_ns: int


def survey(top: str) -> tuple[Looked, ...] | None:
    """What has to be looked at to know that the file or directory `top` is as it was; None: it is
    too large, has changed just now, or cannot be copied with its content, modes and times."""
    looked: list[Looked] = []
    waiting, entries, size = [top], 1, 0
    settled_ns = time.time_ns() - TICK_NS
    try:
        while waiting:
            path = waiting.pop()
            info = os.lstat(path)
            looked.append(_look(path, info))
            size += 0 if stat.S_ISDIR(info.st_mode) else info.st_size
            if not _can_be_copied(path, info) or looked[-1].device != looked[0].device:
                return None
            if info.st_ctime_ns > settled_ns:
                return None
            if stat.S_ISDIR(info.st_mode):
                with os.scandir(path) as found:
                    below = [(entry.path, entry.is_symlink()) for entry in found]
                entries += len(below)
                waiting += [one for one, is_link in below if not is_link]
            if entries > ENTRIES_LIMIT or len(looked) + len(waiting) > LOOKED_LIMIT:
                return None
            if size > SIZE_LIMIT_BYTES:
                return None
    except OSError:
        return None
    return tuple(sorted(looked))


def stands(looked: Iterable[tuple[str, int, int, int]]) -> bool:
    """Whether all that `survey` found is as it was then. `looked`: the fields of a Looked each."""
    try:
        for path, device, inode, ctime_ns in looked:
            info = os.lstat(path)
            if info.st_ctime_ns != ctime_ns or (info.st_dev, info.st_ino) != (device, inode):
                return False
    except OSError:
        return False
    return True


def copy(source: str, target: str) -> None:
    """Copy a file or directory with modes and times; symlinks stay symlinks, and what has vanished
    is left out. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        info = os.lstat(source)
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(source), target)
            return
        if stat.S_ISDIR(info.st_mode):
            names = os.listdir(source)
            os.mkdir(target, 0o700)
            # Whatever the caller's umask.
            os.chmod(target, 0o700)
            for name in names:
                copy(f"{source}/{name}", f"{target}/{name}")
        else:
            _copy_file(source, target)
        os.chmod(target, stat.S_IMODE(info.st_mode))
        os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))


def _copy_file(source: str, target: str) -> None:
    # What has become a pipe by now has no end.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(source, flags), "rb") as file:
        data = file.read(2 * SIZE_LIMIT_BYTES) or b""
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(target, new, 0o600), "wb") as file:
        file.write(data)


def _look(path: str, info: os.stat_result) -> Looked:
    return Looked(path, info.st_dev, info.st_ino, info.st_ctime_ns)


def _can_be_copied(path: str, info: os.stat_result) -> bool:
    """Ours to read, of no special mode, with a name that JSON can say; a directory that its owner,
    who will be us, may empty again."""
    if not path.isprintable() or info.st_mode & 0o7000:
        return False
    if stat.S_ISDIR(info.st_mode):
        return info.st_mode & 0o700 == 0o700 and os.access(path, os.R_OK | os.X_OK)
    return stat.S_ISREG(info.st_mode) and os.access(path, os.R_OK)
