"""examine(): look at this host once, then judge what was seen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ocisbx import init
from ocisbx.backends.trial import Trier
from ocisbx.cgroup.place import settle
from ocisbx.config import SandboxConfig
from ocisbx.container.merge import merge_preset
from ocisbx.container.select import show_runtime
from ocisbx.doctor.cgroups import check_hybrid, check_limits
from ocisbx.doctor.evidence import Evidence
from ocisbx.doctor.finding import Finding, in_order
from ocisbx.doctor.gvisor import check_gvisor, check_own_kernel, missing_sidecar
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
from ocisbx.errors import CgroupError, RuntimeMissing
from ocisbx.places import find_places
from ocisbx.probe import cgroups as probe
from ocisbx.probe.cgroups import doubted
from ocisbx.probe.gather import gather
from ocisbx.probe.ownership import owned_by, writable_by_others
from ocisbx.probe.packages import closed_holes
from ocisbx.probe.system import no_exec, read_system, try_user_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ocisbx.backends.trial import Trial
    from ocisbx.host import Host

    Tell = Callable[[str], None]

CHECKS: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    check_runtimes,
    check_gvisor,
    check_own_kernel,
    check_user_namespaces,
    check_programs,
    check_limits,
    check_hybrid,
    check_root,
    check_profile,
    check_replaceable,
    check_holes,
    check_ids,
    check_directories,
    check_facts,
)


def examine(tell: Tell = lambda _: None) -> list[Finding]:
    """Everything that there is to say about sandboxes on this host, the gravest first.

    Starts one container with each runtime found (5 s at most for each) and leaves nothing behind.
    `tell` hears what is being done.
    """
    return judge(collect(tell))


def judge(seen: Evidence) -> list[Finding]:
    """Pure: the findings of what was seen."""
    return in_order([finding for check in CHECKS for finding in check(seen)])


def collect(tell: Tell = lambda _: None) -> Evidence:
    """Look at the host and try its runtimes."""
    trier = Trier(again=True)
    host, trials = try_all(trier, tell)
    runtimes = host.runtimes
    replaceable = {r.path: tuple(writable_by_others(r.path, host.uid, host.gid)) for r in runtimes}
    programs = program_trouble()
    return Evidence(
        host=host,
        system=read_system(),
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
        real_paths={r.path: os.path.realpath(r.path) for r in runtimes},
        sidecars={r.path: missing_sidecar(r) for r in runtimes},
        programs=programs,
        user_namespace="" if programs else try_user_namespace(),
    )


def try_all(trier: Trier, tell: Tell) -> tuple[Host, tuple[Trial, ...]]:
    """How each runtime that is here does, and the Host record with what came of it."""
    tell("looking for runtimes")
    found = look()
    trouble = place_trouble()
    trials = []
    with doubted(trouble):
        for runtime in found.runtimes:
            tell(f"trying {show_runtime(runtime)}")
            trials.append(trier.try_runtime(runtime))
    changes: dict[str, object] = {"runtimes": tuple(trial.runtime for trial in trials)}
    if trouble:
        place = {"way": "none", "parent": "", "controllers": (), "trouble": trouble}
        changes["cgroups"] = found.cgroups.model_copy(update=place)
    return found.model_copy(update=changes), tuple(trials)


def place_trouble() -> str:
    """Why no cgroup can be made where it looks as if one could; empty: it can, or looks not so.

    A scope is asked for, and controllers are enabled, as for any sandbox.
    """
    site = probe.look()
    try:
        if site.way != "none":
            settle(site)
    except CgroupError as error:
        return str(error)
    return ""


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
