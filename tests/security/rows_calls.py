"""Assertions 49 to 57: system calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.security.inside.calls import CALLS
from tests.security.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.security.scene import Seen


def answers(name: str, wanted: str) -> Callable[[Seen], bool]:
    """The filter's own word; gVisor makes EPERM of every errno that a filter answers."""

    def holds(seen: Seen) -> bool:
        answer = seen["calls"].get(name, wanted)
        return bool(answer == wanted or (seen["user_kernel"] and answer == "EPERM"))

    return holds


# Number -> {call: what it must answer}. Refused calls say EPERM, switched off ones ENOSYS, families
# EAFNOSUPPORT: the filter's own words, which the kernel would not say to these arguments.
NOSYS, PERM, FAMILY = "ENOSYS", "EPERM", "EAFNOSUPPORT"
ANSWERS: dict[int, dict[str, str]] = {
    49: {NOSYS: "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter"},
    50: {NOSYS: "keyctl add_key request_key"},
    51: {
        PERM: "mount umount2 pivot_root chroot",
        NOSYS: "open_tree fsopen fsconfig fsmount move_mount mount_setattr",
    },
    52: {PERM: "unshare(NEWUSER) unshare(NEWNS) setns clone(NEWUSER) clone(NEWNET|NEWPID)"},
    53: {NOSYS: "clone3"},
    54: {
        NOSYS: "init_module finit_module delete_module kexec_load kexec_file_load swapon acct "
        "quotactl iopl modify_ldt open_by_handle_at name_to_handle_at kcmp pidfd_getfd "
        "process_madvise fanotify_init move_pages migrate_pages mbind lookup_dcookie vmsplice",
        PERM: "reboot settimeofday clock_settime sethostname setdomainname vhangup "
        "syslog(READ_ALL)",
    },
    55: {NOSYS: "personality(ADDR_NO_RANDOMIZE) personality(READ_IMPLIES_EXEC)"},
}
# Refused by the kernel too, to whoever lacks the capability: these need all rights to be noticed.
BY_CAPABILITY = ("pivot_root", "unshare(NEWNS)", "clone(NEWNET|NEWPID)", "reboot", "sethostname",
                 "setdomainname", "vhangup", "syslog(READ_ALL)")  # fmt: skip
# Not built into every kernel, or gone from it, or never given to a user namespace's root.
BY_KERNEL = ("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load",
             "lookup_dcookie", "iopl", "vhangup", "syslog(READ_ALL)", "quotactl")  # fmt: skip


def call_row(number: int, name: str, wanted: str) -> Row:
    mutant = "all rights" if name in BY_CAPABILITY else "no filter"
    return Row(
        number,
        f"{name} is {wanted}",
        "seccomp, capabilities" if name in BY_CAPABILITY else "seccomp",
        answers(name, wanted),
        (mutant,),
        kernel=name in BY_KERNEL,
    )


FAMILIES = ("AF_ALG", "AF_ALG + 2**32", "AF_VSOCK", "AF_PACKET", "AF_XDP", "AF_RDS", "AF_TIPC")

ROWS = (
    *(
        call_row(number, name, wanted)
        for number, table in ANSWERS.items()
        for wanted, names in table.items()
        for name in names.split()
    ),
    Row(
        53,
        "a thread starts",
        "the init, seccomp",
        lambda s: s["threads_start"] == "ok",
        ("threads refused",),
    ),
    *(
        Row(
            56,
            f"no socket of {name}",
            "seccomp",
            answers(f"socket({name}, filter)", FAMILY),
            ("no filter",),
        )
        for name in FAMILIES
    ),
    Row(
        56,
        "no real socket of a refused family",
        "seccomp",
        lambda seen: all(
            answers(f"socket({name})", FAMILY)(seen) for name in FAMILIES if "+" not in name
        ),
        ("no filter",),
    ),
    Row(
        56,
        "no socket of audit",
        "seccomp",
        answers("socket(NETLINK_AUDIT)", FAMILY),
        ("no filter",),
    ),
    Row(
        56,
        "socketpair makes no other family",
        "seccomp",
        answers("socketpair(AF_TIPC)", "ENOTSUP"),
        ("no filter",),
    ),
    Row(
        56,
        "no raw socket",
        "capabilities",
        answers("socket(AF_INET, SOCK_RAW)", PERM),
        ("all rights",),
    ),
    *(
        Row(
            56,
            f"a call of the {name} ABI kills",
            "seccomp",
            lambda seen, name=name: seen["other_abis"].get(name, "SIGSYS") == "SIGSYS",  # type: ignore[misc]
            ("no filter",),
        )
        for name in ("x32", "i386")
    ),
    *(
        Row(
            57,
            f"{name} is refused",
            "the init is not dumpable, capabilities",
            answers(name, PERM),
            ("sees processes",),
        )
        for name in ("ptrace(SEIZE, init)", "process_vm_readv(init)")
    ),
    Row(
        57,
        "prlimit64(init) is refused",
        "seccomp",
        answers("prlimit64(init)", NOSYS),
        ("no filter",),
    ),
)

assert {
    name for table in ANSWERS.values() for names in table.values() for name in names.split()
} <= set(CALLS)
