"""Which system calls a sandbox may make, and why: data only, for review.

A call is in exactly one place:

- `ALLOWED`: answered by the kernel, whatever the arguments.
- `GRANTED`: allowed with a capability, as moby's default profile does; otherwise it is refused as
  its other place says, or as unknown.
- `CONDITIONAL` (names only): allowed for some arguments; the tables after it say which.
- `REFUSED`: answers EPERM. Calls that every kernel has: ENOSYS would make a program take the
  sandbox for a broken kernel.
- `SWITCHED_OFF`: answers ENOSYS, as a kernel built without the feature or older than it does, so
  that programs take their fallback (libnuma, liburing and libmount look for exactly this).

What stands nowhere answers ENOSYS too: calls newer than this list, and calls that no 64-bit kernel
implements. The errno is the filter's default, so those tables cost no rule.

The starting point is what moby's default profile (github.com/moby/profiles, 2026-06-30) allows with
no capability; tests/unit/test_seccomp_table.py pins every difference with its reason.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Group(NamedTuple):
    """Calls that stand or fall together; `names` is one string, parted by blanks."""

    reason: str
    names: str


ALLOWED: tuple[Group, ...] = (
    Group(
        "files by name: the mount namespace and permissions decide",
        """
        access chdir chmod chown creat faccessat faccessat2 fchdir fchmod fchmodat fchmodat2 fchown
        fchownat futimesat getcwd getdents getdents64 lchown link linkat listmount lstat mkdir
        mkdirat mknod mknodat newfstatat open openat openat2 readlink readlinkat rename renameat
        renameat2 rmdir stat statfs statmount statx symlink symlinkat truncate umask unlink
        unlinkat utime utimensat utimes
        """,
    ),
    Group(
        "open descriptors: what could be opened may be used",
        """
        cachestat close close_range copy_file_range dup dup2 dup3 fadvise64 fallocate fcntl
        fdatasync flock fstat fstatfs fsync ftruncate lseek pipe pipe2 pread64 preadv preadv2
        pwrite64 pwritev pwritev2 read readahead readv sendfile splice sync sync_file_range syncfs
        tee write writev
        """,
    ),
    Group(
        "extended attributes: what they may hold is the file system's decision",
        """
        fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr
        listxattrat llistxattr lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat
        """,
    ),
    Group(
        "waiting for descriptors, files and timers",
        """
        epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2
        inotify_add_watch inotify_init inotify_init1 inotify_rm_watch poll ppoll pselect6 select
        signalfd signalfd4 timerfd_create timerfd_gettime timerfd_settime
        """,
    ),
    Group(
        "POSIX asynchronous i/o: databases use it, and it is far smaller than io_uring",
        "io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit",
    ),
    Group(
        "the process's own memory",
        """
        brk madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2
        mlockall mmap mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free
        pkey_mprotect remap_file_pages
        """,
    ),
    Group(
        "processes and threads of the sandbox's own pid namespace",
        """
        arch_prctl execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv
        futex_wake get_robust_list getpgid getpgrp getpid getppid getsid gettid kill pidfd_open
        pidfd_send_signal prctl process_mrelease rseq set_robust_list set_tid_address setpgid
        setsid tgkill tkill vfork wait4 waitid
        """,
    ),
    Group(
        "ids and capabilities: the user namespace decides",
        """
        capget capset getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid
        setgid setgroups setregid setresgid setresuid setreuid setuid
        """,
    ),
    Group(
        "signals",
        """
        pause restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
        rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack
        """,
    ),
    Group(
        "time, read or waited for: setting a clock needs CAP_SYS_TIME in the first user namespace",
        """
        adjtimex alarm clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer
        gettimeofday nanosleep setitimer time timer_create timer_delete timer_getoverrun
        timer_gettime timer_settime times
        """,
    ),
    Group(
        "scheduling and limits: lowering is free, raising needs a capability",
        """
        getcpu getpriority getrlimit getrusage ioprio_get ioprio_set
        sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
        sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr
        sched_setparam sched_setscheduler sched_yield setpriority setrlimit
        """,
    ),
    Group(
        "sockets that exist: which may be made is decided at socket and socketpair",
        """
        accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg
        recvmsg sendmmsg sendmsg sendto setsockopt shutdown
        """,
    ),
    Group(
        "System V and POSIX queues, semaphores, shared memory: the ipc namespace's own",
        """
        mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv
        msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget
        """,
    ),
    Group(
        "further confinement by the payload itself",
        "landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp",
    ),
    Group("what the system is", "getrandom sysinfo uname"),
    Group(
        "the return of a probe that the host's administrator set (Linux 6.11): a refusal kills "
        "the probed program",
        "uretprobe",
    ),
)

# Before Linux 4.8 a tracer could change a call after the filter had seen it (seccomp(2)).
DEBUGGING_KERNEL = (4, 8)
DEBUGGING = Group(
    "debuggers, on the sandbox's own processes: yama and the pid namespace decide",
    "process_vm_readv process_vm_writev ptrace",
)

GRANTED: Mapping[str, str] = MappingProxyType(
    {
        "CAP_BPF": "bpf",
        "CAP_DAC_READ_SEARCH": "name_to_handle_at open_by_handle_at",
        "CAP_PERFMON": "perf_event_open",
        "CAP_SYSLOG": "syslog",
        "CAP_SYS_ADMIN": """
            bpf clone clone3 fanotify_init fanotify_mark fsconfig fsmount fsopen fspick
            lookup_dcookie lsm_get_self_attr lsm_list_modules lsm_set_self_attr mount mount_setattr
            move_mount open_tree open_tree_attr perf_event_open quotactl quotactl_fd setdomainname
            sethostname setns syslog umount2 unshare
            """,
        "CAP_SYS_BOOT": "reboot",
        "CAP_SYS_CHROOT": "chroot",
        "CAP_SYS_MODULE": "delete_module finit_module init_module",
        "CAP_SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
        "CAP_SYS_PACCT": "acct",
        "CAP_SYS_PTRACE": """
            kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace
            """,
        "CAP_SYS_RAWIO": "ioperm iopl",
        "CAP_SYS_TIME": "clock_settime settimeofday",
        "CAP_SYS_TTY_CONFIG": "vhangup",
    }
)

REFUSED: tuple[Group, ...] = (
    Group(
        "mounts and namespaces: what the sandbox is made of, and the way to most kernel holes",
        "chroot mount pivot_root setns umount2 unshare",
    ),
    Group(
        "the machine's state: clocks, names, the kernel's log, the power switch",
        "clock_settime reboot setdomainname sethostname settimeofday syslog vhangup",
    ),
)

SWITCHED_OFF: tuple[Group, ...] = (
    Group(
        "the newer calls for mounts: mount(8) and libmount fall back to mount(2), which is refused",
        """
        fsconfig fsmount fsopen fspick lookup_dcookie mount_setattr move_mount open_tree
        open_tree_attr
        """,
    ),
    Group(
        "modules, other kernels, swap, quotas, accounting, ports: each a kernel's build option",
        """
        acct delete_module finit_module init_module ioperm iopl kexec_file_load kexec_load quotactl
        quotactl_fd swapoff swapon
        """,
    ),
    Group("programs inside the kernel, and what its counters tell", "bpf perf_event_open"),
    Group("other processes' descriptors", "kcmp pidfd_getfd"),
    Group(
        "files by handle, past every directory's permissions (shocker, 2014)",
        "name_to_handle_at open_by_handle_at",
    ),
    Group("watching whole file systems", "fanotify_init fanotify_mark"),
    Group(
        "io_uring: a second door to most calls that no filter sees",
        "io_uring_enter io_uring_register io_uring_setup",
    ),
    Group("stops the kernel in mid-copy: the usual help of exploits", "userfaultfd"),
    Group("keyrings belong to no namespace", "add_key keyctl request_key"),
    Group(
        "placement of memory: libnuma takes ENOSYS for a machine with one node",
        """
        get_mempolicy mbind migrate_pages move_pages process_madvise set_mempolicy
        set_mempolicy_home_node
        """,
    ),
    Group("user pages inside pipes: part of several page-cache holes", "vmsplice"),
    Group("16 and 32-bit segments (CVE-2015-3290, CVE-2015-5157)", "modify_ldt"),
    Group(
        "security modules, and leftovers of old kernels",
        "lsm_get_self_attr lsm_list_modules lsm_set_self_attr sysfs uselib ustat",
    ),
)

# Allowed for some arguments; resolve.py turns the tables below into rules.
CONDITIONAL = "clone clone3 ioctl personality prlimit64 socket socketpair"

# clone(2): the namespaces' bits below 2**32; the same mask as moby's 0x7e020000. CLONE_NEWTIME is
# an exit signal to clone, and only clone3 and unshare know it.
NAMESPACE_FLAGS: Mapping[str, int] = MappingProxyType(
    {
        "CLONE_NEWNS": 0x00020000,
        "CLONE_NEWCGROUP": 0x02000000,
        "CLONE_NEWUTS": 0x04000000,
        "CLONE_NEWIPC": 0x08000000,
        "CLONE_NEWUSER": 0x10000000,
        "CLONE_NEWPID": 0x20000000,
        "CLONE_NEWNET": 0x40000000,
    }
)

# ioctl_tty(2): both put characters into a terminal's input, as if its user had typed them.
REFUSED_IOCTLS: Mapping[str, int] = MappingProxyType({"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C})

# personality(2): PER_LINUX, PER_LINUX32, each with or without UNAME26, and the query.
PERSONALITY_BITS = 0x20008
PERSONALITY_QUERY = 0xFFFFFFFF

# prlimit(2): 0 is the caller itself. Equal ids are enough to set another's limits, and with
# RLIMIT_CPU a payload would have its init killed in place of its own report.
OWN_PROCESS = 0

# socket(2). Every other family (AF_ALG: CVE-2026-31431, AF_VSOCK: reaches the hypervisor, AF_RDS,
# AF_TIPC, AF_XDP ...) is code that a sandbox does not need and that a mere socket() would load.
SOCKET_FAMILIES: Mapping[str, int] = MappingProxyType({"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10})
FAMILIES_GRANTED: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {"CAP_NET_RAW": MappingProxyType({"AF_PACKET": 17})}
)
AF_NETLINK = 16
NETLINK_ROUTE = 0  # interfaces and addresses: getifaddrs(3), getaddrinfo(3), ip(8)
NETLINK_CAPABILITY = "CAP_NET_ADMIN"  # with it, every netlink protocol

# Names that only x86_64 has. aarch64 began without the calls that a newer one replaces
# (asm-generic/unistd.h), and has none of its own among ours.
X86_64_ONLY = """
    access alarm arch_prctl chmod chown creat dup2 epoll_create epoll_wait eventfd fork futimesat
    getdents getpgrp inotify_init ioperm iopl lchown link lstat mkdir mknod modify_ldt open pause
    pipe poll readlink rename rmdir select signalfd stat symlink sysfs time unlink uretprobe uselib
    ustat utime utimes vfork
    """
