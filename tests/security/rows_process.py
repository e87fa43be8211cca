"""Assertions 1 to 31 and 39: who the payload is, and what it sees of the system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ocisbx.presets import MASKED_PATHS_RESTRICTED
from tests.security.inside.files import kind_of
from tests.security.inside.processes import network
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
# Where yama restricts attaching (ptrace_scope 1), a dumpable init alone opens what is read only.
OF_THE_INIT = {
    "mem": ("sees processes",),
    "maps": ("dumpable init", "sees processes"),
    "environ": ("dumpable init", "sees processes"),
}
CAPABILITY_SETS = {"CapEff": 3, "CapPrm": 4, "CapInh": 5, "CapAmb": 6, "CapBnd": 7}
REFUSED = {"EPERM", "EACCES", "ENOENT", "EROFS", "ENOSYS"}
# Of HOSTILE_ENVIRONMENT and its kin: nothing of these may be in a sandbox.
SECRETS = ("SSH_", "DBUS_", "DOCKER_", "AWS_", "GITHUB_", "XDG_", "LD_PRELOAD", "LISTEN_",
           "NOTIFY_", "OCISBX_", "_OCISBX")  # fmt: skip


def every_thread(name: str, value: int) -> Callable[[Seen], bool]:
    """Of every thread of every process, /proc/PID/task/TID/status says this."""
    return lambda seen: all(int(one[name], 16) == value for one in seen["threads"])


def postures(seen: Seen) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = seen["postures"]
    assert len(found) >= (1 if seen["user_kernel"] else 2), "the init and the payload"
    return found


def own_namespace(name: str) -> Callable[[Seen], bool]:
    return lambda seen: seen["namespaces"][name] != seen["host_namespaces"][name]


def masked(path: str) -> Callable[[Seen], bool]:
    return lambda seen: seen["masks"][path] in ("absent", "null", "empty")


def exists(path: str) -> Callable[[], bool]:
    return lambda: kind_of_quiet(path) == "something"


def kind_of_quiet(path: str) -> str:
    try:
        return kind_of(path)
    except OSError:
        return "something"


def has_a_network() -> bool:
    """An interface that is up, beside lo, with a route."""
    return bool(network()["routes"])


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
        here=has_a_network,
    ),
    Row(
        20,
        "no routes",
        "network namespace",
        lambda seen: not seen["network"]["routes"] and not seen["network"]["routes6"],
        ("no network namespace",),
        here=has_a_network,
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
    Row(
        26,
        "no kernel symbols",
        "masked paths",
        lambda seen: seen["kallsyms"] == 0,
        ("no masks",),
        here=exists("/proc/kallsyms"),
    ),
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
            mutants,
        )
        for name, mutants in OF_THE_INIT.items()
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

ROWS = (*IDENTITY, *SYSTEM)
