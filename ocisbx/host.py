"""What is known of a host: facts only, read by `probe`, recorded in example bundles."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from ocisbx.steady import Looked


class Facts(BaseModel):
    """Base of the host's records: frozen, and strict about what a recorded file may hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PathKind(StrEnum):
    """What a path names, after following symlinks."""

    DIRECTORY = "directory"
    FILE = "file"
    SOCKET = "socket"
    OTHER = "other"
    MISSING = "missing"


class Link(Facts):
    """A symlink met on the way along a path: `path` (its own parent resolved) -> `target`.

    `rest` is what follows it: `path/rest` is another name of what the whole path names.
    """

    path: str
    target: str
    rest: str = ""


class PathFact(Facts):
    """A path that the configuration names, as this host sees it."""

    kind: PathKind
    real: str
    links: tuple[Link, ...] = ()


class Place(Facts):
    """A path that a rule of [filesystem] leads to.

    `real`: where it lies, through every symlink of `links`. What does not exist has the first
    missing directory or file in `missing`; so has an empty directory, which may be one that keeps
    a name free. `parent`: whether we can write where it is missing; "closed" is ours without
    write permission. `instead`: a file that is there where the path needs a directory, as a linked
    worktree's `.git` is. `elsewhere`: a file of it that has another name (a hard link).
    """

    real: str
    kind: PathKind
    links: tuple[Link, ...] = ()
    missing: str = ""
    parent: Literal["ours", "closed", "others"] = "ours"
    instead: str = ""
    elsewhere: str = ""


class Matches(Facts):
    """What one pattern led to; `cut`: why there may be more; `walked`: the directories read."""

    places: tuple[Place, ...] = ()
    cut: str = ""
    walked: tuple[str, ...] = ()


class Entry(Facts):
    """One entry of a directory whose listing matters."""

    name: str
    kind: Literal["directory", "file", "symlink", "other"]
    target: str = ""


class RuntimeBinary(Facts):
    """A runtime that was found: its own `--version` says name and version.

    The rest is known of one that was tried (`trouble` empty: it ran a container). `platform` is
    the one that worked; `passed_over` says why not those before it ("systrap: words").
    `ignores` holds names of `enforcement` that it says yes to and does not do.
    `landlock_abi` is that of the kernel that its payloads see; 0: none, None: not known.
    """

    name: str
    path: str
    version: str
    trouble: str = ""
    remedy: str = ""
    platform: str | None = None
    passed_over: str = ""
    ignores: tuple[str, ...] = ()
    landlock_abi: int | None = None


class IdRange(Facts):
    """A line of /etc/subuid or /etc/subgid (subuid(5)) that is the caller's."""

    start: int
    count: int


# uid_map of the first user namespace.
ALL_IDS = IdRange(start=0, count=(1 << 32) - 1)


class Cgroups(Facts):
    """Our place in the hierarchy at /sys/fs/cgroup and how sandboxes get theirs (probe/cgroups.py),
    with what tells why where they get none."""

    hierarchy: Literal["unified", "hybrid", "v1", "none"]
    mount: str = ""
    own: str = ""
    way: Literal["sibling", "below", "scope", "none"] = "none"
    parent: str = ""
    controllers: tuple[str, ...] = ()
    trouble: str = ""
    # The controllers of the topmost cgroup that `mount` shows.
    offered: tuple[str, ...] = ()
    # What `mount` lies on is mounted read-only.
    read_only: bool = False
    # systemd is process 1 (sd_booted(3)).
    systemd: bool = False
    # Where our user manager answers; empty: it does not run, or cannot be reached.
    user_bus: str = ""
    # The engine of the container that we are in; empty: in none, as far as can be seen.
    container: str = ""

    @property
    def divisible(self) -> bool:
        """Whether cgroups can be made right where we are."""
        return self.way in ("sibling", "below")


# Which file of a cgroup takes a disk's weight: by its model of costs (iocost), or by its scheduler.
WeightFile = Literal["", "io.weight", "io.bfq.weight"]


class Disk(Facts):
    """The block device that a key of [limits.io] leads to.

    `number` is that of the whole disk, as io.max wants it; empty: none, and `trouble` says why.
    """

    number: str = ""
    trouble: str = ""
    weight_file: WeightFile = ""


class Host(Facts):
    """Everything that `resolve` may know; two equal hosts give equal containers.

    `runtimes` holds what was found, in the order of the search; `paths` and `listings` are keyed
    by absolute path and hold exactly what the configuration at hand needs.
    """

    machine: str
    kernel: str
    uid: int
    gid: int
    # Supplementary groups besides `gid` (getgroups(2)).
    groups: tuple[int, ...] = ()
    home: str
    cwd: str
    hostname: str = ""
    max_user_namespaces: int | None = None
    apparmor_restricts_user_namespaces: bool = False
    newuidmap: str | None = None
    newgidmap: str | None = None
    subordinate_uids: tuple[IdRange, ...] = ()
    subordinate_gids: tuple[IdRange, ...] = ()
    # The ids that exist in our own user namespace (user_namespaces(7)): all of them, or in a
    # nested container some.
    own_uids: tuple[IdRange, ...] = (ALL_IDS,)
    own_gids: tuple[IdRange, ...] = (ALL_IDS,)
    # Every requested path lies on a file system that takes idmapped mounts (mount_setattr(2)).
    idmap_ready: bool = False
    # /proc/self/ns/time is there: Linux 5.6 with CONFIG_TIME_NS (time_namespaces(7)).
    time_namespaces: bool = False
    # Our own, which a child inherits (proc_pid_oom_score_adj(5)).
    oom_score_adj: int = 0
    cgroups: Cgroups = Cgroups(hierarchy="none")
    # Processors that may be used, as `0-3,6`; empty: not known.
    cpus: str = ""
    # The kernel counts swap for each cgroup (it does not when booted with swapaccount=0).
    swap_accounting: bool = True
    # By key of [limits.io]: a path, or MAJOR:MINOR.
    disks: dict[str, Disk] = {}
    rlimits: dict[str, tuple[int, int]] = {}
    runtimes: tuple[RuntimeBinary, ...] = ()
    # The caller's own directories: never a workspace, never inside one.
    own_directories: tuple[str, ...] = ()
    paths: dict[str, PathFact] = {}
    listings: dict[str, tuple[Entry, ...]] = {}
    # Of what the view shows, the small things: what is looked at to know each of them.
    steady: dict[str, tuple[Looked, ...]] = {}
    # Where the rules of [filesystem] lead, by absolute pattern (see container/rules.py).
    matches: dict[str, Matches] = {}
    # Code that the caller's next call runs, where the payload could write it.
    own_code: tuple[str, ...] = ()
    # Files that the configuration names for their content (a seccomp profile).
    texts: dict[str, str] = {}

    def fact(self, path: str) -> PathFact:
        """What is known of `path`; a path nobody looked at is a programming error."""
        return self.paths[path]

    def kernel_at_least(self, major: int, minor: int) -> bool:
        parts = self.kernel.split("-")[0].split(".")
        return (int(parts[0]), int(parts[1])) >= (major, minor)
