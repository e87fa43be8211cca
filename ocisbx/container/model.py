"""ContainerConfig: what this host will do, with nothing left open and "auto" not writable."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from ocisbx.commands import CommandPolicy
from ocisbx.host import RuntimeBinary, WeightFile
from ocisbx.placeholder import Placeholder
from ocisbx.result import EnforcementState
from ocisbx.steady import Looked


class Resolved(BaseModel):
    """Base of the intermediate form: frozen and closed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Node(Resolved):
    """One entry of the root that we make for a container: `path` is absolute inside it."""

    kind: Literal["directory", "symlink", "file", "copy"]
    path: str
    # A symlink's target, a file's text, or the path on the host that a copy is made of.
    content: str = ""
    # None: 0755 for a directory, 0644 for a file. A tmpfs's mount point has the tmpfs's own: runc
    # 1.1 gives it to the tmpfs, whatever the mount's options say.
    mode: int | None = None
    # What a copy's source was.
    looked: tuple[Looked, ...] = ()


class Bind(Resolved):
    """A host path at `target`; `idmap`: with the container's id mapping on the mount; `copyable`:
    what becomes of the source later need not be seen. A relative source lies in the bundle."""

    source: str
    target: str
    read_only: bool
    directory: bool = True
    idmap: bool = False
    copyable: bool = False


class Tmpfs(Resolved):
    """Bounded memory at `target`."""

    target: str
    size_bytes: int
    inodes: int
    mode: int = 0o1777
    no_exec: bool = False


class Root(Resolved):
    """The container's root: made by us from `nodes`, once for all containers that have the same
    where it is `shared`; or (writable) a directory of the caller's."""

    directory: str | None
    read_only: bool
    shared: bool = False
    nodes: tuple[Node, ...]


class IdMap(Resolved):
    """A row of uid_map or gid_map (user_namespaces(7)); `host` as the runtime will see it."""

    container: int
    host: int
    size: int


class Identity(Resolved):
    """Who the payload is, inside."""

    uid: int
    gid: int
    uid_map: tuple[IdMap, ...]
    gid_map: tuple[IdMap, ...]
    home: str
    name: str


class Environment(Resolved):
    """`fixed` stands in the plan; `inherit` is looked up in the caller's environment each time."""

    fixed: dict[str, str]
    inherit: tuple[str, ...]


class Confinement(Resolved):
    """What the kernel is told to withhold from the payload."""

    capabilities: tuple[str, ...]
    no_new_privileges: bool
    # "default", "none", or the text of a profile.
    seccomp: str
    masked_paths: tuple[str, ...]
    readonly_paths: tuple[str, ...]
    rlimits: dict[str, tuple[int, int]]
    # Clocks of its own, which show the host's time.
    time_namespace: bool
    # None: as the caller's.
    oom_score_adj: int | None
    # Where Landlock lets the payload write; None: no Landlock.
    writable_paths: tuple[str, ...] | None = None


class IoLimit(Resolved):
    """What one disk (MAJOR:MINOR) may do each second, and its share; None: not limited.

    `weight_file`: which of the kernel's two takes the share, "" without one.
    """

    device: str
    read_bps: int | None = None
    write_bps: int | None = None
    read_iops: int | None = None
    write_iops: int | None = None
    weight: int | None = None
    weight_file: WeightFile = ""


class Limits(Resolved):
    """What the container's cgroup has to hold; None: not limited.

    `swap_bytes` is memory and swap together, as in the runtime-spec; -1: no limit.
    """

    memory_bytes: int | None = None
    oom_group: bool = False
    memory_high_bytes: int | None = None
    swap_bytes: int | None = None
    cpus: float | None = None
    cpu_weight: int | None = None
    cpuset: str | None = None
    pids: int | None = None
    io: tuple[IoLimit, ...] = ()


class Capture(Resolved):
    """How much of each stream is kept, and what happens beyond it."""

    max_bytes: int
    on_limit: Literal["truncate", "kill"]
    combine: bool


class HostSide(Resolved):
    """What the path policy (container/policy.py) needs besides mounts.

    `placeholders` are made on the host first; `covers` are the sources that lie in the bundle;
    `verified` is what of the host may be mounted (source, target, writable) where that has to be
    looked at before the payload starts.
    """

    placeholders: tuple[Placeholder, ...] = ()
    covers: tuple[str, ...] = ()
    verified: tuple[tuple[str, str, bool], ...] = ()


class EnforcementEntry(Resolved):
    """One line of the result's `enforcement`."""

    requested: str | int | float | bool | None
    actual: str | int | float | bool | None
    state: EnforcementState
    how: str


class ContainerConfig(Resolved):
    """One container of this configuration on this host, but for command, id and descriptors."""

    machine: str
    kernel: str
    hostname: str
    workdir: str
    root: Root
    binds: tuple[Bind, ...]
    tmpfs: tuple[Tmpfs, ...]
    identity: Identity
    environment: Environment
    network: Literal["none", "host"]
    confinement: Confinement
    limits: Limits
    capture: Capture
    terminal: bool
    commands: CommandPolicy
    timeout_s: float | None
    grace_s: float
    runtime: RuntimeBinary
    runtime_requested: str
    # Namespaces that the runtime itself has to be started in (see `ocisbx-init(7)`, the cell).
    cell: Literal["none", "mount", "user"]
    cgroup: bool
    annotations: dict[str, str]
    host_side: HostSide
    enforcement: dict[str, EnforcementEntry]
    warnings: tuple[str, ...]
