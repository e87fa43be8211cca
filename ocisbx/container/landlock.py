"""Landlock, the layer inside the mounts: where the payload may write, and what of it holds.

The init sets it (ocisbx-init(7)). It is a wish of the isolation level, never a demand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ocisbx.container.model import Confinement, EnforcementEntry
from ocisbx.container.paths import is_below
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.container.files import Files
    from ocisbx.presets import Level

# The devices and the files of one's own processes (comm, oom_score_adj); what else of /proc can be
# written the mounts decide.
ALWAYS_WRITABLE: Final = ("/dev", "/proc")

# landlock(7): under ABI 1 (Linux 5.13) every rename and link between directories fails.
FIRST_ABI: Final = 2
# The ABI from which on a kernel holds each part, and that kernel.
PARTS: Final = (
    (3, "6.2", "truncating by path"),
    (5, "6.10", "ioctl on devices"),
    (6, "6.12", "abstract sockets and signals across the sandbox's edge"),
)

CALLS: Final = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
PASSING: Final = frozenset({"SCMP_ACT_ALLOW", "SCMP_ACT_LOG"})


def confine_writing(
    confinement: Confinement, files: Files, abi: int | None, level: Level
) -> tuple[Confinement, EnforcementEntry]:
    """The confinement with the paths beneath which the payload may write, and what is declared;
    `abi` as `RuntimeBinary.landlock_abi`."""
    if not level.landlock:
        entry = _entry(
            requested=False, actual=False, how="the isolation level leaves writing to the mounts"
        )
        return confinement, entry
    obstacle = _obstacle(confinement, abi)
    if obstacle:
        return confinement, _entry(
            requested=True, actual=False, state=EnforcementState.UNSUPPORTED, how=obstacle
        )
    confined = confinement.model_copy(update={"writable_paths": writable_paths(files)})
    return confined, _declared(abi)


def writable_paths(files: Files) -> tuple[str, ...]:
    """Every place that the mounts leave writable, without those that lie below another: a rule
    covers what is mounted below it, too, later as well."""
    if not files.root.read_only:
        return ("/",)
    found = {*ALWAYS_WRITABLE, *(tmpfs.target for tmpfs in files.tmpfs), *files.later}
    found.update(bind.target for bind in files.binds if not bind.read_only)
    outermost = [path for path in found if not _is_inside(path, found)]
    return tuple(sorted(outermost, key=lambda path: path.split("/")))


def _is_inside(path: str, others: Iterable[str]) -> bool:
    return any(other != path and is_below(path, other) for other in others)


def _obstacle(confinement: Confinement, abi: int | None) -> str:
    """Why it cannot be set, or nothing."""
    if not confinement.no_new_privileges:
        return "Landlock needs no_new_privileges, which is off"
    if "CAP_SYS_ADMIN" in confinement.capabilities:
        return "Landlock forbids every mount, and CAP_SYS_ADMIN was given"
    if not _passes(confinement.seccomp):
        return "the seccomp profile that was given does not allow Landlock's calls"
    if abi == 0:
        return "the kernel that the payload sees has no Landlock (Linux 5.19 and later can)"
    if abi is not None and abi < FIRST_ABI:
        return f"the kernel's Landlock is ABI {abi}, which forbids renames between directories"
    return ""


def _passes(profile: str) -> bool:
    """Whether a seccomp profile lets Landlock's calls through. What is no profile is refused by
    those who compile it."""
    if profile in ("default", "none"):
        return True
    try:
        document = json.loads(profile)
        default, rules = document["defaultAction"], document.get("syscalls", ())
        actions = [
            {rule["action"] for rule in rules if call in rule.get("names", rule.get("name"))}
            or {default}
            for call in CALLS
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    return all(found <= PASSING for found in actions)


def _declared(abi: int | None) -> EnforcementEntry:
    if abi is None:
        return _entry(
            requested=True,
            actual=None,
            state=EnforcementState.UNSUPPORTED,
            how="the runtime was not asked for the kernel's Landlock; the init sets what is there",
        )
    how = f"Landlock ABI {abi}, set by the init: writing beneath the writable mounts only"
    open_parts = [f"{part} (Linux {kernel})" for since, kernel, part in PARTS if abi < since]
    if not open_parts:
        return _entry(
            requested=True, actual=True, how=f"{how}; no signals and abstract sockets to outside"
        )
    return _entry(
        requested=True,
        actual=True,
        state=EnforcementState.PARTIAL,
        how=f"{how}; not covered: {', '.join(open_parts)}",
    )


def _entry(
    *,
    requested: bool,
    actual: bool | None,
    how: str,
    state: EnforcementState = EnforcementState.ENFORCED,
) -> EnforcementEntry:
    return EnforcementEntry(requested=requested, actual=actual, state=state, how=how)
