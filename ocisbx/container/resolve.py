"""resolve(): intent and a host's facts in, one closed ContainerConfig out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ocisbx.capabilities import apply_capabilities
from ocisbx.config import SandboxConfig
from ocisbx.container import identity, limits, view
from ocisbx.container.files import choose_files
from ocisbx.container.limits import Asked
from ocisbx.container.model import (
    Capture,
    Confinement,
    ContainerConfig,
    EnforcementEntry,
    Environment,
    Identity,
)
from ocisbx.container.select import select_runtime
from ocisbx.errors import Unsupported
from ocisbx.mounts import parse_workspace
from ocisbx.presets import ISOLATION_LEVELS, PRESETS, Level
from ocisbx.quirks import find_quirks
from ocisbx.result import EnforcementState
from ocisbx.values import UNLIMITED

if TYPE_CHECKING:
    from ocisbx.host import Host

T = TypeVar("T")

DEFAULT_LEVEL = "restricted"
DEFAULT_GRACE_S = 2.0
DEFAULT_MAX_OUTPUT_BYTES = 64 << 20
DEFAULT_HOSTNAME = "sandbox"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What a program may see of its caller's environment without being told: how to print, not who,
# where or with which keys.
SAFE_NAMES = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ")

# Cheap wishes of every container, by the spec's names: a core dump would land in the workspace,
# and programs that close every possible descriptor take minutes under a limit of 2^30.
DEFAULT_RLIMITS: dict[str, tuple[int, int]] = {
    "RLIMIT_CORE": (0, 0),
    "RLIMIT_NOFILE": (65536, 65536),
}

# Fields whose meaning needs another backend; said plainly instead of ignored.
NOT_HERE: dict[str, tuple[str, str]] = {
    "image": (
        "the direct driver runs directories, not images",
        "unpack the image and give its directory with --rootfs DIR",
    ),
    "terminal": ("this version has no terminals", "leave terminal out"),
}


def resolve(config: SandboxConfig, host: Host) -> ContainerConfig:
    """Decide every default of `config` on `host`.

    Raises:
        ConfigError: the configuration does not fit this host's files.
        RuntimeMissing: none of the runtimes asked for is here.
        Unsupported: a demand cannot be enforced here, and `allow_degraded` does not name it.
    """
    merged = _checked(merge_preset(config))
    level = ISOLATION_LEVELS[merged.isolation.level or DEFAULT_LEVEL]
    runtime = select_runtime(merged.runtime.names, host)
    cell = identity.choose_cell(host, quirks := find_quirks(runtime.name, runtime.version))
    read_only_root = _given(merged.isolation.read_only_root, level.read_only_root)
    who, who_entry, warnings = identity.choose_identity(
        merged.user, host, quirks, cell, own_root=read_only_root or _is_host(merged.rootfs)
    )
    names = view.Names(who.name, who.uid, who.gid, who.home, merged.hostname or DEFAULT_HOSTNAME)
    files = choose_files(merged, host, who, names, read_only_root=read_only_root)
    confinement, entries = _confine(config, merged, level, host)
    asked = _asked_limits(config, merged)
    held, limit_entries = limits.cgroup_limits(asked, host.cgroups, merged.allow_degraded)
    entries |= _plain_entries(merged, read_only_root=read_only_root) | files.enforcement
    entries |= limit_entries | {"user_namespace": who_entry}
    return ContainerConfig(
        machine=host.machine,
        kernel=host.kernel,
        hostname=names.hostname,
        workdir=files.workdir,
        root=files.root,
        binds=files.binds,
        tmpfs=files.tmpfs,
        identity=who,
        environment=_environment(merged, who, files.workdir),
        network=merged.network or "none",
        confinement=confinement,
        limits=held,
        capture=_capture(merged),
        timeout_s=merged.timeout_s,
        grace_s=_given(merged.grace_s, DEFAULT_GRACE_S),
        runtime=runtime,
        runtime_requested=",".join(merged.runtime.names or ("auto",)),
        cell=cell,
        cgroup=host.uid == 0 and host.cgroups.delegated and quirks.root_cgroup,
        annotations=dict(merged.annotations),
        host_side=files.host_side,
        enforcement=dict(sorted(entries.items())),
        warnings=warnings,
    )


def merge_preset(config: SandboxConfig) -> SandboxConfig:
    """The preset's values where the caller left something open."""
    preset = SandboxConfig.build(dict(PRESETS[config.preset].fields))
    merged = preset.updated(config.said())
    mine, theirs = (parse_workspace(c.workspace or "none") for c in (config, preset))
    if mine and theirs and mine.read_only is None and theirs.read_only:
        # Naming a directory says nothing about writing: the preset's word stands.
        return merged.updated({"workspace": f"{mine.path}:ro"})
    return merged


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


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
    config: SandboxConfig, merged: SandboxConfig, level: Level, host: Host
) -> tuple[Confinement, dict[str, EnforcementEntry]]:
    isolation = merged.isolation
    wished = DEFAULT_RLIMITS | dict(merged.limits.rlimits)
    rlimits, rlimit_entry = limits.choose_rlimits(wished, dict(config.limits.rlimits), host)
    asked = isolation.capabilities
    base, changes = ((), level.capabilities) if asked is None else (level.capabilities, asked)
    profile = _given(isolation.seccomp, level.seccomp)
    confinement = Confinement(
        capabilities=apply_capabilities(base, changes),
        no_new_privileges=_given(isolation.no_new_privileges, level.no_new_privileges),
        seccomp=host.texts.get(profile, profile),
        masked_paths=_given(isolation.masked_paths, level.masked_paths),
        readonly_paths=_given(isolation.readonly_paths, level.readonly_paths),
        rlimits=rlimits,
    )
    capabilities = ", ".join(confinement.capabilities) or "none"
    entries = {
        "capabilities": _enforced(capabilities, "all five sets (capabilities(7))"),
        "no_new_privileges": _enforced(confinement.no_new_privileges, "prctl(2)"),
        "seccomp": _enforced(profile, "seccomp(2) filter, set by the runtime"),
    }
    if rlimit_entry is not None:
        entries["rlimits"] = rlimit_entry
    return confinement, entries


