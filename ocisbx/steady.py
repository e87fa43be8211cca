"""Small files and directories of the host that a root may have as copies: whether one is small
enough, and whether it still is what was copied.

A mount costs each start 45 us on crun and 170 on runc; to look at a file, 4 (measured). So a
container gets copies of what is small and rarely changes, made once; and who looks at every
directory and file of it knows from their ctimes, which nobody can set (inode(7)), that they are
true.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# What is larger is a mount: all of it is looked at before each call, and of views there are many.
LOOKED_LIMIT = 5
ENTRIES_LIMIT = 64
SIZE_LIMIT_BYTES = 128 << 10


class Looked(NamedTuple):
    """A directory or file, as lstat(2) has it. A symlink changes with its directory only."""

    path: str
    device: int
    inode: int
    ctime_ns: int


def survey(top: str) -> tuple[Looked, ...] | None:
    """What has to be looked at to know that the file or directory `top` is as it was; None: it is
    too large, or cannot be copied so that a reader sees no difference."""
    looked: list[Looked] = []
    waiting, entries, size = [top], 1, 0
    try:
        while waiting:
            path = waiting.pop()
            info = os.lstat(path)
            looked.append(_look(path, info))
            size += 0 if stat.S_ISDIR(info.st_mode) else info.st_size
            if not _can_be_copied(path, info) or looked[-1].device != looked[0].device:
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
    """Copy a file or directory with modes and times; symlinks stay symlinks. Raises OSError."""
    import shutil  # noqa: PLC0415 -- 2 ms of every start, for what is rare

    if os.path.isdir(source):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


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
