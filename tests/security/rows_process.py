"""Assertions 1 to 31 and 58 to 66: who the payload is, and what it sees of the system."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocisbx.presets import MASKED_PATHS_RESTRICTED
from tests.security.inside.files import kind_of
from tests.security.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.security.scene import Seen

# {name in /proc/PID/ns: (number, the runtime-spec's word)}.
NAMESPACES = {
    "mnt": (11, "mount"),
    "pid": (12, "pid"),
    "net": (13, "network"),
    "ipc": (14, "ipc"),
    "uts": (15, "uts"),
    "cgroup": (17, "cgroup"),
}
# rlimits of the default preset (ocisbx-presets(7)).
LIMITED = {"CORE": 0, "NOFILE": 65536}
CAPABILITY_SETS = {"CapEff": 3, "CapPrm": 4, "CapInh": 5, "CapAmb": 6, "CapBnd": 7}
REFUSED = {"EPERM", "EACCES", "ENOENT", "EROFS", "ENOSYS"}
# Of HOSTILE_ENVIRONMENT and its kin: nothing of these may be in a sandbox.
SECRETS = ("SSH_", "DBUS_", "DOCKER_", "AWS_", "GITHUB_", "XDG_", "LD_PRELOAD", "LISTEN_",
           "NOTIFY_", "OCISBX_", "_OCISBX")  # fmt: skip


def every_thread(name: str, value: int) -> Callable[[Seen], bool]:
    """Of every thread of every process, /proc/PID/task/TID/status says this."""
    return lambda seen: all(int(one[name], 16) == value for one in seen["threads"])


def every_posture(name: str, value: int) -> Callable[[Seen], bool]:
    """The same, read by the host, of each process of the container."""
    return lambda seen: all(int(one["status"][name][0], 16) == value for one in postures(seen))


def postures(seen: Seen) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = seen["postures"]
    assert len(found) >= (1 if seen["user_kernel"] else 2), "the init and the payload"
    return found


def own_namespace(name: str) -> Callable[[Seen], bool]:
    return lambda seen: seen["namespaces"][name] != seen["host_namespaces"][name]


def own_namespaces_outside(seen: Seen) -> bool:
    return all(
        one["namespaces"][name] != seen["host_namespaces"][name]
        for one in postures(seen)
        for name in (*NAMESPACES, "user")
        if one["namespaces"]
    )


def masked(path: str) -> Callable[[Seen], bool]:
    return lambda seen: seen["masks"][path] in ("absent", "null", "empty")


def exists(path: str) -> Callable[[], bool]:
    return lambda: kind_of_quiet(path) == "something"


def kind_of_quiet(path: str) -> str:
    try:
        return kind_of(path)
    except OSError:
        return "something"


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


IDENTITY = (
    Row(
        1, "no new privileges", "prctl, Landlock", every_thread("NoNewPrivs", 1), ("gains rights",)
    ),
    Row(
        2, "a seccomp filter on every thread", "seccomp", every_thread("Seccomp", 2), ("no filter",)
    ),
    *(
        Row(number, f"{name} is empty", "capabilities", every_thread(name, 0), ("a capability",))
        for name, number in CAPABILITY_SETS.items()
    ),
    Row(
        8,
        "no id of the map is root outside",
        "user namespace",
        lambda seen: all(one["uid_map"][1] != "0" for one in postures(seen)),
        side="host",
        kernel=True,
    ),
    Row(
        8,
        "one id only is mapped, the caller's own",
        "user namespace",
        lambda seen: all(
            one["uid_map"][1:] == [str(seen["host_uid"]), "1"] for one in postures(seen)
        ),
        ("another user",),
        side="host",
    ),
    Row(
        9,
        "no groups beside its own",
        "user namespace",
        lambda seen: (
            seen["identity"]["setgroups"] == "deny"
            and set(seen["identity"]["groups"]) <= {0, 65534}
        ),
        kernel=True,
    ),
    Row(
        9,
        "setgroups is refused",
        "user namespace",
        lambda s: s["setgroups"] == "EPERM",
        kernel=True,
    ),
    Row(
        10,
        "setuid is refused",
        "user namespace, capabilities",
        lambda seen: seen["setuid"] in ("EINVAL", "EPERM"),
        kernel=True,
    ),
)

SYSTEM = (
    *(
        Row(
            number,
            f"a {name} namespace of its own",
            "namespaces",
            own_namespace(name),
            (f"no {kind} namespace",),
        )
        for name, (number, kind) in NAMESPACES.items()
    ),
    Row(16, "a user namespace of its own", "namespaces", own_namespace("user"), kernel=True),
    Row(
        18,
        "few processes in /proc",
        "pid namespace",
        lambda s: len(s["pids"]) < 6,
        ("no pid namespace",),
    ),
    Row(
        19,
        "no interface but lo",
        "network namespace",
        lambda seen: seen["network"]["interfaces"] == ["lo"],
        ("no network namespace",),
    ),
    Row(
        20,
        "no routes",
        "network namespace",
        lambda seen: not seen["network"]["routes"] and not seen["network"]["routes6"],
        ("no network namespace",),
    ),
    Row(
        21,
        "abstract sockets of the host are unreachable",
        "network namespace",
        lambda seen: seen["abstract_socket"] == "ECONNREFUSED",
        ("no network namespace",),
    ),
    Row(
        22,
        "another host name",
        "uts namespace",
        lambda seen: seen["hostname"] != seen["host_name"],
        ("no uts namespace",),
    ),
    Row(
        23,
        "/proc/sysrq-trigger cannot be opened for writing",
        "read-only paths, file mode",
        lambda seen: seen["kernel_doors"]["/proc/sysrq-trigger"] in REFUSED,
        kernel=True,
    ),
    Row(
        24,
        "no sysctl of the kernel can be opened for writing",
        "read-only paths, file modes",
        lambda seen: all(
            seen["kernel_doors"][path] in REFUSED
            for path in seen["kernel_doors"]
            if path.startswith("/proc/sys/")
        ),
        kernel=True,
    ),
    Row(
        24,
        "no sysctl at all can be opened for writing, the namespaces' own neither",
        "read-only paths",
        lambda seen: not seen["writable_sysctls"],
        ("no read-only paths",),
    ),
    Row(
        24,
        "nothing else of /proc can be opened for writing",
        "masked paths, read-only paths, file modes",
        lambda seen: not seen["writable_proc"],
        ("no masks",),
        here=exists("/proc/pressure"),
    ),
    *(
        Row(25, f"{path} is masked", "masked paths", masked(path), ("no masks",), here=exists(path))
        for path in MASKED_PATHS_RESTRICTED
        if path.startswith("/proc/")
    ),
    Row(
        25,
        "nothing of /sys/firmware and powercap",
        "no /sys, masked paths",
        lambda seen: all(masked(p)(seen) for p in seen["masks"] if p.startswith("/sys/")),
        ("a /sys",),
        here=exists("/sys/firmware"),
    ),
    Row(26, "no kernel symbols", "masked paths", lambda s: s["kallsyms"] == 0, ("no masks",)),
    Row(27, "no /sys", "the view", lambda seen: not seen["sys_tree"]["there"], ("a /sys",)),
    Row(
        27,
        "no writable mount below /sys",
        "the view",
        lambda s: not s["sys_tree"]["writable"],
        ("a /sys",),
    ),
    Row(
        28,
        "no helper of the kernel can be named",
        "no /sys, file modes",
        lambda seen: all(
            seen["kernel_doors"][path] in REFUSED
            for path in seen["kernel_doors"]
            if path.startswith("/sys/")
        ),
        kernel=True,
    ),
    Row(
        29,
        "no kernel log by a file",
        "devices, capabilities",
        lambda seen: all(answer in REFUSED for answer in seen["kernel_log"].values()),
        ("a kernel log",),
        kernel=True,
        here=exists("/dev/kmsg"),
    ),
    *(
        Row(
            30,
            f"/proc/1/{name} cannot be opened",
            "the init is not dumpable, capabilities",
            lambda seen, name=name: seen["other_memory"][name] == "EACCES",  # type: ignore[misc]
            ("dumpable init", "sees processes"),
        )
        for name in ("mem", "maps", "environ")
    ),
    Row(
        31,
        "nothing secret in the payload's environment",
        "the list of names",
        lambda seen: seen["secret"] not in "".join(seen["environment"].values()),
        ("the caller's environment",),
    ),
    Row(
        31,
        "nothing of the caller in process 1's environment",
        "the init is not dumpable, capabilities",
        lambda seen: seen["init_environment"] == "EACCES",
        ("dumpable init", "sees processes"),
    ),
    Row(
        39,
        "no agents, keys and descriptors by environment",
        "the list of names",
        lambda seen: not any(name.startswith(SECRETS) for name in seen["environment"]),
        ("the caller's environment",),
    ),
)

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
        "pid namespace, the init",
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

ROWS = (*IDENTITY, *SYSTEM, *LIMITS, *POSTURE)
