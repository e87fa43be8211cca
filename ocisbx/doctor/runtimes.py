"""Findings about runtimes: none, one that fails, one that works, one that cannot be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ocisbx.doctor.finding import Finding, Severity
from ocisbx.doctor.install import install, sudo
from ocisbx.quirks import AUTO_ORDER, KNOWN_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ocisbx.backends.trial import Trial
    from ocisbx.doctor.evidence import Evidence

BUILD: dict[str, str] = {
    "runc": "CGO_ENABLED=1 go install -tags seccomp github.com/opencontainers/runc@latest",
    "youki": "cargo install --locked youki --features systemd,v1,v2,seccomp",
}
# Words of runtimes, and what cures them; the first that is found counts.
CURES: tuple[tuple[str, str], ...] = (
    ("config provided but seccomp not supported", BUILD["runc"]),
    ("cgroup feature is required", BUILD["youki"]),
)  # fmt: skip

CONFINEMENT = ("seccomp", "no_new_privs", "cap_eff", "cap_prm", "cap_inh", "cap_bnd", "cap_amb")
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
    for trial in seen.trials:
        yield _works(seen, trial) if trial.works else _fails(seen, trial)
    if seen.works and not seen.chosen:
        yield _nothing_for_auto(seen)


def _works(seen: Evidence, trial: Trial) -> Finding:
    runtime = trial.runtime
    platform = f" on {runtime.platform}" if runtime.platform else ""
    taken = [
        f"`--runtime {name}`"
        for name, path in (("auto", seen.chosen), ("strongest", seen.strongest))
        if path == runtime.path
    ]
    return Finding(
        name="runtime-works",
        severity=Severity.INFORMS,
        evidence=f"{runtime.path} ({runtime.name} {runtime.version}) ran a container with the "
        f"default profile{platform} in {trial.wall_s * 1000:.0f} ms",
        consequence=f"it is what {' and '.join(taken)} chooses"
        if taken
        else f"it can be chosen: --runtime {runtime.path}",
    )


def _fails(seen: Evidence, trial: Trial) -> Finding:
    runtime = trial.runtime
    passed = f"{runtime.passed_over}; {runtime.platform}: " if runtime.passed_over else ""
    cure = next((cure for words, cure in CURES if words in trial.words), "")
    return Finding(
        name="runtime-fails",
        severity=Severity.INFORMS if seen.works else Severity.BLOCKS,
        evidence=f"{runtime.path} ({runtime.name} {runtime.version}): {passed}{trial.words}",
        consequence="it is never chosen; another one works here"
        if seen.works
        else "no other runtime works here either",
        remedy=cure or trial.remedy,
    )


def _nothing_for_auto(seen: Evidence) -> Finding:
    sound = next(trial.runtime for trial in seen.trials if trial.works)
    return Finding(
        name="auto-finds-none",
        severity=Severity.WEAKENS,
        evidence=f"none of {', '.join(AUTO_ORDER)} works here with the default profile; "
        f"{sound.path} does run containers",
        consequence="`ocisbx run` is refused unless it is told which runtime to use, and what may "
        "be missing",
        remedy=f"{install('crun', seen.system.distributions, seen.host.uid)}\n"
        f"ocisbx run --runtime {sound.path} -- COMMAND",
    )


def shown(inside: Mapping[str, Any]) -> str:
    """The fields of the self-test that tell how a process is confined."""
    rows = [f"{name}: {value}" for name, value in inside.items() if name in CONFINEMENT]
    return ", ".join(rows) or "nothing"


def check_profile(seen: Evidence) -> Iterator[Finding]:
    """A runtime that says yes and does not do it: what the payload saw of itself."""
    for trial in seen.trials:
        runtime = trial.runtime
        for name in runtime.ignores:
            yield Finding(
                name="profile-not-held",
                severity=Severity.INFORMS if seen.chosen else Severity.WEAKENS,
                evidence=f"{runtime.path} ({runtime.name} {runtime.version}): the init's "
                f"self-test saw {shown(trial.inside)}",
                consequence=f"{IGNORED[name]}; what asks for {name} is not run on it",
                remedy=BUILD.get(runtime.name)
                or install(runtime.name, seen.system.distributions, seen.host.uid),
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
