"""Limits that do not hold, and why: by the environment (container/scenes.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.container.scenes import NEEDED, find_scene, is_old
from ocisbx.doctor.finding import Finding, Severity
from ocisbx.quirks import find_quirks
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.doctor.evidence import Evidence


def check_limits(seen: Evidence) -> Iterator[Finding]:
    """Limits of the default preset that no working runtime holds."""
    tried = next((trial for trial in seen.trials if trial.works), None)
    if tried is None:
        return
    claimed = seen.enforcement.get(tried.runtime.path, {})
    lost = {
        name: claimed[name]
        for name in NEEDED
        if name in claimed and claimed[name].state is not EnforcementState.ENFORCED
    }
    if not lost:
        return
    scene, place = find_scene(seen.host), seen.host.cgroups
    where = f"hierarchy {place.hierarchy}, own cgroup {place.own or 'unknown'}"
    reasons = "; ".join(dict.fromkeys(entry.how for entry in lost.values()))
    yield Finding(
        name="limits-not-held",
        severity=Severity.WEAKENS,
        evidence=f"{reasons} ({where}: {scene.seen})",
        consequence=f"limits of {' and '.join(lost)} are not enforced: a payload can use up the "
        "host's. Presets go on without them; --memory, --pids-limit and --cpus are refused unless "
        "--allow-degraded names them. --timeout, --ulimit and the end of all processes hold",
        remedy=scene.remedy,
    )


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
