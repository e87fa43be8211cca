"""Findings about runtimes: none, one that fails, one that works, one that cannot be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.doctor.finding import Finding, Severity
from ocisbx.doctor.install import install, sudo
from ocisbx.quirks import KNOWN_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ocisbx.backends.trial import Trial
    from ocisbx.doctor.evidence import Evidence

# Words of runtimes, and what cures them; the first that is found counts.
CURES: tuple[tuple[str, str], ...] = (
    ("config provided but seccomp not supported",
     "CGO_ENABLED=1 go install -tags seccomp github.com/opencontainers/runc@latest"),
    ("support for managing cgroups is not available",
     "cargo install --locked youki --features systemd,v1,v2,seccomp"),
    ("cgroup feature is required",
     "cargo install --locked youki --features systemd,v1,v2,seccomp"),
)  # fmt: skip

CONFINEMENT_ROWS = ("Seccomp", "NoNewPrivs", "CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")
# What it means when a runtime says yes and does not do it, by name of `enforcement`.
IGNORED: dict[str, str] = {
    "seccomp": "no seccomp filter: every system call of the kernel is open to the payload",
    "no_new_privileges": "no_new_privs is not set: setuid programs gain rights inside",
    "capabilities": "the payload has capabilities, or may gain them",
}


def check_runtimes(seen: Evidence) -> Iterator[Finding]:
    """What was found, and how each did when it was tried."""
    for path, words in seen.strangers:
        yield Finding(
            name="runtime-unknown",
            severity=Severity.INFORMS,
            evidence=f"{path}: {words}",
            consequence="it is never chosen",
        )
    if not seen.trials:
        yield Finding(
            name="runtime-missing",
            severity=Severity.BLOCKS,
            evidence=f"none of {', '.join(KNOWN_NAMES)} is on PATH or in the system's directories",
            consequence="nothing can start a container",
            remedy=install("crun", seen.system.distributions, seen.host.uid),
        )
        return
    chosen = seen.chosen
    for trial in seen.trials:
        if trial.works:
            yield _works(trial, chosen=trial.runtime.path == chosen)
        else:
            yield _fails(seen, trial, chosen=trial.runtime.path == chosen)


def _works(trial: Trial, *, chosen: bool) -> Finding:
    runtime = trial.runtime
    return Finding(
        name="runtime-works",
        severity=Severity.INFORMS,
        evidence=f"{runtime.path} ({runtime.name} {runtime.version}) ran a container with the "
        f"default profile in {trial.wall_s * 1000:.0f} ms",
        consequence="it is what `--runtime auto` chooses"
        if chosen
        else f"it can be chosen: --runtime {runtime.path}",
    )


def _fails(seen: Evidence, trial: Trial, *, chosen: bool) -> Finding:
    runtime = trial.runtime
    other = next((other.runtime.path for other in seen.trials if other.works), None)
    cure = next((cure for words, cure in CURES if words in trial.words), "")
    instead = f"ocisbx run --runtime {other} -- COMMAND" if other and chosen else ""
    if other is None:
        severity, consequence = Severity.BLOCKS, "no other runtime works here either"
    elif chosen:
        severity = Severity.WEAKENS
        consequence = "`--runtime auto` chooses it and fails; another one works here"
    else:
        severity = Severity.INFORMS
        consequence = "it cannot be used here; `--runtime auto` does not choose it"
    return Finding(
        name="runtime-fails",
        severity=severity,
        evidence=f"{runtime.path} ({runtime.name} {runtime.version}): {trial.words}",
        consequence=consequence,
        remedy=cure or trial.remedy or instead,
    )


def shown(inside: Mapping[str, str]) -> str:
    """The rows of proc_pid_status(5) that tell how a process is confined."""
    rows = [f"{name}: {value}" for name, value in inside.items() if name in CONFINEMENT_ROWS]
    return ", ".join(rows) or "nothing"


def check_profile(seen: Evidence) -> Iterator[Finding]:
    """A runtime that says yes and does not do it: what the payload saw of itself."""
    for trial in seen.trials:
        for name in trial.runtime.ignores:
            yield Finding(
                name="profile-not-held",
                severity=Severity.WEAKENS,
                evidence=f"{trial.runtime.path}: the init's self-test saw {shown(trial.inside)}",
                consequence=f"{IGNORED[name]}; it is not used for what asks for it",
                remedy=install("crun", seen.system.distributions, seen.host.uid),
            )


def check_replaceable(seen: Evidence) -> Iterator[Finding]:
    """A runtime that somebody else can exchange."""
    root = sudo(seen.host.uid)
    for path, places in seen.replaceable.items():
        yield Finding(
            name="runtime-replaceable",
            severity=Severity.WEAKENS,
            evidence="; ".join(places),
            consequence=f"whoever writes there decides what runs as you instead of {path}",
            remedy="\n".join(
                f"{root}chown root:root {place} && {root}chmod go-w {place}"
                for place in (text.split(" (", 1)[0] for text in places)
            ),
        )
