"""Placeholders that wait for their next use: making and deleting a directory costs 110 us on ext4,
and moving one there and back 17.

They lie in a directory of ours, one for each that they were in, named by their content and inode:
so it is known what will be there before it is, and each goes back to where it was only. What
holds it open since (a payload whose workspace that directory is part of) could reach it there
anyhow, and reaches no other. Only who holds the lock of the directory of registers
(placeholders.py) changes any of this.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time

from ocisbx.errors import OcisbxError
from ocisbx.placeholder import holds_nothing
from ocisbx.places import ensure, find_places, trusted

# For one directory, and for how many directories.
MOST = 64
HOMES = 64
# The mtime of a directory that was seen to be empty: whatever comes into it changes that.
EMPTY_NS = 1_000_000_000_000_000_007


def pool() -> str:
    return f"{find_places().cache}/spares"


class Spares:
    """Those of one directory, as there were when they were first asked for; others may have some of
    them by now."""

    def __init__(self, directory: int) -> None:
        """`directory`: a descriptor of it, which whoever has these holds open for as long."""
        self._directory = directory
        self._place = f"{pool()}/{home_of(directory)}"
        # How many more it takes, and the inodes by their content, once they were looked at.
        self._room: int | None = None
        self._inodes: dict[str, list[int]] = {}
        # When each was put there, by time.time_ns().
        self._put_ns: dict[int, int] = {}

    def _look(self) -> int:
        if self._room is not None:
            return self._room
        self._room = 0
        # Without a pool each is made and deleted.
        with contextlib.suppress(OSError, OcisbxError):
            if not trusted(self._place):
                self._settle()
            names = os.listdir(self._place)
            self._room = MOST - len(names)
            for name in names:
                content, _, inode = name.partition(" ")
                if inode.isdecimal():
                    self._inodes.setdefault(content, []).append(int(inode))
        return self._room

    def _settle(self) -> None:
        """Make its place, for which the oldest goes where there are many."""
        homes = os.path.dirname(self._place)
        ensure(os.path.dirname(homes))
        ensure(homes)
        found = sorted(os.scandir(homes), key=lambda entry: entry.stat().st_mtime)
        for old in found[: max(0, len(found) + 1 - HOMES)]:
            for entry in os.scandir(old.path) if old.is_dir(follow_symlinks=False) else ():
                _delete(entry)
            _delete(old)
        ensure(self._place)

    def choose(self, content: str) -> int:
        """The inode of one that is chosen no second time; 0: there is none."""
        if self._room is None:
            self._look()
        inodes = self._inodes.get(content)
        return inodes.pop() if inodes else 0

    def put(self, inode: int, content: str, name: str) -> bool:
        """Move one that was chosen there; False: it cannot be had."""
        spare, directory = f"{self._place}/{content} {inode}", self._directory
        try:
            if content:
                os.link(spare, name, dst_dir_fd=directory)
                os.unlink(spare)
            else:
                # Over nothing, or over an empty directory: it replaces no other.
                os.rename(spare, name, dst_dir_fd=directory)
        except OSError:
            # It lies on another file system, or behind another mount (EXDEV).
            return False
        self._room = self._look() + 1
        self._put_ns[inode] = time.time_ns()
        return True

    def give_back(self, content: str, name: str, there: os.stat_result) -> bool:
        """Take it from `name`, where `there` was seen, if it is still blank; False: it has to be
        deleted."""
        room, directory = self._look(), self._directory
        if room <= 0:
            return False
        spare = f"{self._place}/{content} {there.st_ino}"
        try:
            if content:
                # Of two names of one file rename(2) leaves both: whoever put it there was killed.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(spare)
            os.rename(name, spare, src_dir_fd=directory)
        except OSError:
            return False
        self._room = room - 1
        info = os.lstat(spare)
        untouched = self._is_untouched(there) and info.st_mtime_ns == EMPTY_NS
        blank: bool | None = None
        # What cannot be looked at is deleted where the kernel sees that it is empty.
        with contextlib.suppress(OSError):
            blank = info.st_ino == there.st_ino and (untouched or _is_blank(spare, info))
        if not blank:
            self._return(spare, name)
        return blank is not None

    def _return(self, spare: str, name: str) -> None:
        """Somebody on the host has put something into it, or something else there."""
        try:
            os.rename(spare, name, dst_dir_fd=self._directory)
        except OSError:
            # By now there is something else of theirs: it is kept, and used for nothing.
            os.rename(spare, f"{self._place}/found by {os.urandom(8).hex()}")

    def _is_untouched(self, info: os.stat_result) -> bool:
        """Whether nothing has come into a directory of ours since we put it there. Who had set back
        its mtime would have changed its ctime, which only the clock sets (utimensat(2)); but for
        one who did it in the same tick of that clock, which before Linux 6.13 is 1 to 10 ms."""
        put_ns = self._put_ns.get(info.st_ino, 0)
        return info.st_mtime_ns == EMPTY_NS and info.st_ctime_ns <= put_ns


def _is_blank(spare: str, info: os.stat_result) -> bool:
    """Raises OSError."""
    if not holds_nothing(spare, info):
        return False
    if not stat.S_ISDIR(info.st_mode):
        return True
    # Looked at again: what has come before this must not look like nothing.
    os.utime(spare, ns=(info.st_atime_ns, EMPTY_NS), follow_symlinks=False)
    return holds_nothing(spare, info)


def _delete(entry: os.DirEntry[str]) -> None:
    """What is not empty stays."""
    with contextlib.suppress(OSError):
        os.rmdir(entry) if entry.is_dir(follow_symlinks=False) else os.unlink(entry)


def home_of(directory: int) -> str:
    """The name of this directory (a descriptor), whatever its path."""
    info = os.fstat(directory)
    return f"{info.st_dev:x}-{info.st_ino:x}"
