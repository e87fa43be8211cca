"""examine(): look at this host once, then judge what was seen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ocisbx import init
from ocisbx.backends.trial import Trier
from ocisbx.config import SandboxConfig
from ocisbx.container.merge import merge_preset
from ocisbx.doctor.cgroups import check_limits
from ocisbx.doctor.evidence import Evidence
from ocisbx.doctor.finding import Finding, in_order
from ocisbx.doctor.holes import check_holes
from ocisbx.doctor.host import (
    check_directories,
    check_facts,
    check_ids,
    check_programs,
    check_root,
    check_user_namespaces,
)
from ocisbx.doctor.runtimes import check_profile, check_replaceable, check_runtimes
from ocisbx.doctor.strangers import strangers
from ocisbx.errors import RuntimeMissing
from ocisbx.places import find_places
from ocisbx.probe.gather import gather
from ocisbx.probe.ownership import owned_by, writable_by_others
from ocisbx.probe.packages import closed_holes
from ocisbx.probe.system import no_exec, read_system, try_user_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ocisbx.host import Host

CHECKS: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    check_runtimes,
    check_user_namespaces,
    check_programs,
    check_limits,
    check_root,
    check_profile,
    check_replaceable,
    check_holes,
    check_ids,
    check_directories,
    check_facts,
)


def examine() -> list[Finding]:
    """Everything that there is to say about sandboxes on this host, the gravest first.

    Starts one container with each runtime found (5 s at most for each) and leaves nothing behind.
    """
    return judge(collect())


def judge(seen: Evidence) -> list[Finding]:
    """Pure: the findings of what was seen."""
    return in_order([finding for check in CHECKS for finding in check(seen)])


def collect() -> Evidence:
    """Look at the host and try its runtimes."""
    found = look()
    trier = Trier(again=True)
    trials = tuple(trier.try_runtime(runtime) for runtime in found.runtimes)
    runtimes = tuple(trial.runtime for trial in trials)
    host = found.model_copy(update={"runtimes": runtimes})
    replaceable = {
        runtime.path: tuple(writable_by_others(runtime.path, host.uid, host.gid))
        for runtime in runtimes
    }
    programs = program_trouble()
    return Evidence(
        host=host,
        system=read_system(host.cgroups.own),
        trials=trials,
        enforcement={
            trial.runtime.path: trier.plan(trial.runtime, trial.runtime.platform).enforcement
            for trial in trials
            if trial.works
        },
        strangers=strangers(host),
        replaceable={path: places for path, places in replaceable.items() if places},
        closed={r.path: closed_holes(r.name, r.path, r.version) for r in runtimes},
        own_runtimes=frozenset(r.path for r in runtimes if owned_by(r.path, host.uid)),
        programs=programs,
        user_namespace="" if programs else try_user_namespace(),
    )


def look() -> Host:
    """The Host record of a sandbox without a workspace: the current directory does not matter."""
    return gather(merge_preset(SandboxConfig(workspace="none")))


def program_trouble() -> str:
    """What keeps the init and the cell from being executed; empty: nothing."""
    for place in (os.path.dirname(init.__file__), find_places().runtime):
        if no_exec(place):
            return f"{place} lies on a file system that is mounted noexec"
    try:
        init.cell_path()
        init.init_path()
    except RuntimeMissing as error:
        return str(error)
    return ""
