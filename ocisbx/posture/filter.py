"""What a seccomp filter in config.json answers to the calls that matter."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Filter = Mapping[str, Any]

ALLOW = frozenset({"SCMP_ACT_ALLOW", "SCMP_ACT_LOG"})
ERRNO = "SCMP_ACT_ERRNO"
# seccomp(2): without errnoRet the call fails with this.
DEFAULT_ERRNO = errno.EPERM

# Ways into the kernel, or out of what a sandbox is made of, that no ordinary program needs
# (linux.md of the project's reference, part 4): what the calls do, and their names.
RISKY: dict[str, tuple[str, ...]] = {
    "mounting file systems": (
        "mount", "umount2", "pivot_root", "fsopen", "open_tree", "move_mount", "mount_setattr",
    ),
    "making and entering namespaces": ("unshare", "setns"),
    "programs inside the kernel": ("bpf", "perf_event_open"),
    "loading kernel modules": ("init_module", "finit_module"),
    "starting another kernel": ("kexec_load", "kexec_file_load", "reboot"),
    "keyrings, which no namespace parts": ("keyctl", "add_key", "request_key"),
    "io_uring, which no filter sees into": ("io_uring_setup",),
    "userfaultfd": ("userfaultfd",),
    "opening files by handle, past their directories": ("open_by_handle_at",),
    "setting clocks": ("clock_settime", "settimeofday"),
}  # fmt: skip


def answer(profile: Filter, name: str) -> str:
    """`allowed`, `by its arguments`, `EPERM` and the like, or `the end of the process`."""
    rules = [rule for rule in profile.get("syscalls") or () if name in rule["names"]]
    plain = [rule for rule in rules if not rule.get("args")]
    if rules and not plain:
        return "by its arguments"
    rule = plain[0] if plain else None
    action = profile["defaultAction"] if rule is None else rule["action"]
    number = profile.get("defaultErrnoRet") if rule is None else rule.get("errnoRet")
    if action in ALLOW:
        return "allowed"
    if action == ERRNO:
        return errno.errorcode.get(DEFAULT_ERRNO if number is None else number, str(number))
    return "the end of the process"


def allows_unknown(profile: Filter) -> bool:
    """Whether calls that no rule names are allowed."""
    return profile["defaultAction"] in ALLOW


def risky_calls(profile: Filter) -> list[str]:
    """Those of RISKY that are allowed whatever their arguments."""
    return [
        name for names in RISKY.values() for name in names if answer(profile, name) == "allowed"
    ]


def allowed_count(profile: Filter) -> int:
    """How many calls are allowed, at least for some arguments."""
    rules = profile.get("syscalls") or ()
    return len({name for rule in rules if rule["action"] in ALLOW for name in rule["names"]})


def by_answer(profile: Filter, names: Iterable[str]) -> dict[str, list[str]]:
    """The calls among `names` that fail, by how they do."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(answer(profile, name), []).append(name)
    return {
        word: calls for word, calls in found.items() if word not in ("allowed", "by its arguments")
    }


def explain_errno(name: str) -> str:
    """`EPERM` -> `EPERM (Operation not permitted)`."""
    number = getattr(errno, name, None)
    return name if number is None else f"{name} ({os.strerror(number)})"