def _asked_limits(config: SandboxConfig, merged: SandboxConfig) -> dict[str, Asked]:
    asked = {}
    for field in limits.CGROUP_LIMITS:
        value = getattr(merged.limits, field)
        if value is not None and value not in ({}, UNLIMITED):
            mine = getattr(config.limits, field)
            asked[field] = Asked(value, demanded=mine is not None and mine != {})
    return asked


def _plain_entries(merged: SandboxConfig, *, read_only_root: bool) -> dict[str, EnforcementEntry]:
    network = merged.network or "none"
    how = "a network namespace with loopback only" if network == "none" else "the host's network"
    return {
        "network": _enforced(network, how),
        "read_only_root": _enforced(read_only_root, "mount namespace"),
        "kernel": _enforced("shared", "the host's kernel, through a seccomp filter"),
    }


def _enforced(value: object, how: str) -> EnforcementEntry:
    shown = value if isinstance(value, bool) else str(value)
    return EnforcementEntry(requested=shown, actual=shown, state=EnforcementState.ENFORCED, how=how)


def _environment(merged: SandboxConfig, who: Identity, workdir: str) -> Environment:
    """A clean environment with what programs cannot do without, then the caller's words."""
    unset = set(merged.env.unset)
    fixed = {
        "PATH": DEFAULT_PATH,
        "HOME": who.home,
        "USER": who.name,
        "LOGNAME": who.name,
        "PWD": workdir,
        "OCISBX": "1",
    } | dict(merged.env.set)
    # The caller's own values win over ours, and `set` over both.
    inherit = dict.fromkeys([*SAFE_NAMES, *merged.env.inherit])
    return Environment(
        fixed={name: value for name, value in fixed.items() if name not in unset},
        inherit=tuple(name for name in inherit if name not in unset | set(merged.env.set)),
    )


def _capture(merged: SandboxConfig) -> Capture:
    capture = merged.capture
    return Capture(
        max_bytes=_given(capture.max_bytes, DEFAULT_MAX_OUTPUT_BYTES),
        on_limit=capture.on_limit or "truncate",
        combine=bool(capture.combine),
    )
