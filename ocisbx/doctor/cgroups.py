"""Limits that do not hold, and why: by the environment (container/scenes.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.container.scenes import NEEDED, find_scene, is_old
from ocisbx.doctor.finding import Finding, Severity
from ocisbx.probe.cgroups import CONTROLLERS
from ocisbx.quirks import find_quirks
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ocisbx.doctor.evidence import Evidence
    from ocisbx.result import Enforced


def check_limits(seen: Evidence) -> Iterator[Finding]:
    """Whether the limits of the default preset hold, on the first runtime that works."""
    tried = next((trial for trial in seen.trials if trial.works), None)
    if tried is None:
        return
    claimed = seen.enforcement.get(tried.runtime.path, {})
    lost = {
        name: claimed[name]
        for name in NEEDED
        if name in claimed and claimed[name].state is not EnforcementState.ENFORCED
    }
    yield _lost(seen, lost) if lost else _held(seen)


def _lost(seen: Evidence, lost: Mapping[str, Enforced]) -> Finding:
    scene = find_scene(seen.host)
    reasons = "; ".join(dict.fromkeys(entry.how for entry in lost.values()))
    # Who refuses a limit says the same of the environment.
    told = "" if scene.seen in reasons else f": {scene.seen}"
    return Finding(
        name="limits-not-held",
        severity=Severity.WEAKENS,
        evidence=f"{reasons} ({_place(seen)}{told})",
        consequence=f"limits of {' and '.join(lost)} are not enforced: a payload can use up the "
        "host's. Presets go on without them; --memory, --pids-limit and --cpus are refused unless "
        "--allow-degraded names them. --timeout, --ulimit and the end of all processes hold",
        remedy=scene.remedy,
    )


def _held(seen: Evidence) -> Finding:
    there = seen.host.cgroups.controllers
    missing = [name for name in CONTROLLERS if name not in there]
    lacking = f"; limits that need {', '.join(missing)} do not" if missing else ""
    return Finding(
        name="limits-held",
        severity=Severity.INFORMS,
        evidence=f"{find_scene(seen.host).seen} ({_place(seen)})",
        consequence=f"limits hold that need {', '.join(there)}{lacking}",
        remedy=find_scene(seen.host, CONTROLLERS).remedy,
    )


def _place(seen: Evidence) -> str:
    place = seen.host.cgroups
    return f"hierarchy {place.hierarchy}, own cgroup {place.own or 'unknown'}"


def check_hybrid(seen: Evidence) -> Iterator[Finding]:
    """crun on hybrid cgroups: it works through our cell, and not without."""
    refusing = [
        runtime.path
        for runtime in (trial.runtime for trial in seen.trials)
        if find_quirks(runtime.name, runtime.version).refuses_hybrid
    ]
    if is_old(seen.host) and refusing:
        yield Finding(
            name="crun-hybrid",
            severity=Severity.INFORMS,
            evidence=f"cgroup hierarchy {seen.host.cgroups.hierarchy}, to which "
            f"{', '.join(refusing)} says: cgroups in hybrid mode not supported",
            consequence="ocisbx starts it in namespaces in which cgroup v2 is mounted alone "
            "(ocisbx-cell); started by hand it fails",
        )
