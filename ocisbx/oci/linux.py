"""`linux` of config.json (config-linux.md), but for `resources` and `seccomp`."""

from typing import Annotated, Literal

from pydantic import Field

from ocisbx.oci.base import FileMode, Int64, Opt, SpecModel, StringMap, Strings, Uint32
from ocisbx.oci.resources import Resources
from ocisbx.oci.seccomp import Seccomp

NamespaceType = Literal["mount", "pid", "network", "uts", "ipc", "user", "cgroup", "time"]
RootfsPropagation = Literal["private", "shared", "slave", "unbindable"]
PersonalityDomain = Literal["LINUX", "LINUX32"]
MemoryPolicyMode = Literal[
    "MPOL_DEFAULT",
    "MPOL_BIND",
    "MPOL_INTERLEAVE",
    "MPOL_WEIGHTED_INTERLEAVE",
    "MPOL_PREFERRED",
    "MPOL_PREFERRED_MANY",
    "MPOL_LOCAL",
]
MemoryPolicyFlag = Literal["MPOL_F_NUMA_BALANCING", "MPOL_F_RELATIVE_NODES", "MPOL_F_STATIC_NODES"]


class Namespace(SpecModel):
    """A namespace: a new one, or with `path` the one that this file refers to."""

    type: NamespaceType
    path: Opt[str] = None


class IdMapping(SpecModel):
    """`size` ids from `container_id` on are those from `host_id` on outside."""

    container_id: Uint32
    host_id: Uint32
    size: Uint32


class Device(SpecModel):
    """A device node; `file_mode` is a number (438 is 0o666), ids are the container's."""

    type: Annotated[str, Field(pattern=r"^[cbup]$")]
    path: str
    major: Opt[Int64] = None
    minor: Opt[Int64] = None
    file_mode: Opt[FileMode] = None
    uid: Opt[Uint32] = None
    gid: Opt[Uint32] = None


class NetDevice(SpecModel):
    """A network device of the host that moves into the container, there called `name`."""

    name: Opt[str] = None


class IntelRdt(SpecModel):
    """Cache and memory bandwidth by resctrl; `schemata` are lines of that file."""

    clos_id: Opt[str] = None
    schemata: Opt[Strings] = None
    l3_cache_schema: Opt[str] = None
    mem_bw_schema: Opt[Annotated[str, Field(pattern=r"^MB:[^\n]*$")]] = None
    enable_monitoring: Opt[bool] = None


class MemoryPolicy(SpecModel):
    """NUMA policy as in set_mempolicy(2); `nodes` is a list like `0-3,7`."""

    mode: Opt[MemoryPolicyMode] = None
    nodes: Opt[str] = None
    flags: Opt[tuple[MemoryPolicyFlag, ...]] = None


class Personality(SpecModel):
    """Execution domain as in personality(2)."""

    domain: Opt[PersonalityDomain] = None
    flags: Opt[Strings] = None


class TimeOffset(SpecModel):
    """Offset of one clock; seconds may be negative."""

    secs: Opt[Int64] = None
    nanosecs: Opt[Uint32] = None


class TimeOffsets(SpecModel):
    """Offsets of a new time namespace (time_namespaces(7))."""

    boottime: Opt[TimeOffset] = None
    monotonic: Opt[TimeOffset] = None


class Linux(SpecModel):
    """The Linux section; `net_devices` is keyed by the host's name of the device."""

    namespaces: Opt[tuple[Namespace, ...]] = None
    uid_mappings: Opt[tuple[IdMapping, ...]] = None
    gid_mappings: Opt[tuple[IdMapping, ...]] = None
    time_offsets: Opt[TimeOffsets] = None
    devices: Opt[tuple[Device, ...]] = None
    net_devices: Opt[dict[str, NetDevice]] = None
    cgroups_path: Opt[str] = None
    resources: Opt[Resources] = None
    rootfs_propagation: Opt[RootfsPropagation] = None
    seccomp: Opt[Seccomp] = None
    sysctl: Opt[StringMap] = None
    masked_paths: Opt[Strings] = None
    readonly_paths: Opt[Strings] = None
    mount_label: Opt[str] = None
    intel_rdt: Opt[IntelRdt] = None
    memory_policy: Opt[MemoryPolicy] = None
    personality: Opt[Personality] = None
