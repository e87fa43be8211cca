"""build_spec(): ContainerConfig -> Spec, pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ocisbx.oci import Linux, Process, Root, Spec, lowest_version
from ocisbx.oci.linux import Namespace, NamespaceType
from ocisbx.oci.process import Capabilities, Rlimit, User
from ocisbx.oci.seccomp import Seccomp, SyscallArg
from ocisbx.quirks import find_quirks
from ocisbx.specgen.mounts import INIT_TARGET, build_mounts, id_mappings
from ocisbx.specgen.seccomp import default_profile, load_profile

if TYPE_CHECKING:
    from ocisbx.container.model import ContainerConfig

# getrlimit(2): RLIM_INFINITY is all ones in the kernel's 64 bits, -1 in Python's.
RLIM_INFINITY = (1 << 64) - 1

NAMESPACES: tuple[NamespaceType, ...] = ("user", "mount", "pid", "uts", "ipc", "cgroup")
OPTIONAL_NAMESPACES: tuple[NamespaceType, ...] = ("network", "time")


def build_spec(
    container: ContainerConfig,
    *,
    root: str,
    argv: list[str],
    environment: list[str],
    cgroup: str = "",
) -> Spec:
    """The whole config.json of one call, but for its limits (see `build_resources`); `cgroup` is
    linux.cgroupsPath, where the container has one or the runtime insists on it.

    Raises:
        ConfigError: a seccomp profile that cannot be used.
    """
    spec = Spec(
        oci_version="1.0.2",
        process=_process(container, argv, environment),
        root=Root(path=root, readonly=container.root.read_only),
        hostname=container.hostname,
        mounts=build_mounts(container),
        linux=_linux(container, cgroup),
        annotations=container.annotations or None,
    )
    return spec.model_copy(update={"oci_version": lowest_version(spec)})


def _process(container: ContainerConfig, argv: list[str], environment: list[str]) -> Process:
    confinement = container.confinement
    names = confinement.capabilities
    rules = [word for path in confinement.writable_paths or () for word in ("-w", path)]
    # capabilities(7): the ambient set is what survives the execve of an unprivileged uid; it
    # cannot hold what the inheritable set does not, and CVE-2022-29162 asks for neither.
    return Process(
        terminal=container.terminal,
        user=User(uid=container.identity.uid, gid=container.identity.gid),
        args=(INIT_TARGET, *rules, "--", *argv),
        env=tuple(environment),
        cwd=container.workdir,
        capabilities=Capabilities(bounding=names, effective=names, permitted=names),
        rlimits=tuple(
            Rlimit(type=name, soft=_unsigned(soft), hard=_unsigned(hard))
            for name, (soft, hard) in sorted(confinement.rlimits.items())
        ),
        no_new_privileges=confinement.no_new_privileges,
        oom_score_adj=confinement.oom_score_adj,
    )


def _linux(container: ContainerConfig, cgroup: str) -> Linux:
    confinement = container.confinement
    quirks = find_quirks(container.runtime.name, container.runtime.version)
    asked = {"time": confinement.time_namespace, "network": container.network == "none"}
    namespaces = NAMESPACES + tuple(name for name in OPTIONAL_NAMESPACES if asked[name])
    return Linux(
        namespaces=tuple(Namespace(type=name) for name in namespaces),
        uid_mappings=id_mappings(container.identity.uid_map),
        gid_mappings=id_mappings(container.identity.gid_map),
        cgroups_path=cgroup if container.cgroup or quirks.always_placed else None,
        rootfs_propagation="private",
        seccomp=_seccomp(container),
        masked_paths=confinement.masked_paths,
        readonly_paths=confinement.readonly_paths,
    )


def _seccomp(container: ContainerConfig) -> Seccomp | None:
    confinement = container.confinement
    if confinement.seccomp == "none":
        return None
    major, minor = container.kernel.split("-")[0].split(".")[:2]
    kernel = (int(major), int(minor))
    quirks = find_quirks(container.runtime.name, container.runtime.version)
    if confinement.seccomp == "default":
        document = default_profile(
            container.machine, kernel, confinement.capabilities, clone3=quirks.clone3
        )
    else:
        document = load_profile(
            confinement.seccomp, container.machine, kernel, confinement.capabilities
        )
    # The models are strict about Python's types; JSON's are those of a profile.
    seccomp = Seccomp.model_validate_json(json.dumps(document))
    return _swapped(seccomp) if quirks.swaps_masks else seccomp


def _swapped(seccomp: Seccomp) -> Seccomp:
    """The filter for a runtime that takes masks for values."""

    def swap(arg: SyscallArg) -> SyscallArg:
        if arg.op != "SCMP_CMP_MASKED_EQ":
            return arg
        return arg.model_copy(update={"value": arg.value_two or 0, "value_two": arg.value})

    rules = tuple(
        rule.model_copy(update={"args": None if rule.args is None else tuple(map(swap, rule.args))})
        for rule in seccomp.syscalls or ()
    )
    return seccomp.model_copy(update={"syscalls": rules})


def _unsigned(limit: int) -> int:
    return RLIM_INFINITY if limit < 0 else limit
