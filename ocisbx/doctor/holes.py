"""Known holes of runtimes by version, each with whether our way of using the runtime reaches it.

Sources: the CVE records and the projects' security advisories and change logs. A version tells
less than it seems: distributions close holes without changing it, so what a package's changelog
names as closed is believed. A hole excludes no runtime by itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocisbx.doctor.finding import Finding, Severity
from ocisbx.doctor.install import install
from ocisbx.probe.runtimes import source_tree_directory
from ocisbx.quirks import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.doctor.evidence import Evidence
    from ocisbx.host import RuntimeBinary

FRESH_PROC = "the container's /proc and /dev are its own, and nothing may be mounted over them"
REAL_ROOT = "the root is made by ocisbx, or checked: its dev, proc and sys are real directories"
NO_CRIU = "ocisbx never checkpoints or restores"
NO_CAPS = "every inheritable set is empty, and ocisbx does not use `exec`"
NO_KRUN = "ocisbx never uses krun"
NESTED = "a volume inside a writable one, while another sandbox writes there, as you"


@dataclass(frozen=True, slots=True)
class Hole:
    """`fixed`: the first sound version of each branch. `why`: what reaches it, or keeps it away."""

    runtime: str
    id: str
    fixed: tuple[str, ...]
    what: str
    why: str
    reached: bool = False
    since: str = "0"
    # Reached only where the caller owns the runtime's file.
    own_only: bool = False

    @property
    def title(self) -> str:
        return f"CVE-{self.id}" if self.id[0].isdigit() else self.id


NOVEMBER_2025 = ("1.2.8", "1.3.3", "1.4.0")
HOLES: tuple[Hole, ...] = (
    Hole("runc", "2019-5736", ("1.0.0",), "the payload overwrites the runtime's file",
         "a runtime whose file is yours, as this one is", reached=True, own_only=True),
    Hole("runc", "2019-19921", ("1.0.0",), "a volume redirects /proc", FRESH_PROC),
    Hole("runc", "2021-30465", ("1.0.0",), "a mount lands outside the root", NESTED, reached=True),
    Hole("runc", "2021-43784", ("1.0.3",), "a forged config.json adds namespaces",
         "config.json is written by ocisbx"),
    Hole("runc", "2022-29162", ("1.1.2",), "inheritable capabilities", NO_CAPS),
    Hole("runc", "2023-25809", ("1.1.5",), "/sys/fs/cgroup is writable inside",
         "no /sys is mounted, and the cgroup namespace is private"),
    Hole("runc", "2023-27561", ("1.1.5",), "a symlink for /proc redirects mounts", REAL_ROOT),
    Hole("runc", "2023-28642", ("1.1.5",), "a symlink for /proc evades labels", REAL_ROOT),
    Hole("runc", "2024-21626", ("1.1.12", "1.2.0"), "a leaked directory becomes the cwd",
         "the working directory is never below /proc"),
    Hole("runc", "2024-45310", ("1.1.14", "1.2.0"), "empty files are made on the host", NESTED,
         reached=True),
    Hole("runc", "2025-31133", NOVEMBER_2025, "masked paths give the host's /proc", FRESH_PROC),
    Hole("runc", "2025-52565", NOVEMBER_2025, "/dev/console gives a file of the host", FRESH_PROC),
    Hole("runc", "2025-52881", NOVEMBER_2025, "writes to /proc are redirected", FRESH_PROC),
    Hole("runc", "issue 5208", ("1.3.6", "1.4.2", "1.5.0"), "short programs hang",
         "any short command", reached=True, since="1.3.0"),
    Hole("runc", "2026-41579", ("1.3.6", "1.4.3", "1.5.0"), "a symlink for /dev in the root",
         REAL_ROOT),
    Hole("runc", "2026-119101", ("1.3.7", "1.4.4", "1.5.3"), "restore mounts any directory",
         NO_CRIU),
    Hole("crun", "2019-18837", ("0.10.5",), "a symlink in the root redirects mounts", REAL_ROOT),
    Hole("crun", "2022-27650", ("1.4.4",), "inheritable capabilities", NO_CAPS),
    Hole("crun", "2025-24965", ("1.20",), "krun writes outside its root", NO_KRUN),
    Hole("crun", "2026-30892", ("1.27",), "exec runs as root", "ocisbx does not use `exec`",
         since="1.19"),
    Hole("crun", "2026-47766", ("1.28",), "a symlink for /dev in the root", REAL_ROOT),
    Hole("crun", "2026-88264", ("1.30",), "/dev/console becomes a file of the host", REAL_ROOT),
    Hole("crun", "2026-88265", ("1.30",), "/dev/null becomes a file of the host", REAL_ROOT),
    Hole("crun", "2026-115520", ("1.31",), "keys of CRIU", NO_CRIU),
    Hole("crun", "2026-115521", ("1.31",), "read-only mounts stay writable", FRESH_PROC),
    Hole("youki", "2025-62161", ("0.5.7",), "masked paths give the host's /proc", FRESH_PROC),
    Hole("youki", "2025-62596", ("0.5.7",), "writes to /proc are redirected", FRESH_PROC),
    Hole("runsc", "2025-2713", ("20250319",), "files are opened with more rights than the payload",
         "runsc has the caller's rights only, and shows what the payload may see"),
    Hole("runsc", "2026-96812", ("20260831",), "a character device of the host gives its root",
         "no device of the host is shown inside"),
)  # fmt: skip

PRERELEASE = re.compile(r"[-~.](rc|dev|alpha|beta)")
SOUND_VERSIONS: dict[str, str] = {
    "runc": "1.3.7, 1.4.4, 1.5.3",
    "crun": "1.31",
    "youki": "0.7.0",
    "runsc": "release-20260831.0",
}


def open_holes(
    runtime: RuntimeBinary, closed: frozenset[str] = frozenset(), *, owned: bool = False
) -> list[Hole]:
    """The holes that a runtime's version has, without those in `closed` ("2024-21626").

    `owned`: the file belongs to the caller, so to whom the payload is outside.
    """
    return [
        hole
        for hole in HOLES
        if hole.runtime == runtime.name
        and hole.id not in closed
        and (owned or not hole.own_only)
        and parse_version(runtime.version) >= parse_version(hole.since)
        and not is_fixed(runtime.version, hole.fixed)
    ]


def is_fixed(version: str, fixed: tuple[str, ...]) -> bool:
    """Whether `version` is at or above the sound one of its branch (major.minor).

    A branch that is not named is sound when it is newer than all that are. A pre-release counts as
    older than its release.
    """
    own = _rank(version)
    floors = sorted(_rank(text) for text in fixed)
    for floor in floors:
        if floor[:2] == own[:2]:
            return own >= floor
    return own > floors[-1]


def _rank(version: str) -> tuple[int, int, int, bool]:
    """(1, 5, 0, False) for 1.5.0-rc.1 and (1, 5, 0, True) for 1.5.0: the former is the lesser."""
    major, minor, patch = (*parse_version(version), 0, 0, 0)[:3]
    return major, minor, patch, PRERELEASE.search(version) is None


def check_holes(seen: Evidence) -> Iterator[Finding]:
    """At most two findings a runtime: what our use of it can reach, and what it cannot."""
    for trial in seen.trials:
        runtime = trial.runtime
        holes = open_holes(
            runtime,
            seen.closed.get(runtime.path, frozenset()),
            owned=runtime.path in seen.own_runtimes,
        )
        for reached in (True, False):
            chosen = [hole for hole in holes if hole.reached is reached]
            if chosen:
                yield _finding(seen, runtime, chosen, reached=reached)


def _finding(
    seen: Evidence, runtime: RuntimeBinary, holes: list[Hole], *, reached: bool
) -> Finding:
    number = "a known hole" if len(holes) == 1 else f"{len(holes)} known holes"
    number += " within reach" if reached else " out of reach"
    reasons = dict.fromkeys(hole.why for hole in holes)
    told = "; ".join(_told(why, [hole for hole in holes if hole.why == why]) for why in reasons)
    return Finding(
        name="known-holes" if reached else "known-holes-out-of-reach",
        severity=Severity.WEAKENS if reached else Severity.INFORMS,
        evidence=f"{runtime.path} is {runtime.name} {runtime.version}, which by its version has "
        f"{number} (all are closed in: {SOUND_VERSIONS[runtime.name]})",
        consequence=told,
        remedy=_update(seen, runtime) if reached else "",
    )


def _told(why: str, holes: list[Hole]) -> str:
    names = ", ".join(f"{hole.title} ({hole.what})" for hole in holes)
    return f"{names}: {'it takes ' if holes[0].reached else ''}{why}"


def _update(seen: Evidence, runtime: RuntimeBinary) -> str:
    ours = f"tools/install-runtimes {runtime.name}  # in a clone of ocisbx"
    if os.path.dirname(runtime.path) == source_tree_directory():
        return ours
    return f"{install(runtime.name, seen.system.distributions, seen.host.uid)}\n{ours}"
