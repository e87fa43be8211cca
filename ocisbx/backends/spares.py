"""Placeholders that wait for their next use: making and deleting a directory costs 110 us on ext4,
and moving one there and back 17.

They lie in one directory of ours, each named by the directory that it was in, its content and its
inode: so it is known what will be there before it is, and it goes back to where it was only. What
holds it open since (a payload whose workspace that directory is part of) could reach it there
anyhow, and reaches no other. Only who holds the lock of the directory of registers
(placeholders.py) changes any of this.
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
    """Those that there were when they were first asked for; others may have some of them by now.

    `home` names the directory in which they are used (`home_of`).
    """

    def __init__(self) -> None:
        self._place = pool()
        # How many more it takes; None: not looked yet.
        self._room: int | None = None
        # Their inodes, by home and content.
        self._inodes: dict[tuple[str, str], list[int]] = {}

    def _look(self) -> int:
        if self._room is not None:
            return self._room
        self._room = 0
        # Without a pool each is made and deleted.
        with contextlib.suppress(OSError, OcisbxError):
            if not trusted(self._place):
                ensure(os.path.dirname(self._place))
                ensure(self._place)
            names = os.listdir(self._place)
            self._room = MOST - len(names)
            for name in names:
                home, _, rest = name.partition(" ")
                content, _, inode = rest.partition(" ")
                if inode:
                    self._inodes.setdefault((home, content), []).append(int(inode))
        return self._room

    def choose(self, home: str, content: str) -> int:
        """The inode of one that is chosen no second time; 0: there is none."""
        self._look()
        inodes = self._inodes.get((home, content))
        return inodes.pop() if inodes else 0

    def put(self, home: str, inode: int, content: str, directory: int, name: str) -> bool:
        """Move one that was chosen there; False: it cannot be had."""
        spare = self._path(home, content, inode)
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

    def give_back(self, home: str, inode: int, content: str, directory: int, name: str) -> bool:
        """Take it from there, if it is still blank; False: it has to be deleted."""
        room = self._look() or self._drop_others(home)
        if room <= 0:
            return False
        spare = self._path(home, content, inode)
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
        # No time tells: whoever writes into it may set them back (utimensat(2)).
        if info.st_ino != inode or not holds_nothing(spare, info):
            # Somebody on the host has put something into it, or something else there.
            try:
                os.rename(spare, name, dst_dir_fd=directory)
            except OSError:
                # By now there is something else of theirs: it is kept, and used for nothing.
                os.rename(spare, f"{self._place}/found {os.urandom(8).hex()}")
        return True

    def _path(self, home: str, content: str, inode: int) -> str:
        return f"{self._place}/{home} {content} {inode}"

    def _drop_others(self, home: str) -> int:
        """The place is full: delete what other directories had. Returns the room."""
        room = 0
        for (other, content), inodes in self._inodes.items():
            if other == home:
                continue
            while inodes:
                spare = self._path(other, content, inodes.pop())
                with contextlib.suppress(OSError):
                    os.unlink(spare) if content else os.rmdir(spare)
                    room += 1
        self._room = room
        return room


def home_of(directory: int) -> str:
    """The name of this directory (a descriptor), whatever its path."""
    info = os.fstat(directory)
    return f"{info.st_dev:x}-{info.st_ino:x}"
