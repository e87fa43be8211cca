"""Which version of the runtime-spec a document needs, by its fields and their values.

From the schemas and the change log of 1.0.2, 1.1.0, 1.2.0, 1.2.1 and 1.3.0. What 1.0.2 has
needs no row.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Literal, get_args

from ocisbx.oci.base import SpecModel
from ocisbx.oci.config import Mount, Spec
from ocisbx.oci.features import Features, IntelRdtFeatures, LinuxFeatures, SeccompFeatures
from ocisbx.oci.linux import IntelRdt, Linux, Namespace
from ocisbx.oci.platforms import Vm, WindowsCpu, Zos
from ocisbx.oci.process import Process
from ocisbx.oci.resources import Cpu, Memory, Resources
from ocisbx.oci.seccomp import Seccomp, Syscall

Version = Literal["1.0.2", "1.1.0", "1.2.0", "1.2.1", "1.3.0"]
VERSIONS: tuple[Version, ...] = get_args(Version)

FIELDS: Mapping[type[SpecModel], Mapping[str, Version]] = {
    Spec: {"domainname": "1.1.0", "zos": "1.1.0", "freebsd": "1.3.0"},
    Mount: {"uid_mappings": "1.1.0", "gid_mappings": "1.1.0"},
    Process: {"scheduler": "1.1.0", "io_priority": "1.1.0", "exec_cpu_affinity": "1.2.1"},
    Linux: {"time_offsets": "1.1.0", "net_devices": "1.3.0", "memory_policy": "1.3.0"},
    Resources: {"unified": "1.1.0"},
    Memory: {"check_before_update": "1.1.0"},
    Cpu: {"burst": "1.1.0", "idle": "1.1.0"},
    Seccomp: {"default_errno_ret": "1.1.0", "listener_path": "1.1.0", "listener_metadata": "1.1.0"},
    Syscall: {"errno_ret": "1.1.0"},
    IntelRdt: {"schemata": "1.3.0", "enable_monitoring": "1.3.0"},
    Vm: {"hw_config": "1.3.0"},
    WindowsCpu: {"affinity": "1.2.1"},
    Zos: {"namespaces": "1.2.1"},
    Features: {
        "oci_version_min": "1.1.0",
        "potentially_unsafe_config_annotations": "1.2.0",
    },
    LinuxFeatures: {"mount_extensions": "1.2.0", "net_devices": "1.3.0"},
    IntelRdtFeatures: {"schemata": "1.3.0", "monitoring": "1.3.0"},
}

_NAMESPACES: Mapping[str, Version] = {"time": "1.1.0"}
_ACTIONS: Mapping[str, Version] = {
    "SCMP_ACT_KILL_PROCESS": "1.1.0",
    "SCMP_ACT_KILL_THREAD": "1.1.0",
    "SCMP_ACT_NOTIFY": "1.1.0",
}
_ARCHS: Mapping[str, Version] = {
    "SCMP_ARCH_RISCV64": "1.1.0",
    "SCMP_ARCH_LOONGARCH64": "1.2.1",
    "SCMP_ARCH_M68K": "1.2.1",
    "SCMP_ARCH_SH": "1.2.1",
    "SCMP_ARCH_SHEB": "1.2.1",
}
_FLAGS: Mapping[str, Version] = {"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV": "1.1.0"}
# No schema knows mount options. 1.1.0 gave these a meaning that is not the file system's;
# a runtime of 1.0.2 may hand them to mount(2) as data.
_RECURSIVE = (
    "ratime rdev rdiratime rexec rnoatime rnodev rnodiratime rnoexec rnorelatime rnostrictatime "
    "rnosuid rnosymfollow rrelatime rro rrw rstrictatime rsuid rsymfollow tmpcopyup"
)
_MOUNT_OPTIONS: Mapping[str, Version] = {
    **dict.fromkeys(_RECURSIVE.split(), "1.1.0"),
    "idmap": "1.2.0",
    "ridmap": "1.2.0",
}

VALUES: Mapping[type[SpecModel], Mapping[str, Mapping[str, Version]]] = {
    Mount: {"options": _MOUNT_OPTIONS},
    Namespace: {"type": _NAMESPACES},
    Seccomp: {"default_action": _ACTIONS, "architectures": _ARCHS, "flags": _FLAGS},
    Syscall: {"action": _ACTIONS},
    LinuxFeatures: {"namespaces": _NAMESPACES},
    SeccompFeatures: {
        "actions": _ACTIONS,
        "archs": _ARCHS,
        "known_flags": _FLAGS,
        "supported_flags": _FLAGS,
    },
}


def lowest_version(document: SpecModel) -> Version:
    """The lowest version whose vocabulary holds all that is set; unknown fields do not count."""
    return max(chain(("1.0.2",), _needs(document)), key=VERSIONS.index)


def _needs(value: object) -> Iterator[Version]:
    if isinstance(value, SpecModel):
        yield from _needs_of_model(value)
    elif isinstance(value, tuple):
        yield from chain.from_iterable(map(_needs, value))
    elif isinstance(value, dict):
        yield from chain.from_iterable(map(_needs, value.values()))


def _needs_of_model(model: SpecModel) -> Iterator[Version]:
    kind = type(model)
    fields = FIELDS.get(kind, {})
    values = VALUES.get(kind, {})
    for name in kind.model_fields:
        value = getattr(model, name)
        if value is None:
            continue
        if name in fields:
            yield fields[name]
        if name in values:
            words = value if isinstance(value, tuple) else (value,)
            yield from (values[name][word] for word in words if word in values[name])
        yield from _needs(value)
