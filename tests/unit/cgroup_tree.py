"""A cgroup hierarchy of plain files, as the kernel and systemd lay it out, with us in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UID = os.geteuid()
USER = f"/user.slice/user-{UID}.slice"
MANAGER = f"{USER}/user@{UID}.service"
APP = f"{MANAGER}/app.slice"
ALL = ("cpu", "cpuset", "io", "memory", "pids")
FILES = ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads")


class Tree:
    """Below `root` as below /: sys/fs/cgroup, proc/self and run/user.

    What is not ours to change has no write permission: so the tests need no other user.
    """

    def __init__(self, root: Path, mount: str = "sys/fs/cgroup", *, real_root: bool = True) -> None:
        self.root = root
        self.mount = root / mount
        self.mount.mkdir(parents=True)
        (root / "proc/self").mkdir(parents=True)
        self._fill(self.mount, ALL)
        if not real_root:
            self._write(self.mount / "cgroup.type", "domain\n")
        self.mine = {"/"}

    def add(self, path: str, controllers: Sequence[str] = ALL, *, mine: bool = False) -> Tree:
        """A cgroup with those above it; a parent is made before its children."""
        for end in range(1, len(parts := path.strip("/").split("/")) + 1):
            directory = self.mount / "/".join(parts[:end])
            if not directory.is_dir():
                parent = directory.parent
                mode = parent.stat().st_mode
                parent.chmod(0o755)
                directory.mkdir()
                parent.chmod(mode)
                self._fill(directory, controllers)
                self._write(directory / "cgroup.type", "domain\n")
                self.own(directory, mine=False)
        self.own(self.mount / path.strip("/"), mine=mine)
        return self

    def enter(self, own: str, line: str = "0::{own}") -> Tree:
        """What /proc/self/cgroup tells."""
        self._write(self.root / "proc/self/cgroup", line.format(own=own) + "\n")
        return self

    def show(self, cgroup: str, point: str = "/sys/fs/cgroup") -> Tree:
        """What /proc/self/mountinfo tells: which cgroup is mounted."""
        text = (
            "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
            f"41 31 0:38 {cgroup} {point} rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
        )
        self._write(self.root / "proc/self/mountinfo", text)
        return self

    def start_bus(self) -> str:
        """What a user manager leaves in the runtime directory."""
        bus = self.root / f"run/user/{UID}/bus"
        bus.parent.mkdir(parents=True)
        bus.touch()
        return str(bus)

    def mark(self, path: str) -> None:
        """As systemd marks a unit with Delegate=yes. Raises OSError where /tmp takes no marks."""
        os.setxattr(self.mount / path.strip("/"), "user.delegate", b"1")

    @staticmethod
    def own(directory: Path, *, mine: bool) -> None:
        for name in FILES:
            (directory / name).chmod(0o644 if mine else 0o444)
        directory.chmod(0o755 if mine else 0o555)

    def _fill(self, directory: Path, controllers: Sequence[str]) -> None:
        self._write(directory / "cgroup.controllers", " ".join((*controllers, "hugetlb")) + "\n")
        for name in FILES:
            self._write(directory / name, "")
        self.own(directory, mine=False)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        mode = path.parent.stat().st_mode
        path.parent.chmod(0o755)
        path.write_text(text, encoding="utf-8")
        path.parent.chmod(mode)
