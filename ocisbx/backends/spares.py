"""Placeholders that wait for their next use: making and deleting a directory costs 110 us on ext4,
and moving one there and back 17.

They lie in one directory of ours, each named by its content and its inode, so that it is known what
will be there before it is. Only who holds the lock of the directory of registers (placeholders.py)
changes any of this.
"""

from __future__ import annotations

import contextlib
import os

from ocisbx.errors import OcisbxError
from ocisbx.placeholder import holds_nothing
from ocisbx.places import ensure, find_places, trusted

MOST = 64


def pool() -> str:
    return f"{find_places().cache}/spares"


class Spares:
    """Those that there were when they were first asked for; others may have some of them by now."""

    def __init__(self) -> None:
        self._place = pool()
        # How many more it takes; None: not looked yet.
        self._room: int | None = None
        # By content: their inodes.
        self._inodes: dict[str, list[int]] = {}

    def _look(self) -> int:
        if self._room is not None:
            return self._room
        self._room = 0
        # Without a pool each is made and deleted.
        with contextlib.suppress(OSError, OcisbxError, ValueError):
            if not trusted(self._place):
                ensure(os.path.dirname(self._place))
                ensure(self._place)
            names = os.listdir(self._place)
            self._room = MOST - len(names)
            for name in names:
                content, _, inode = name.partition(" ")
                self._inodes.setdefault(content, []).append(int(inode))
        return self._room

    def choose(self, content: str) -> int:
        """The inode of one that is chosen no second time; 0: there is none."""
        self._look()
        inodes = self._inodes.get(content)
        return inodes.pop() if inodes else 0

    def put(self, inode: int, content: str, directory: int, name: str) -> bool:
        """Move one that was chosen there; False: it cannot be had."""
        spare = f"{self._place}/{content} {inode}"
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
        return True

    def give_back(self, inode: int, content: str, directory: int, name: str) -> bool:
        """Take it from there, if it is still blank; False: it has to be deleted."""
        room = self._look()
        if room <= 0:
            return False
        spare = f"{self._place}/{content} {inode}"
        try:
            os.rename(name, spare, src_dir_fd=directory)
        except OSError:
            return False
        self._room = room - 1
        info = os.lstat(spare)
        # No time tells: whoever writes into it may set them back (utimensat(2)).
        if info.st_ino != inode or not holds_nothing(spare, info):
            # Somebody on the host has put something into it, or something else there.
            os.rename(spare, name, dst_dir_fd=directory)
        return True
