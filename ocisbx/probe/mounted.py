"""What is mounted in a container, judged before its payload starts (proc_pid_mountinfo(5)).

A runtime follows symlinks in the sources of mounts. Sources of the path policy lie in directories
that another container may be writing at the same time, which could put a link there that leads
out of them. So everything that is mounted has to be something that the plan gives.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# What a runtime mounts anew for each container; of a host's own, the device number is the host's.
FRESH_TYPES = frozenset({"proc", "tmpfs", "devpts", "mqueue"})
# Bound by the runtime: /dev/null also over files that are masked.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
           "/dev/ptmx", "/dev/console")  # fmt: skip


# Where it may be found does not matter.
ANYWHERE = ""


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


def read_mounts(path: str) -> list[MountRow]:
    """Raises OSError."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return [_row(line) for line in file]


def _row(line: str) -> MountRow:
    fields, _, rest = line.partition(" - ")
    _, _, device, root, point, options = fields.split(" ", 6)[:6]
    if "\\" in fields:
        root, point = _unescape(root), _unescape(point)
    return MountRow(device, root, point, "ro" not in options.split(","), rest.split(" ", 1)[0])


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def strange_mounts(
    inside: Iterable[MountRow], host: Sequence[MountRow], granted: Sequence[Granted]
) -> list[MountRow]:
    """The mounts of `inside` that show neither a thing of the container's own, nor at its own place
    something at or below what the plan grants."""
    devices = {row.device for row in host}
    return [
        row
        for row in inside
        if (row.type not in FRESH_TYPES or row.device in devices)
        and not any(_fits(row, path, granted) for path in _host_paths(row, host))
    ]


def _host_paths(row: MountRow, host: Sequence[MountRow]) -> Iterator[str]:
    """The host's names of what is mounted."""
    for mount in host:
        if mount.device == row.device and _below(row.root, mount.root):
            yield _join(mount.point, row.root[len(mount.root.rstrip("/")) :])


def _fits(row: MountRow, path: str, granted: Sequence[Granted]) -> bool:
    if path in DEVICES:
        return True
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
