"""Each system call of x86_64 and aarch64 (Linux 6.18): what our profile says beside moby's.

moby's profile is read from ../shared, which is not part of the tree; where that folder is absent
(and this is not CI) only our own column is checked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ocisbx.specgen.seccomp import default_profile, load_profile, profile
from ocisbx.specgen.seccomp.order import BY_NUMBER

MOBY = Path(__file__).resolve().parents[3] / "shared/seccomp/moby-default.json"
KERNEL = (6, 18)
ERRNOS = {1: "EPERM", 38: "ENOSYS"}


class Row(NamedTuple):
    """Calls with the same pair of verdicts; "some": it depends on the arguments."""

    ours: str
    moby: str
    reason: str
    calls: str


TABLE = (
    Row(
        "allow",
        "allow",
        "",
        """
        accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir
        chmod chown clock_adjtime clock_getres clock_gettime clock_nanosleep close close_range
        connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
        epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group
        faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat
        fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync
        ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list
        getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername
        getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
        getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat
        inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy
        io_getevents io_pgetevents io_setup io_submit ioprio_get ioprio_set kill landlock_add_rule
        landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen
        listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise
        map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat
        mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
        mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall
        munmap nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe
        pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2
        process_mrelease process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev
        pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
        remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir
        rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
        rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
        sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
        sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp
        select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list
        set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid
        setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shmat
        shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statmount
        statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create
        timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
        timerfd_settime times tkill truncate umask uname unlink unlinkat uretprobe utime utimensat
        utimes vfork wait4 waitid write writev
        """,
    ),
    Row(
        "EPERM",
        "EPERM",
        "",
        """
        chroot clock_settime mount pivot_root reboot setdomainname sethostname setns settimeofday
        syslog umount2 unshare vhangup
        """,
    ),
    Row("ENOSYS", "ENOSYS", "", "clone3"),
    Row("some", "some", "clone: the same mask", "clone"),
    Row("some", "allow", "its own limits only: the init's would end the container", "prlimit64"),
    Row("some", "some", "the same values, told by the low 32 bits", "personality"),
    Row("some", "some", "four families, netlink's routes, not all below 38", "socket"),
    Row("some", "allow", "TIOCSTI and TIOCLINUX type into a terminal", "ioctl"),
    Row("some", "allow", "AF_UNIX: another family would load its module", "socketpair"),
    Row("ENOSYS", "allow", "user pages inside pipes (linux.md 3.3)", "vmsplice"),
    Row(
        "ENOSYS", "allow", "of use only with a call that is off", "fanotify_mark name_to_handle_at"
    ),
    Row("ENOSYS", "allow", "16 and 32-bit segments: only native code runs", "modify_ldt"),
    Row(
        "ENOSYS",
        "allow",
        "no 64-bit kernel implements them",
        "epoll_ctl_old epoll_wait_old get_thread_area set_thread_area",
    ),
    Row(
        "ENOSYS",
        "EPERM",
        "a build option, an old or a newer call: programs fall back on ENOSYS",
        """
        _sysctl acct add_key afs_syscall bpf create_module delete_module fanotify_init
        file_getattr file_setattr finit_module fsconfig fsmount fsopen fspick get_kernel_syms
        get_mempolicy getpmsg init_module io_uring_enter io_uring_register io_uring_setup ioperm
        iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie lsm_get_self_attr
        lsm_list_modules lsm_set_self_attr mbind migrate_pages mount_setattr move_mount move_pages
        nfsservctl open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd
        process_madvise putpmsg query_module quotactl quotactl_fd request_key security
        set_mempolicy set_mempolicy_home_node swapoff swapon sysfs tuxcall uprobe uselib
        userfaultfd ustat vserver
        """,
    ),
)

# What aarch64 does not have, of the above.
X86_64_ONLY = """
    _sysctl access afs_syscall alarm arch_prctl chmod chown creat create_module dup2
    epoll_create epoll_ctl_old epoll_wait epoll_wait_old eventfd fork futimesat
    get_kernel_syms get_thread_area getdents getpgrp getpmsg inotify_init ioperm iopl lchown
    link lstat mkdir mknod modify_ldt open pause pipe poll putpmsg query_module readlink
    rename rmdir security select set_thread_area signalfd stat symlink sysfs time tuxcall
    unlink uprobe uretprobe uselib ustat utime utimes vfork vserver
    """


def _verdict(resolved: dict[str, Any], call: str) -> str:
    rules = [rule for rule in resolved["syscalls"] if call in rule["names"]]
    if any("args" in rule for rule in rules):
        return "some"
    if not rules:
        return ERRNOS[resolved["defaultErrnoRet"]]
    assert len({rule["action"] for rule in rules}) == 1
    allows = rules[0]["action"] == "SCMP_ACT_ALLOW"
    return "allow" if allows else ERRNOS[rules[0]["errnoRet"]]


def _calls(row: Row, machine: str) -> list[str]:
    absent = X86_64_ONLY.split() if machine == "aarch64" else []
    return [call for call in row.calls.split() if call not in absent]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_our_verdict_on_every_call(machine: str) -> None:
    ours = default_profile(machine, KERNEL, [])
    assert {(c, _verdict(ours, c)) for row in TABLE for c in _calls(row, machine)} == {
        (c, row.ours) for row in TABLE for c in _calls(row, machine)
    }


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_mobys_verdict_on_every_call(machine: str) -> None:
    if not MOBY.parent.parent.exists() and not os.environ.get("CI"):
        pytest.skip("../shared is absent")
    moby = load_profile(MOBY.read_text(), machine, KERNEL, [])
    assert {(c, _verdict(moby, c)) for row in TABLE for c in _calls(row, machine)} == {
        (c, row.moby) for row in TABLE for c in _calls(row, machine)
    }


def test_every_call_stands_in_one_row_and_a_difference_has_its_reason() -> None:
    calls = [call for row in TABLE for call in row.calls.split()]
    assert len(calls) == len(set(calls))
    assert all(row.reason for row in TABLE if row.ours != row.moby)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_our_rules_name_only_calls_of_the_machine(machine: str) -> None:
    known = {call for row in TABLE for call in _calls(row, machine)}
    everything = default_profile(machine, KERNEL, list(profile.GRANTED), "allow")
    rules: Any = everything["syscalls"]
    assert {name for rule in rules for name in rule["names"]} <= known


# linux/include/uapi and syscall_64.tbl: some numbers, old and new.
NUMBERS = {
    "read": 0, "ioctl": 16, "socket": 41, "clone": 56, "ptrace": 101, "mount": 165, "futex": 202,
    "openat": 257, "prlimit64": 302, "seccomp": 317, "rseq": 334, "uretprobe": 335,
    "pidfd_send_signal": 424, "clone3": 435, "cachestat": 451, "mseal": 462, "open_tree_attr": 467,
}  # fmt: skip


def test_the_order_of_names_is_that_of_numbers() -> None:
    ordered = BY_NUMBER.split()
    groups = (*profile.ALLOWED, profile.DEBUGGING, *profile.REFUSED, *profile.SWITCHED_OFF)
    names = {name for group in groups for name in group.names.split()}
    assert len(ordered) == len(set(ordered))
    assert set(ordered) == names | set(profile.CONDITIONAL.split())
    assert [name for name in ordered if name in NUMBERS] == sorted(NUMBERS, key=NUMBERS.__getitem__)
    rules: Any = default_profile("x86_64", KERNEL, [])["syscalls"]
    for rule in rules:
        assert rule["names"] == sorted(rule["names"], key=ordered.index, reverse=True)


def test_the_data_names_each_call_once_with_a_reason() -> None:
    groups = (*profile.ALLOWED, profile.DEBUGGING, *profile.REFUSED, *profile.SWITCHED_OFF)
    names = [name for group in groups for name in group.names.split()]
    names += profile.CONDITIONAL.split()
    assert len(names) == len(set(names))
    assert all(group.reason for group in groups)
    granted = {name for calls in profile.GRANTED.values() for name in calls.split()}
    assert granted <= set(names)
    assert set(profile.X86_64_ONLY.split()) == set(names) & set(X86_64_ONLY.split())
