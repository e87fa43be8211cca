"""Removing the cgroup that a runtime left behind.

Runtimes remove a container's cgroup with the container; crun that fails early does not
(performance.md 3.6: thousands of leftovers make every later start slower).
"""

from __future__ import annotations

import contextlib
import os

# Where cgroup v2 is mounted: alone, or beside v1 on hybrid hosts.
MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
OWN_FILE = "/proc/self/cgroup"


def cgroup_name(container_id: str) -> str:
    return f"ocisbx-{container_id}"


def remove_cgroup(container_id: str, mounts: tuple[str, ...] = MOUNTS, own: str = OWN_FILE) -> bool:
    """Remove the container's cgroup with those below it; True when one was there and is gone.

    A cgroup that still holds processes stays (rmdir(2) says EBUSY): it is not a leftover.
    """
    removed = False
    for mount in mounts:
        if not os.path.exists(f"{mount}/cgroup.controllers"):
            continue
        path = f"{mount}{_own_path(own)}".rstrip("/") + f"/{cgroup_name(container_id)}"
        if os.path.isdir(path):
            for parent, _, _ in os.walk(path, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(parent)
            removed = not os.path.isdir(path)
    return removed


def _own_path(path: str) -> str:
    """Our cgroup in the v2 hierarchy: the line `0::PATH` (cgroups(7), /proc/PID/cgroup)."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].rstrip("\n")
    return "/"
