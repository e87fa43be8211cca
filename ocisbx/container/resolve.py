"""resolve(): intent and a host's facts in, one closed ContainerConfig out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.capabilities import apply_capabilities
from ocisbx.container import identity, limits, view
from ocisbx.container.cgroup_limits import cgroup_limits
from ocisbx.container.files import choose_files
from ocisbx.container.landlock import confine_writing
from ocisbx.container.merge import (
    command_policy,
    given,
    kernel_entry,
    level_of,
    merge_preset,
    wanted_runtime,
)
from ocisbx.container.model import (
    Capture,
    Confinement,
    ContainerConfig,
    EnforcementEntry,
    Environment,
    Identity,
    Limits,
)
from ocisbx.container.select import select_runtime
from ocisbx.container.shared import share_root
from ocisbx.errors import Unsupported
from ocisbx.quirks import find_quirks, lacks
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from ocisbx.config import SandboxConfig
    from ocisbx.container.files import Files
    from ocisbx.container.identity import Cell
    from ocisbx.container.select import Wanted
    from ocisbx.host import Host, RuntimeBinary
    from ocisbx.quirks import Quirks

DEFAULT_GRACE_S = 2.0
DEFAULT_MAX_OUTPUT_BYTES = 64 << 20
KERNEL_FILTER = "seccomp(2) filter, set by the runtime"
GVISOR_FILTER = "a filter of gVisor's kernel, which answers EPERM whatever the profile's errno"
DEFAULT_HOSTNAME = "sandbox"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What a program may see of its caller's environment without being told: how to print, not who,
# where or with which keys.
SAFE_NAMES = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ")

# Fields whose meaning needs another backend; said plainly instead of ignored.
NOT_HERE: dict[str, tuple[str, str]] = {
    "image": (
        "the direct driver runs directories, not images",
        "unpack the image and give its directory with --rootfs DIR",
    ),
}


def resolve(config: SandboxConfig, host: Host, *, place: str | None = None) -> ContainerConfig:
    """Decide every default of `config` on `host`; `place` as in `choose_files`.

    Raises:
        ConfigError: the configuration does not fit this host's files.
        RuntimeMissing: none of the runtimes asked for is here.
        Unsupported: a demand cannot be enforced here, and `allow_degraded` does not name it.
    """
    merged = _checked(merge_preset(config))
    runtime, quirks = _selected(merged, wanted := wanted_runtime(config), host)
    cell = identity.choose_cell(host, quirks)
    read_only_root = given(merged.isolation.read_only_root, level_of(merged).read_only_root)
    who, who_entry, warnings = identity.choose_identity(
        merged.user, host, quirks, cell, own_root=read_only_root or _is_host(merged.rootfs)
    )
    names = view.Names(who.name, who.uid, who.gid, who.home, merged.hostname or DEFAULT_HOSTNAME)
    files = choose_files(merged, host, who, names, read_only_root=read_only_root, place=place)
    held, limited = cgroup_limits(config.limits, merged.limits, host, quirks, merged.allow_degraded)
    confinement, entries = _confine(config, merged, host, runtime, files, held)
    entries |= limited | _plain_entries(merged, read_only_root=read_only_root) | files.enforcement
    entries |= {"user_namespace": who_entry, "kernel": kernel_entry(wanted, runtime)}
    return ContainerConfig(
        machine=host.machine,
        kernel=host.kernel,
        hostname=names.hostname,
        workdir=files.workdir,
        root=(files := share_root(files, confinement, host, quirks)).root,
        binds=files.binds,
        tmpfs=files.tmpfs,
        identity=who,
        environment=_environment(merged, who, confinement, files.workdir),
        network=merged.network or "none",
        confinement=confinement,
        limits=held,
        capture=_capture(merged),
        terminal=bool(merged.terminal),
        commands=command_policy(merged),
        timeout_s=merged.timeout_s,
        grace_s=given(merged.grace_s, DEFAULT_GRACE_S),
        runtime=runtime,
        runtime_requested=",".join(merged.runtime.names or ("auto",)),
        cell=cell,
        cgroup=_has_cgroup(host, quirks, cell, held),
        annotations=dict(merged.annotations),
        host_side=files.host_side,
        enforcement=dict(sorted(entries.items())),
        warnings=warnings,
    )


def _selected(merged: SandboxConfig, wanted: Wanted, host: Host) -> tuple[RuntimeBinary, Quirks]:
    runtime = select_runtime(wanted, host)
    lack = lacks(runtime.name, runtime.version).get("a terminal is the payload's")
    if merged.terminal and lack is not None:
        raise Unsupported(
            f"{runtime.name} {runtime.version} cannot give the payload a terminal",
            why=lack.evidence,
            remedy="use another runtime: --runtime auto",
        )
    return runtime, find_quirks(runtime.name, runtime.version)


def _has_cgroup(host: Host, quirks: Quirks, cell: Cell, held: Limits) -> bool:
    """Whether the container gets a cgroup of its own. Without a limit it is for accounting and for
    the end of all that runs in it, for which no scope is asked of systemd."""
    if host.cgroups.way == "none":
        return False
    # On a hybrid hierarchy a runtime looks at version 1, unless a cell hides it.
    if host.cgroups.hierarchy == "hybrid" and cell == "none" and not quirks.enters_cgroup:
        return False
    return host.cgroups.way != "scope" or held != Limits()


def _is_host(rootfs: str | None) -> bool:
    return rootfs in (None, "host")


def _checked(merged: SandboxConfig) -> SandboxConfig:
    """The same, when nothing in it needs another backend or version. Raises Unsupported."""
    for field, (why, remedy) in NOT_HERE.items():
        if getattr(merged, field):
            raise Unsupported(f"{field} cannot be used here", why=why, remedy=remedy)
    if merged.backend not in (None, "auto", "oci"):
        raise Unsupported(
            f"backend {merged.backend} cannot be used here",
            why="on Linux containers are run directly",
            remedy="--backend auto, or leave it out",
        )
    return merged


def _confine(
    config: SandboxConfig,
    merged: SandboxConfig,
    host: Host,
    runtime: RuntimeBinary,
    files: Files,
    held: Limits,
) -> tuple[Confinement, dict[str, EnforcementEntry]]:
    level, isolation = level_of(merged), merged.isolation
    quirks = find_quirks(runtime.name, runtime.version)
    unheld = merged.limits.pids if held.pids is None else None
    wished = limits.bound_processes(dict(merged.limits.rlimits), unheld, host)
    rlimits, rlimit_entry = limits.choose_rlimits(wished, dict(config.limits.rlimits), host)
    asked = isolation.capabilities
    base, changes = ((), level.capabilities) if asked is None else (level.capabilities, asked)
    profile = given(isolation.seccomp, level.seccomp)
    confinement = Confinement(
        capabilities=apply_capabilities(base, changes),
        no_new_privileges=given(isolation.no_new_privileges, level.no_new_privileges),
        seccomp=host.texts.get(profile, profile),
        masked_paths=given(isolation.masked_paths, level.masked_paths),
        readonly_paths=given(isolation.readonly_paths, level.readonly_paths),
        rlimits=rlimits,
        time_namespace=quirks.time_namespace and host.time_namespaces,
        # What the kernel spares would be spared inside too, and the caller's be ended instead.
        oom_score_adj=0 if host.oom_score_adj < 0 else None,
    )
    # gVisor has no Landlock, which its first trial must not have to find out.
    abi = 0 if quirks.user_kernel else runtime.landlock_abi
    confinement, writing = confine_writing(confinement, files, abi, level)
    capabilities = ", ".join(confinement.capabilities) or "none"
    entries = {
        "landlock": writing,
        "capabilities": _enforced(capabilities, "all five sets (capabilities(7))"),
        "no_new_privileges": _enforced(confinement.no_new_privileges, "prctl(2)"),
        "seccomp": _enforced(profile, GVISOR_FILTER if quirks.user_kernel else KERNEL_FILTER),
    }
    if rlimit_entry is not None:
        entries["rlimits"] = rlimit_entry
    return confinement, entries


def _plain_entries(merged: SandboxConfig, *, read_only_root: bool) -> dict[str, EnforcementEntry]:
    network = merged.network or "none"
    how = "a network namespace with loopback only" if network == "none" else "the host's network"
    return {
        "network": _enforced(network, how),
        "read_only_root": _enforced(read_only_root, "mount namespace"),
    }


def _enforced(value: object, how: str) -> EnforcementEntry:
    shown = value if isinstance(value, bool) else str(value)
    return EnforcementEntry(requested=shown, actual=shown, state=EnforcementState.ENFORCED, how=how)


def _environment(
    merged: SandboxConfig, who: Identity, confinement: Confinement, workdir: str
) -> Environment:
    """A clean environment with what programs cannot do without, then the caller's words."""
    unset = set(merged.env.unset)
    # GNU tar takes uid 0 for one who can give files away, and fails on what others packed.
    gives_away = "CAP_CHOWN" in confinement.capabilities and sum(r.size for r in who.uid_map) > 1
    for_tar = {} if who.uid != 0 or gives_away else {"TAR_OPTIONS": "--no-same-owner"}
    fixed = {
        "PATH": DEFAULT_PATH,
        "HOME": who.home,
        "USER": who.name,
        "LOGNAME": who.name,
        "PWD": workdir,
        "OCISBX": "1",
    }
    fixed |= for_tar | dict(merged.env.set)
    # The caller's own values win over ours, and `set` over both.
    inherit = dict.fromkeys([*SAFE_NAMES, *merged.env.inherit])
    return Environment(
        fixed={name: value for name, value in fixed.items() if name not in unset},
        inherit=tuple(name for name in inherit if name not in unset | set(merged.env.set)),
    )


def _capture(merged: SandboxConfig) -> Capture:
    capture = merged.capture
    return Capture(
        max_bytes=given(capture.max_bytes, DEFAULT_MAX_OUTPUT_BYTES),
        on_limit=capture.on_limit or "truncate",
        combine=bool(capture.combine),
    )
