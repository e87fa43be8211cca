"""What differs between runtimes, as data: every `if` about a runtime's name lives here.

Rows are tried from the top; the first whose name matches and whose `since` is not newer than the
binary's version applies. Facts: runtimes.md of the project's reference (measured), and the
runtimes' change logs where a version is named.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Literal, NamedTuple

MIB = 1 << 20


class Quirks(NamedTuple):
    """How one runtime, from one version on, is driven."""

    name: str
    since: tuple[int, ...]
    # Arguments of `run` that hand our socket to the init as descriptor 3; None: it cannot.
    socket_args: tuple[str, ...] | None
    # Arguments before the verb, besides --root and --log.
    global_args: tuple[str, ...] = ()
    # Runs in our cell where cgroup v2 is not alone: crun refuses that, youki would use v1 as well.
    refuses_hybrid: bool = False
    # A single caller's id may be mapped to any id inside; runc insists on uid 0
    # ("no mapping found for uid 0 in rootless container").
    maps_any_id: bool = False
    # mounts[].uidMappings (runtime-spec 1.1.0) is honoured.
    idmapped_mounts: bool = False
    # Builds the path of each mount point from the root's own: together they fit into PATH_MAX.
    joins_root: bool = False
    # linux.namespaces may hold `time` (runtime-spec 1.1.0); youki 0.7 has no code for it
    # (youki-dev/youki#3259).
    time_namespace: bool = False
    # `features` exists.
    features: bool = False
    # Puts no container into a cgroup: it is started in the container's itself, with all that it
    # starts.
    enters_cgroup: bool = False
    # Has systemd make the container's cgroup, for who runs a kept bundle by hand (it wins over what
    # stands before it); None: it cannot, and is started in one that holds the limits.
    systemd_flag: str | None = "--systemd-cgroup"
    # What it keeps in its --root for the next container, with the modes: (name, mode).
    kept_state: tuple[tuple[str, int], ...] = ()
    # Starts newuidmap(1) also for a single id, and finds it by the PATH.
    needs_path: bool = False
    # Looks for a relative `source` of a mount where it was started, and not in the bundle
    # (config.md, "Mounts"): it is started there.
    starts_in_bundle: bool = False
    # Takes the mask of SCMP_CMP_MASKED_EQ (`value`) for what is compared with (`valueTwo`), and the
    # other for the mask: they are written the other way round.
    swaps_masks: bool = False
    # Leaves a container in the caller's session keyring (keyrings(7)): it is started in a new one.
    shares_keyring: bool = False
    # Leaves the loopback of a new network namespace down: we bring it up.
    loopback_down: bool = False
    # Without linux.cgroupsPath it asks systemd for a cgroup; one that it may not make it leaves be.
    always_placed: bool = False
    # Copies itself into memory at each start, unless it runs from a sealed copy: that pays at each;
    # or for many, where what waits for a container else runs from the file, whose pages all share.
    sealed_pays: Literal["", "each", "many"] = ""
    # Answers the payload's system calls itself, in user space: nothing inside reaches the host's
    # kernel but what this runtime asks of it.
    user_kernel: bool = False
    # Sends a terminal only where it detaches from the container.
    terminal_detaches: bool = False
    # Connects to a console socket whose path is longer than an address (unix(7)).
    connects_to_long_paths: bool = False
    # How it may intercept system calls, in the order in which they are tried; kvm only when asked.
    platforms: tuple[str, ...] = ()
    # Takes `--network=none|host` instead of a namespace's absence.
    network_flag: bool = False
    # The values of `network` that it can give.
    networks: tuple[str, ...] = ("none", "host")
    # What makes it honour linux.seccomp; empty: it always does.
    seccomp_args: tuple[str, ...] = ()
    # clone3 under a filter: "enosys" makes glibc fall back to clone, which a filter can judge;
    # gVisor answers EPERM whatever errnoRet says, after which no thread starts.
    clone3: Literal["enosys", "allow"] = "enosys"
    # Fields of the init's self-test for which its kernel has no line in proc_pid_status(5).
    untold: tuple[str, ...] = ()
    # The first error of its log is the cause, the last one only says that it could not start.
    cause_first: bool = False
    # Makes mount points in the root that it is given, also below what it mounts over.
    writes_root: bool = False
    # What the container's cgroup has to hold for it to start, with some room (measured in Debian
    # 12's guest of two processors; Go's runtimes start more threads where there are more).
    memory_floor_bytes: int = MIB
    # The init and the payload.
    pids_floor: int = 2
    # `rro`, `rnosuid`, `rnodev` are known mount options (runtime-spec 1.1.0).
    recursive_options: bool = True


# gVisor's platforms guide: systrap is the default; ptrace is there still, and to be removed.
GVISOR_PLATFORMS = ("systrap", "ptrace")

# gVisor's true rootless way (its user guide, "rootless"): the mapping in config.json, run as the
# caller, without --rootless.
GVISOR = Quirks(
    name="runsc",
    since=(20240101,),
    socket_args=("--pass-fd=3:3",),
    # The default overlay would keep what is written to a writable root.
    global_args=("--ignore-cgroups", "--overlay2=none"),
    enters_cgroup=True,
    systemd_flag=None,
    features=True,
    user_kernel=True,
    # 33 MiB and 52 threads on systrap: its kernel is a process of the container's cgroup.
    memory_floor_bytes=48 * MIB,
    pids_floor=64,
    platforms=GVISOR_PLATFORMS,
    network_flag=True,
    seccomp_args=("--oci-seccomp",),
    clone3="allow",
    cause_first=True,
    writes_root=True,
    joins_root=True,
    recursive_options=False,
)

TABLE: tuple[Quirks, ...] = (
    Quirks(
        name="crun",
        connects_to_long_paths=True,
        since=(1, 10),
        socket_args=("--preserve-fds", "1"),
        global_args=("--cgroup-manager=cgroupfs",),
        refuses_hybrid=True,
        # Compiled seccomp filters (since 1.14 in every build), and what masked directories show
        # (since 1.24).
        kept_state=((".cache", 0o700), (".empty-directory", 0o555)),
        sealed_pays="each",
        maps_any_id=True,
        idmapped_mounts=True,
        time_namespace=True,
        features=True,
    ),
    Quirks(
        name="crun",
        connects_to_long_paths=True,
        since=(0,),
        socket_args=("--preserve-fds", "1"),
        global_args=("--cgroup-manager=cgroupfs",),
        refuses_hybrid=True,
        sealed_pays="each",
        maps_any_id=True,
        time_namespace=True,
    ),
    Quirks(
        name="runc",
        since=(1, 2),
        terminal_detaches=True,
        memory_floor_bytes=12 * MIB,  # 7.9: `runc init`, a Go program, counts as the container
        sealed_pays="many",
        pids_floor=8,
        socket_args=("--preserve-fds", "1"),
        joins_root=True,
        idmapped_mounts=True,
        time_namespace=True,
        features=True,
    ),
    Quirks(
        name="runc",
        since=(0,),
        terminal_detaches=True,
        memory_floor_bytes=16 * MIB,  # 12.6, where it copies itself into memory first
        sealed_pays="many",
        pids_floor=8,
        socket_args=("--preserve-fds", "1"),
        joins_root=True,
        features=True,
    ),
    Quirks(
        name="youki",
        connects_to_long_paths=True,
        since=(0,),
        terminal_detaches=True,
        refuses_hybrid=True,
        starts_in_bundle=True,
        swaps_masks=True,
        shares_keyring=True,
        loopback_down=True,
        always_placed=True,
        sealed_pays="each",
        cause_first=True,
        socket_args=("--preserve-fds", "1"),
        features=True,
    ),
    GVISOR,
    GVISOR._replace(
        since=(0,),
        # No --pass-fd: its own stdio is the payload's, and its exit status the payload's.
        socket_args=None,
        needs_path=True,
        pids_floor=120,  # 99 threads on ptrace; with fewer it hangs
        global_args=("--ignore-cgroups",),
        features=False,
        # It always sets it (runsc/specutils: "noNewPrivileges ... assumed to always be set").
        untold=("no_new_privs", "cap_amb"),
        networks=("none",),
    ),
)

# The fastest first (performance.md 1): the order of `auto`.
AUTO_ORDER: tuple[str, ...] = ("crun", "runc", "youki")
# A kernel of the payload's own before the host's.
STRONGEST_ORDER: tuple[str, ...] = ("runsc", *AUTO_ORDER)
KNOWN_NAMES: tuple[str, ...] = STRONGEST_ORDER

# A runsc that `go install` made tells no version; what does not work with it is found by trying.
UNTOLD_VERSION = "VERSION_MISSING"


def parse_version(text: str) -> tuple[int, ...]:
    """`1.5.2-rc.1+ds1` -> (1, 5, 2): numbers up to the first thing that is none.

    gVisor counts by days: `release-20260907.0` and Debian's `0.0~20221219.0` -> (20260907, 0).
    """
    for prefix in ("v", "release-", "0.0~"):
        text = text.removeprefix(prefix)
    # Not by a regular expression: every supervisor asks, and has no other use for them.
    head = "".join(takewhile(lambda one: one.isdecimal() or one == ".", text))
    return tuple(map(int, takewhile(bool, head.split("."))))


def find_quirks(name: str, version: str) -> Quirks:
    """The row for a runtime.

    Raises:
        KeyError: no row knows this name.
    """
    numbers = parse_version(version)
    for row in TABLE:
        if row.name == name and (numbers >= row.since or version == UNTOLD_VERSION):
            return row
    raise KeyError(name)


class Lack(NamedTuple):
    """Something that ocisbx promises and a runtime cannot give, with what is there instead.

    Versions below `fixed` lack it; empty: all do. `evidence` is what the runtime says or does,
    `instead` what a user gets.
    """

    runtime: str
    fixed: tuple[int, ...]
    promise: str
    evidence: str
    instead: str


# The whole list: the contract suite may leave out nothing else, and the manual shows it.
LACKS: tuple[Lack, ...] = (
    Lack(
        "runc", (), "paths may have 4095 bytes",
        "mkdirat ...: file name too long: it puts the root's own path before each target",
        "refused with the length that fits, before anything is started",
    ),
    Lack(
        "youki", (), "a missing working directory is made",
        "failed to chdir: ENOENT: No such file or directory", "refused, in the runtime's words",
    ),
    Lack(
        "youki", (), "a bundle is rerun by hand from a path with a newline",
        "it hangs, with such a path as --root and --bundle",
        "move the bundle",
    ),
    Lack(
        "youki", (), "--user names any id that is mapped",
        "intermediate process error EINVAL: it makes containers as uid 0 of their namespace",
        "on hybrid cgroups, where it runs in namespaces with one id, refused; elsewhere your "
        "subordinate ids are mapped, as for runc",
    ),
    Lack(
        "runsc", (), "process 1 is out of the payload's reach",
        "in gVisor kill(1, SIGKILL) succeeds, and SIGSTOP stops process 1 for good",
        "the payload that does it ends itself: `signaled`, 9",
    ),
    Lack(
        "runsc", (), "tmpfs have a bound on inodes",
        "gVisor's tmpfs knows size= only",
        "the size alone bounds it; its memory is the sandbox's own",
    ),
    Lack(
        "runsc", (), "a container has at most 256 terminals",
        "gVisor's devpts takes no max=: openpty(3) goes on to succeed",
        "its terminals are gVisor's own: none of the host's are taken",
    ),
    Lack(
        "runsc", (), "/dev holds the default devices only, and there is no /sys",
        "gVisor adds /dev/fuse, /dev/net/tun and a /sys of its own making",
        "they are of the user-space kernel: nothing of the host is behind them",
    ),
    Lack(
        "runsc", (), "every mount shows nosuid and nodev",
        "/proc/self/mountinfo never shows nodev, and in old versions no nosuid on /dev",
        "devices are gVisor's own wherever they stand, and no_new_privs holds for every program",
    ),
    Lack(
        "runsc", (20240101,), "mknod(2) of a device is refused",
        "mknod /tmp/x b 8 0 succeeds without CAP_MKNOD",
        "the node leads nowhere: opening it fails, gVisor has no such device",
    ),
    Lack(
        "runsc", (), "namespaces are the host kernel's",
        "/proc/self/ns tells gVisor's own numbers, of the kinds that it knows",
        "the kernel itself is the payload's own",
    ),
    Lack(
        "runsc", (), "paths may have 4095 bytes",
        "cannot read client sync file: waiting for sandbox to start: EOF",
        "refused with the length that fits, before anything is started",
    ),
    Lack(
        "runsc", (), "Landlock is a further layer",
        "landlock_create_ruleset: its kernel has no such call",
        "the mounts alone decide what is written (`enforcement` says so)",
    ),
    Lack(
        "runsc", (), "mounts are compared with the plan before the payload runs",
        "its gofer serves the files: process 1 has none of the host's mounts",
        "a directory that somebody swaps for a link between our look and the mount is followed",
    ),
    Lack(
        "runsc", (), "out of memory, a process of the payload's ends alone",
        "the kernel picks gVisor's own process: `sh -c 'HOG; echo $?'` prints nothing",
        "the whole sandbox ends: `oom_killed`",
    ),
    Lack(
        "runsc", (), "beyond the limit on processes, fork(2) fails",
        "refused a thread, gVisor's kernel ends (a limit of 128, a program that forks on)",
        "the whole sandbox ends by signal 9: `pids_limit`; gVisor's own 50 threads count, too",
    ),
    Lack(
        "runsc", (), "usage is the payload's alone",
        "memory_peak_bytes of a program that holds 200 MiB is 239 MiB, pids_peak of true is 52",
        "gVisor's memory, threads and processor time are included; runtime_cpu_s is what it used "
        "before the payload started",
    ),
    Lack(
        "runsc", (20240101,), "the payload's end is reported by the init",
        "flag provided but not defined: -pass-fd",
        "exit codes as the runtime tells them: above 128 they count as signals, 126 and 127 as the "
        "payload's own; usage has the start in it; its own messages are in the payload's stderr",
    ),
    Lack(
        "runsc", (20240101,), "a terminal is the payload's",
        "without --pass-fd nobody can tell when the payload may start, nor its size before that",
        "refused, or the next runtime of the list",
    ),
    Lack(
        "runsc", (), "the payload leads the terminal's session",
        "TIOCSCTTY: EPERM, once process 1 has given it up (TIOCNOTTY)",
        "a process group of process 1's session, in the foreground: job control, Ctrl-C, Ctrl-Z "
        "and /dev/tty work",
    ),
    Lack(
        "runsc", (), "tty(1) names the terminal",
        "not a tty: it is no file of its /dev/pts",
        "isatty(3) says yes, and /dev/tty is the terminal",
    ),
    Lack(
        "runsc", (20240101,), "network host",
        "can't run sandbox process in minimal chroot since we don't have CAP_SYS_ADMIN",
        "refused, or the next runtime of the list",
    ),
    Lack(
        "runsc", (20240101,), "statx(2) as coreutils 9 calls it",
        "ls: cannot access '/': Invalid argument",
        "ls and stat fail; shells, Python and most programs use other calls",
    ),
    Lack(
        "runsc", (20240101,), "a missing working directory is made",
        'failed to find initial working directory "/tmp/new"',
        "one that is missing below a tmpfs is refused too, in the runtime's words",
    ),
    Lack(
        "runsc", (20240101,), "/proc/self/status tells of no_new_privs and ambient capabilities",
        "the lines NoNewPrivs and CapAmb are not there",
        "both hold all the same: gVisor always sets the one and knows no other sets",
    ),
)  # fmt: skip


def lacks(name: str, version: str) -> dict[str, Lack]:
    """What this version of a runtime cannot give, by promise."""
    numbers = parse_version(version)
    return {
        lack.promise: lack
        for lack in LACKS
        if lack.runtime == name
        and (not lack.fixed or (numbers < lack.fixed and version != UNTOLD_VERSION))
    }
