"""Findings about gVisor: what runsc asks of a host, and whether anything gives an own kernel here.

Sources: gVisor's g3doc (user_guide/install.md, architecture_guide/platforms.md), its
runsc/hostsettings and runsc/gvisorbinaries; its issues 9006, 10495 and 11091 (yama).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocisbx.container.select import has_own_kernel, show_runtime
from ocisbx.doctor.finding import Finding, Severity
from ocisbx.doctor.install import install, manager, sudo
from ocisbx.quirks import UNTOLD_VERSION, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.doctor.evidence import Evidence
    from ocisbx.host import RuntimeBinary

RUNSC = "runsc"
# From this release on parts of runsc are programs beside it.
SIDECARS_SINCE = (20260831,)
SIDECAR = "gvisor-bin/gvisor_sentry"

BUILD_RUNSC = "tools/install-runtimes runsc  # in a clone of ocisbx"
INSTALL_GUIDE = "# gVisor's own packages: https://gvisor.dev/docs/user_guide/install/"


def missing_sidecar(runtime: RuntimeBinary) -> str:
    """The path of the program that a release of runsc looks for and that is not there.

    Empty for what is no release (a runsc of `go install` is one program) or an older one.
    """
    released = runtime.name == RUNSC and runtime.version.startswith("release-")
    if not released or parse_version(runtime.version) < SIDECARS_SINCE:
        return ""
    path = os.path.join(os.path.dirname(os.path.realpath(runtime.path)), SIDECAR)
    return "" if os.access(path, os.X_OK) else path


@dataclass(frozen=True, slots=True)
class Need:
    """Something of the host that runsc needs, and how it shows that it is not so."""

    name: str
    unmet: Callable[[Evidence], bool]
    evidence: str
    consequence: str
    remedy: str


NEEDS: tuple[Need, ...] = (
    Need(
        "gvisor-kernel",
        lambda seen: not seen.host.kernel_at_least(5, 6),
        "Linux {kernel} is older than 5.6",
        "gVisor asks for 5.6 or newer",
        "uname -r  # boot a newer kernel",
    ),
    Need(
        "gvisor-namespaces",
        lambda seen: seen.host.max_user_namespaces == 1,
        "user.max_user_namespaces is 1",
        "gVisor makes two user namespaces for each container, and refuses to start",
        "echo user.max_user_namespaces=16384 | {sudo}tee /etc/sysctl.d/90-ocisbx.conf\n"
        "{sudo}sysctl --system",
    ),
)


def check_gvisor(seen: Evidence) -> Iterator[Finding]:
    """What keeps a runsc that is here from working, or from being judged."""
    runtimes = [trial.runtime for trial in seen.trials if trial.runtime.name == RUNSC]
    words = {"kernel": seen.host.kernel, "sudo": sudo(seen.host.uid)}
    for need in NEEDS if runtimes else ():
        if need.unmet(seen):
            yield Finding(
                name=need.name,
                severity=Severity.INFORMS,
                evidence=need.evidence.format_map(words),
                consequence=need.consequence,
                remedy=need.remedy.format_map(words),
            )
    for runtime in runtimes:
        yield from _untold(runtime)
        yield from _platform(runtime)
        yield from _sidecar(runtime, seen.sidecars.get(runtime.path, ""))


def _untold(runtime: RuntimeBinary) -> Iterator[Finding]:
    if runtime.version == UNTOLD_VERSION:
        yield Finding(
            name="runtime-version-untold",
            severity=Severity.INFORMS,
            evidence=f"{runtime.path} --version says {runtime.version}",
            consequence="whether it has known holes cannot be told; it is driven as a new one",
            remedy=BUILD_RUNSC,
        )


def _platform(runtime: RuntimeBinary) -> Iterator[Finding]:
    if runtime.passed_over and not runtime.trouble:
        yield Finding(
            name="platform-passed-over",
            severity=Severity.INFORMS,
            evidence=f"{show_runtime(runtime)}: {runtime.passed_over}",
            consequence=f"it runs on {runtime.platform}, which gVisor no longer supports and "
            "means to remove",
            remedy="" if parse_version(runtime.version) >= SIDECARS_SINCE else BUILD_RUNSC,
        )


def _sidecar(runtime: RuntimeBinary, missing: str) -> Iterator[Finding]:
    if missing:
        yield Finding(
            name="gvisor-sidecar",
            severity=Severity.INFORMS,
            evidence=f"{missing}, which {show_runtime(runtime)} looks for, is not there",
            consequence="it starts slowly from a copy inside itself, and from the releases after "
            "2026-10 on not at all",
            remedy=f"{INSTALL_GUIDE}\n{BUILD_RUNSC}",
        )


def check_own_kernel(seen: Evidence) -> Iterator[Finding]:
    """Whether a payload can have a kernel of its own, as the preset locked-down wants it."""
    own = [trial for trial in seen.trials if has_own_kernel(trial.runtime)]
    if not seen.works or any(trial.works for trial in own):
        return
    tried = "; ".join(f"{show_runtime(trial.runtime)}: {trial.words}" for trial in own)
    lines = [INSTALL_GUIDE, BUILD_RUNSC]
    if not own and manager(seen.system.distributions) == "apt":
        lines.insert(0, install(RUNSC, seen.system.distributions, seen.host.uid))
    yield Finding(
        name="own-kernel",
        severity=Severity.INFORMS,
        evidence=tried or f"no {RUNSC} is on PATH or in the system's directories",
        consequence="every payload runs on the host's kernel; the preset locked-down refuses "
        "that, unless --allow-degraded kernel or --runtime NAME says otherwise",
        remedy="\n".join(lines),
    )
