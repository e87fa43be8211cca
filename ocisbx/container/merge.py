"""What a configuration says once its preset is in it, and what it asks of a runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ocisbx.commands import CommandPolicy, parse_pattern
from ocisbx.config import SandboxConfig
from ocisbx.container.model import EnforcementEntry
from ocisbx.container.select import Wanted, has_own_kernel
from ocisbx.mounts import PER_CALL, parse_workspace
from ocisbx.presets import ISOLATION_LEVELS, PRESETS, Level
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary

T = TypeVar("T")

DEFAULT_LEVEL = "restricted"


def merge_preset(config: SandboxConfig) -> SandboxConfig:
    """The preset's values where the caller left something open."""
    preset = SandboxConfig.build(dict(PRESETS[config.preset].fields))
    merged = preset.updated(config.said())
    mine, theirs = (parse_workspace(c.workspace or "none") for c in (config, preset))
    if mine and theirs and mine.read_only is None and theirs.read_only:
        # Naming a directory says nothing about writing: the preset's word stands.
        return merged.updated({"workspace": f"{PER_CALL if mine.per_call else mine.path}:ro"})
    return merged


def level_of(merged: SandboxConfig) -> Level:
    """The isolation level of a configuration with its preset in it."""
    return ISOLATION_LEVELS[merged.isolation.level or DEFAULT_LEVEL]


def given(value: T | None, default: T) -> T:
    return default if value is None else value


def command_policy(merged: SandboxConfig) -> CommandPolicy:
    """The patterns of `[commands]`, ready to be asked."""
    allow, deny = (
        tuple(map(parse_pattern, patterns))
        for patterns in (merged.commands.allow, merged.commands.deny)
    )
    return CommandPolicy(allow, deny)


def wanted_runtime(config: SandboxConfig) -> Wanted:
    """What `config` (not merged yet) asks of its runtime.

    A preset that wants a kernel of the payload's own is told otherwise by the caller's own list of
    runtimes, or by `allow_degraded`.
    """
    merged = merge_preset(config)
    level = level_of(merged)
    isolation = merged.isolation
    needs = {
        "seccomp": given(isolation.seccomp, level.seccomp) != "none",
        "no_new_privileges": given(isolation.no_new_privileges, level.no_new_privileges),
        "capabilities": True,
    }
    lenient = bool(config.runtime.names or {"kernel", "all"} & set(merged.allow_degraded))
    return Wanted(
        names=tuple(merged.runtime.names),
        platform=merged.runtime.platform,
        needs=frozenset(name for name, needed in needs.items() if needed),
        network=merged.network or "none",
        own_kernel=PRESETS[config.preset].own_kernel and not lenient,
    )


def kernel_entry(wanted: Wanted, runtime: RuntimeBinary) -> EnforcementEntry:
    """Whose kernel answers the payload, and whether that is what was asked for."""
    # A name, or the last part of a path.
    first = (wanted.names or ("auto",))[0].rpartition("/")[2]
    own = has_own_kernel(runtime)
    requested = "own" if own or first in ("strongest", "runsc") else "shared"
    if own:
        by = f"gVisor ({runtime.platform})" if runtime.platform else "gVisor"
        how = f"{by}: system calls are answered in user space"
        if runtime.passed_over:
            how += f"; not {runtime.passed_over}"
    else:
        how = "the host's kernel, through a seccomp filter"
    return EnforcementEntry(
        requested=requested,
        actual="own" if own else "shared",
        state=EnforcementState.UNSUPPORTED
        if requested == "own" and not own
        else EnforcementState.ENFORCED,
        how=how,
    )
