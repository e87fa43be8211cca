"""Facts: what one source says about a container, in one shape for all sources.

A field is None where the source does not tell. Paths are those of the container.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.container.paths import is_below
from ocisbx.errors import ConfigError
from ocisbx.quantities import parse_size
from ocisbx.result import Enforced, EnforcementState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What every runtime puts into /dev (config-linux.md, "Default Devices"), and what else lies there.
USUAL_DEVICES = frozenset(
    f"/dev/{name}"
    for name in (
        "console", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr",
        "stdin", "stdout", "tty", "urandom", "zero",
    )
)  # fmt: skip
# Those of them that hold no files of anybody.
KERNEL_PLACES = (USUAL_DEVICES | {"/dev"}) - {"/dev/shm"}
INIT_DIRECTORY = "/.ocisbx"
# File systems that hold the kernel's own objects and no files of anybody.
KERNEL_TYPES = frozenset(
    {"cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "proc", "sysfs"},
)


class Shown(NamedTuple):
    """Files of the host at `target`; `source` is their path on the host, where it is known."""

    target: str
    source: str | None
    writable: bool


class Scratch(NamedTuple):
    """Files of the container's own at `target`, gone at its end; `size_bytes` None: not bounded."""

    target: str
    size_bytes: int | None


class Identity(NamedTuple):
    """Who the payload is; `outside` as the reader numbers users, None: not known.

    `others`: how many further ids of the host the payload may take.
    """

    uid: int
    gid: int
    outside: int | None
    others: int


class Facts(NamedTuple):
    """One source's word; see the module's docstring."""

    identity: Identity | None = None
    # The spec's names; True: the container's own.
    namespaces: Mapping[str, bool] | None = None
    # Supplementary groups of the host that the payload has kept.
    groups: int | None = None
    capabilities: frozenset[str] | None = None
    no_new_privileges: bool | None = None
    seccomp: bool | None = None
    read_only_root: bool | None = None
    shown: tuple[Shown, ...] | None = None
    scratch: tuple[Scratch, ...] | None = None
    # Paths that are masked: they exist and show nothing.
    hidden: frozenset[str] | None = None
    read_only_paths: frozenset[str] | None = None
    # Mounts that honour setuid bits or device nodes.
    loose: frozenset[str] | None = None
    # Mounts through which mounts of the host and the container reach each other.
    propagating: frozenset[str] | None = None
    # /sys and cgroup file systems that are not read-only.
    system: frozenset[str] | None = None
    devices: frozenset[str] | None = None
    rlimits: Mapping[str, tuple[int, int]] | None = None
    interfaces: tuple[str, ...] | None = None
    # By the names of `enforcement`; None: none.
    limits: Mapping[str, float | None] | None = None
    label: str | None = None
    oom_score_adj: int | None = None
    # Open files of the host that the payload was given.
    descriptors: tuple[str, ...] | None = None


LIMIT_FILES: dict[str, str] = {
    "memory": "memory.max",
    "swap": "memory.swap.max",
    "cpus": "cpu.max",
    "pids": "pids.max",
}


class Declared(NamedTuple):
    """What the driver knows and the container's files do not say. Times in seconds."""

    enforcement: Mapping[str, Enforced] = {}
    timeout_s: float | None = None
    grace_s: float | None = None
    max_output_bytes: int | None = None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Declared:
        """Of Plan.policy().

        Raises:
            ValueError, KeyError, TypeError: it is not that.
        """
        entries = document["enforcement"]
        return cls(
            enforcement={
                name: Enforced(**(entry | {"state": EnforcementState(entry["state"])}))
                for name, entry in entries.items()
            },
            timeout_s=document["timeout_s"],
            grace_s=document["grace_s"],
            max_output_bytes=document["max_output_bytes"],
        )

    def limits(self) -> dict[str, float]:
        """What the driver wrote to the container's cgroup, in the measures of `Facts.limits`.

        `how` names each file with its value (container/cgroup_limits.py).
        """
        told = "; ".join(
            entry.how
            for entry in self.enforcement.values()
            if entry.state is not EnforcementState.UNSUPPORTED
        )
        found = {}
        for name, file in LIMIT_FILES.items():
            if match := re.search(rf"\b{re.escape(file)}=(\d+)(?: (\d+))?", told):
                found[name] = int(match[1]) / int(match[2] or 1)
        return found

    def own_kernel(self) -> bool:
        """Whether a kernel of the sandbox's own answers the payload's system calls."""
        kernel = self.enforcement.get("kernel")
        return kernel is not None and kernel.actual == "own"


class Subject(NamedTuple):
    """Whom the posture is about. `filter` is config.json's linux.seccomp, None: there is none."""

    declared: Declared
    spec: Facts
    live: Facts | None
    filter: Mapping[str, Any] | None
    # What the payload may know of its environment: names only.
    variables: tuple[str, ...]
    workdir: str

    def effective(self) -> Facts:
        """Live where that tells, else the spec."""
        if self.live is None:
            return self.spec
        merged = self.spec._asdict()
        merged |= {name: value for name, value in self.live._asdict().items() if value is not None}
        return Facts(**merged)


def ground(path: str, shown: Iterable[Shown]) -> Shown | None:
    """The innermost of `shown` that `path` lies in."""
    over = [one for one in shown if is_below(path, one.target)]
    return max(over, key=lambda one: len(one.target), default=None)


def size_option(options: Iterable[str]) -> int | None:
    """Bytes of tmpfs(5)'s `size=`; None: not given, or not as a number (a percentage)."""
    for option in options:
        name, _, value = option.partition("=")
        if name == "size":
            try:
                return parse_size(value)
            except ConfigError:
                return None
    return None
