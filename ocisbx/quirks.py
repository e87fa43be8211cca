"""What differs between runtimes, as data: every `if` about a runtime's name lives here.

Rows are tried from the top; the first whose name matches and whose `since` is not newer than the
binary's version applies. Facts: runtimes.md of the project's reference (measured), and the
runtimes' change logs where a version is named.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Quirks(NamedTuple):
    """How one runtime, from one version on, is driven."""

    name: str
    since: tuple[int, ...]
    # Arguments of `run` that hand our socket to the init as descriptor 3; None: it cannot.
    socket_args: tuple[str, ...] | None
    # Arguments before the verb, besides --root and --log.
    global_args: tuple[str, ...] = ()
    # Refuses hybrid cgroups ("cgroups in hybrid mode not supported"): runs in our cell there.
    refuses_hybrid: bool = False
    # A single caller's id may be mapped to any id inside; runc insists on uid 0
    # ("no mapping found for uid 0 in rootless container").
    maps_any_id: bool = False
    # mounts[].uidMappings (runtime-spec 1.1.0) is honoured.
    idmapped_mounts: bool = False
    # Builds the path of each mount point from the root's own: together they fit into PATH_MAX.
    joins_root: bool = False
    # linux.namespaces may hold `time` (runtime-spec 1.1.0); youki 0.7 has no code for it
    # (youki-dev/youki#3259).
    time_namespace: bool = False
    # `features` exists.
    features: bool = False
    # Creates a cgroup of its own even where nothing is delegated, when it runs as root.
    root_cgroup: bool = True
    # What it keeps in its --root for the next container, with the modes: (name, mode).
    kept_state: tuple[tuple[str, int], ...] = ()
    # Copies itself into memory before it starts anything, unless it runs from a sealed copy.
    sealed_pays: bool = False


TABLE: tuple[Quirks, ...] = (
    Quirks(
        name="crun",
        since=(1, 10),
        socket_args=("--preserve-fds", "1"),
        global_args=("--cgroup-manager=cgroupfs",),
        refuses_hybrid=True,
        # Compiled seccomp filters (since 1.14 in every build), and what masked directories show
        # (since 1.24).
        kept_state=((".cache", 0o700), (".empty-directory", 0o555)),
        sealed_pays=True,
        maps_any_id=True,
        idmapped_mounts=True,
        time_namespace=True,
        features=True,
    ),
    Quirks(
        name="crun",
        since=(0,),
        socket_args=("--preserve-fds", "1"),
        global_args=("--cgroup-manager=cgroupfs",),
        refuses_hybrid=True,
        sealed_pays=True,
        maps_any_id=True,
        time_namespace=True,
    ),
    Quirks(
        name="runc",
        since=(1, 2),
        socket_args=("--preserve-fds", "1"),
        joins_root=True,
        idmapped_mounts=True,
        time_namespace=True,
        features=True,
    ),
    Quirks(
        name="runc",
        since=(0,),
        socket_args=("--preserve-fds", "1"),
        joins_root=True,
        features=True,
    ),
    Quirks(
        name="youki",
        since=(0,),
        socket_args=("--preserve-fds", "1"),
        features=True,
    ),
)

# The fastest first (performance.md 1): the order of `auto`.
AUTO_ORDER: tuple[str, ...] = ("crun", "runc", "youki")

KNOWN_NAMES: tuple[str, ...] = ("crun", "runc", "youki")

# First line of `--version`: "runc version 1.1.5+ds1", "crun version 1.8.1", "youki version 0.7.0".
VERSION_LINE = re.compile(r"^(?P<name>crun|runc|youki)(?:-rootless)? version (?P<version>\S+)")


def parse_version(text: str) -> tuple[int, ...]:
    """`1.5.2-rc.1+ds1` -> (1, 5, 2): numbers up to the first thing that is none."""
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in numbers[1].split(".")) if numbers else ()


def find_quirks(name: str, version: str) -> Quirks:
    """The row for a runtime.

    Raises:
        KeyError: no row knows this name.
    """
    numbers = parse_version(version)
    for row in TABLE:
        if row.name == name and numbers >= row.since:
            return row
    raise KeyError(name)
