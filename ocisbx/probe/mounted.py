"""What is mounted in a container, judged before its payload starts (proc_pid_mountinfo(5)).

A runtime follows symlinks in the sources of mounts. Sources of the path policy lie in directories
that another container may be writing at the same time, which could put a link there that leads
out of them. So everything that is mounted has to be something that the plan gives.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# What a runtime mounts anew for each container; of a host's own, the device number is the host's.
FRESH_TYPES = frozenset({"proc", "tmpfs", "devpts", "mqueue"})
# Bound by the runtime: /dev/null also over files that are masked.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
           "/dev/ptmx", "/dev/console")  # fmt: skip


# Where it may be found does not matter.
ANYWHERE = ""
# Rows that are known to be sound; of what has a device number of its own there may be many.
REMEMBERED = 4096


class Granted(NamedTuple):
    """What the plan mounts: a path of the host, and its place in the container."""

    source: str
    target: str
    writable: bool


class MountRow(NamedTuple):
    """A line of mountinfo: the device, the directory of its file system that is mounted, where."""

    device: str
    root: str
    point: str
    writable: bool
    type: str


def read_table(path: str) -> str:
    """The text of a mountinfo file. Raises OSError."""
    # A name may hold a carriage return, which ends no line.
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        return file.read()


class Judge:
    """What may be mounted in a container: at its own place something at or below what is `granted`,
    by the names that the host, whose mountinfo text is `host`, has for it.

    Asked for each container of a plan, and nearly all rows are the same in each: those that were
    found sound are remembered.
    """

    def __init__(self, host: str, granted: tuple[tuple[str, str, bool], ...]) -> None:
        """`granted`: what makes a Granted each."""
        self._granted = [Granted(*one) for one in granted]
        self._host: dict[str, list[MountRow]] = {}
        for row in map(_row, _lines(host)):
            self._host.setdefault(row.device, []).append(row)
        self._sound: set[str] = set()

    def strange(self, inside: str, own: Iterable[Granted]) -> list[MountRow]:
        """The rows of `inside`, a mountinfo text, that show neither a thing that was mounted anew
        nor what is granted; `own`: to this container alone."""
        found = []
        for line in _lines(inside):
            # The ids of the mount and of its parent say nothing.
            told = line.split(" ", 2)[2]
            if told in self._sound:
                continue
            row = _row(line)
            if self._is_fresh(row):
                continue
            if self._fits(row, self._granted):
                if len(self._sound) < REMEMBERED:
                    self._sound.add(told)
            elif not self._fits(row, own):
                found.append(row)
        return found

    def _is_fresh(self, row: MountRow) -> bool:
        return row.type in FRESH_TYPES and row.device not in self._host

    def _fits(self, row: MountRow, granted: Iterable[Granted]) -> bool:
        paths = list(self._host_paths(row))
        return any(path in DEVICES or _is_granted(row, path, granted) for path in paths)

    def _host_paths(self, row: MountRow) -> Iterator[str]:
        """The host's names of what is mounted."""
        for mount in self._host.get(row.device, ()):
            if _below(row.root, mount.root):
                yield _join(mount.point, row.root[len(mount.root.rstrip("/")) :])


# Of a host's mounts, which rarely change, and of the few plans that a process runs at a time.
judge_of = functools.lru_cache(maxsize=8)(Judge)


def _lines(text: str) -> list[str]:
    # Not splitlines(): a name may hold what that splits at, too.
    return text.split("\n")[:-1]


def _row(line: str) -> MountRow:
    fields, _, rest = line.partition(" - ")
    _, _, device, root, point, options = fields.split(" ", 6)[:6]
    if "\\" in fields:
        root, point = _unescape(root), _unescape(point)
    return MountRow(device, root, point, "ro" not in options.split(","), rest.split(" ", 1)[0])


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _is_granted(row: MountRow, path: str, granted: Iterable[Granted]) -> bool:
    for one in granted:
        if not _below(path, one.source) or (row.writable and not one.writable):
            continue
        place = _join(one.target, path[len(one.source.rstrip("/")) :])
        if one.target == ANYWHERE or place == row.point:
            return True
    return False


def _join(directory: str, rest: str) -> str:
    return f"{directory.rstrip('/')}/{rest.lstrip('/')}".rstrip("/") or "/"


def _below(path: str, parent: str) -> bool:
    return parent in ("/", path) or path.startswith(parent + "/")
