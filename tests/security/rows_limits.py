"""Assertions 58, 63, 65 and 66: limits, the end of a call, and the posture that the host sees."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING

from tests.security.rows import Row
from tests.security.rows_process import CAPABILITY_SETS, NAMESPACES, postures

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.security.scene import Seen

# rlimits of the default preset (ocisbx-presets(7)).
LIMITED = {"CORE": 0, "NOFILE": 65536}


def every_posture(name: str, value: int) -> Callable[[Seen], bool]:
    """The same, read by the host, of each process of the container."""
    return lambda seen: all(int(one["status"][name][0], 16) == value for one in postures(seen))


def own_namespaces_outside(seen: Seen) -> bool:
    return all(
        one["namespaces"][name] != seen["host_namespaces"][name]
        for one in postures(seen)
        for name in (*NAMESPACES, "user")
        if one["namespaces"]
    )


def limited(name: str) -> Callable[[Seen], bool]:
    """As ocisbx-presets(7) says, or what the caller may have where that is less."""
    wanted = LIMITED[name]

    def holds(seen: Seen) -> bool:
        hard: int = seen["limits"][name][1]
        return 0 <= hard <= wanted

    return holds


def caller_has_more(name: str) -> Callable[[], bool]:
    wanted = LIMITED[name]

    def here() -> bool:
        hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
        return hard == resource.RLIM_INFINITY or hard > wanted

    return here


def in_a_cgroup() -> bool:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return any(line.split(":", 2)[2] != "/" for line in lines)


LIMITS = (
    *(
        Row(
            58,
            f"{name} is limited",
            "rlimits",
            limited(name),
            ("no rlimits",),
            here=caller_has_more(name),
        )
        for name in LIMITED
    ),
    Row(
        63,
        "the oom killer's score cannot be lowered",
        "capabilities",
        lambda seen: (
            seen["oom_score"]["oom_score_adj"] >= 0 and seen["oom_score"]["lower"] == "EACCES"
        ),
        kernel=True,
    ),
    Row(
        63,
        "its cgroup is the root of what it sees",
        "cgroup namespace",
        lambda seen: set(seen["cgroup"]) == {"/"},
        ("no cgroup namespace",),
        here=in_a_cgroup,
    ),
    Row(
        65,
        "a daemon dies with the call",
        "pid namespace, the init, the cgroup",
        lambda seen: not seen["daemons"],
        ("no pid namespace",),
        side="host",
    ),
)

POSTURE = (
    *(
        Row(
            66,
            f"{name} is empty, seen from the host",
            "capabilities",
            every_posture(name, 0),
            ("a capability",),
            side="host",
        )
        for name in CAPABILITY_SETS
    ),
    Row(
        66,
        "no_new_privs, seen from the host",
        "prctl",
        every_posture("NoNewPrivs", 1),
        ("gains rights",),
        side="host",
    ),
    Row(
        66,
        "the filter, seen from the host",
        "seccomp",
        every_posture("Seccomp", 2),
        ("no filter",),
        side="host",
    ),
    Row(
        66,
        "namespaces of their own, seen from the host",
        "namespaces",
        own_namespaces_outside,
        ("no network namespace", "no ipc namespace", "no uts namespace", "no cgroup namespace"),
        side="host",
    ),
    Row(
        66,
        "all processes run as the caller, seen from the host",
        "user namespace",
        lambda seen: all(
            set(one["status"]["Uid"]) == {str(seen["host_uid"])} for one in postures(seen)
        ),
        ("another user",),
        side="host",
    ),
)

ROWS = (*LIMITS, *POSTURE)
