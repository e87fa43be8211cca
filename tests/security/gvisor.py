"""gVisor has a kernel of its own: which assertions mean something else there. Closed tables.

An assertion of `ELSEWHERE` is not judged on gVisor, and must fail there: what holds all the same
has no place in the table. `HELD_BY_THE_SENTRY` names the assertions that a mutant cannot break,
since gVisor's kernel refuses by itself: exactly these, so that both kinds of change are noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.quirks import find_quirks, parse_version

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary

# From here on: --pass-fd, hence our init (quirks.py).
WITH_INIT = (20240101,)

# {name: what it is there instead}.
ELSEWHERE = {
    "no groups beside its own": "shown is the map of gVisor's own first namespace",
    "a cgroup namespace of its own": "/proc/self/ns shows the kinds that gVisor knows",
    "no sysctl at all can be opened for writing, the namespaces' own neither": (
        "these are gVisor's own settings, of this sandbox's kernel"
    ),
    "no /sys": "gVisor adds one of its own making",
    "no writable mount below /sys": "gVisor adds one of its own making",
    "the oom killer's score cannot be lowered": "a number that only gVisor reads",
    "namespaces of their own, seen from the host": "the host sees gVisor's processes, not these",
    "every mount is nosuid": "devices are gVisor's own, and no program gains rights there",
    "every mount is nodev": "mountinfo never shows it",
    "the usual character devices only": "/dev/fuse and /dev/net/tun are gVisor's own",
    "every tmpfs has a number of inodes": "its tmpfs knows a size only",
    "files in /dev are ENOSPC at last": "its tmpfs knows a size only",
    "a call of the x32 ABI kills": "gVisor answers it, and its filter knows no other ABI",
    "a call of the i386 ABI kills": "gVisor answers it, and its filter knows no other ABI",
    "CapEff is empty, seen from the host": "gVisor's own, within its user namespace",
    "CapPrm is empty, seen from the host": "gVisor's own, within its user namespace",
    "CapBnd is empty, seen from the host": "gVisor's own, within its user namespace",
}
NEW = ELSEWHERE | {
    "CapInh is empty, seen from the host": "gVisor's own, within its user namespace",
    "CapAmb is empty, seen from the host": "gVisor's own, within its user namespace",
    "/proc/sysrq-trigger cannot be opened for writing": "it commands gVisor's kernel, to nothing",
    "nothing else of /proc can be opened for writing": "/proc/sysrq-trigger, which does nothing",
    "clone3 is ENOSYS": "it is allowed: no errno but EPERM can be had from gVisor's filter",
}
# Debian's of 2022, which the init cannot reach.
OLD = ELSEWHERE | {
    "no new privileges": "/proc/PID/status does not tell; it always holds",
    "CapAmb is empty": "/proc/PID/status does not tell",
    "a mnt namespace of its own": "/proc/self/ns shows three kinds",
    "a ipc namespace of its own": "/proc/self/ns shows three kinds",
    "a uts namespace of its own": "/proc/self/ns shows three kinds",
    "/proc/1/maps cannot be opened": "process 1 is the payload",
    "/proc/1/environ cannot be opened": "process 1 is the payload",
    "nothing of the caller in process 1's environment": "process 1 is the payload",
    "its cgroup is the root of what it sees": "/proc/self/cgroup is empty",
    "no device can be made": "it leads nowhere: opening it fails",
    "every tmpfs has a size": "/dev has none; its memory is the sandbox's own",
    "filling a tmpfs is ENOSPC": "/dev has no size: the limit of a file's size answers first",
    "process_vm_readv(init) is refused": "ENOSYS: it does not know the call",
}

# Mutants that can be told on one platform alone, the fastest.
MUTANTS_ON = "systrap"
# {mutant: why none of its assertions breaks there}. These are not run.
UNBROKEN = {
    "threads refused": "clone3 is answered by gVisor, whatever the filter's errno",
    "no network namespace": "--network=none decides, not config.json",
    "no ipc namespace": "gVisor's kernel has the one",
    "no uts namespace": "gVisor's kernel has the one",
    "no cgroup namespace": "gVisor's kernel has the one",
    "no pid namespace": "gVisor's kernel has the one",
    "no mount namespace": "gVisor's kernel has the one",
    "no masks": "its /proc has none of these files",
    "no read-only paths": "its /proc is its own",
    "no nodev": "mountinfo never shows it",
    "no nosuid": "devices are gVisor's own",
    "shared mounts": "refused: root mount propagation option must specify private or slave",
    "a character device": "what is bound there is gVisor's own",
    "a block device": "refused: join container mntns: operation not permitted",
    "a kernel log": "what is bound there is gVisor's own",
    "a directory of /proc": "refused: failed to create process working directory",
    "a /sys": "gVisor adds one of its own making",
    "another user": "its runtime needs no subordinate ids",
    "another user gains rights": "its runtime needs no subordinate ids",
    "no rlimits": "gVisor's own limits apply where the caller's are higher",
    "a kept descriptor": "no --preserve-fds: descriptors are named one by one",
    "LISTEN_FDS": "it does not read the variable",
    "the caller's descriptors": "it starts itself anew, with the descriptors that it knows",
    "a terminal as input": "a descriptor of the host is no terminal there",
}
# What the kernel of gVisor refuses, or does not have, without any filter.
REFUSED = "mount umount2 chroot settimeofday clock_settime"
SWITCHED_OFF = """
    bpf userfaultfd io_uring_setup io_uring_enter keyctl fsopen fsmount move_mount mount_setattr
    init_module finit_module delete_module kexec_load kexec_file_load swapon acct quotactl iopl
    modify_ldt kcmp process_madvise fanotify_init move_pages migrate_pages lookup_dcookie vmsplice
    """
FAMILIES = ("AF_ALG", "AF_ALG + 2**32", "AF_VSOCK", "AF_PACKET", "AF_XDP", "AF_RDS", "AF_TIPC")
WITHOUT_A_FILTER = frozenset(
    {
        "the filter, seen from the host",
        "no real socket of a refused family",
        *(f"{name} is EPERM" for name in REFUSED.split()),
        *(f"{name} is ENOSYS" for name in SWITCHED_OFF.split()),
        *(f"no socket of {name}" for name in FAMILIES),
    }
)
HELD_BY_THE_SENTRY: dict[str, frozenset[str]] = {
    "gains rights": frozenset({"no_new_privs, seen from the host"}),
    "all rights": frozenset({"a read-only bind cannot be remounted", "no raw socket"}),
    "no filter": WITHOUT_A_FILTER,
}


def elsewhere(runtime: RuntimeBinary) -> dict[str, str]:
    """The assertions that this runtime is not judged by; none but gVisor has any."""
    if not find_quirks(runtime.name, runtime.version).user_kernel:
        return {}
    numbers = parse_version(runtime.version)
    return OLD if numbers and numbers < WITH_INIT else NEW


def takes_mutants(runtime: RuntimeBinary) -> bool:
    return runtime.platform in (None, MUTANTS_ON)
