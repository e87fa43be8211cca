"""System calls, made raw: what each answers, as an errno's name, `ok` or the signal that killed it.

Arguments are such that the kernel itself would say something else than our filter does, and harm
nothing where there is no filter: null pointers, closed descriptors, magic numbers that are wrong.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import signal
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
X86_64 = platform.machine() == "x86_64"

AF_UNIX, AF_INET, AF_NETLINK, AF_PACKET, AF_RDS, AF_TIPC, AF_ALG = 1, 2, 16, 17, 21, 30, 38
AF_VSOCK, AF_XDP = 40, 44
SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET = 1, 2, 3, 5
NO_SUCH_TYPE = 15  # __sock_create() refuses it with EINVAL before it looks at the family
NETLINK_AUDIT = 9
TIOCSTI, TIOCLINUX, TIOCSCTTY = 0x5412, 0x541C, 0x540E
INIT = 1
PTRACE_SEIZE = 0x4206

# One local and one remote vector of process_vm_readv(2): 64 bytes from where the init is linked to.
_ROOM = ctypes.create_string_buffer(64)
_PAIRS = (ctypes.c_uint64 * 4)(ctypes.addressof(_ROOM), 64, 0x400000 if X86_64 else 0x210000, 64)
VECTORS = (ctypes.addressof(_PAIRS), 1, ctypes.addressof(_PAIRS) + 16, 1)


class SystemCall(NamedTuple):
    """Numbers on x86_64 and aarch64 (None: it has none), and arguments."""

    x86_64: int
    aarch64: int | None
    arguments: tuple[int, ...] = ()


CALLS: dict[str, SystemCall] = {
    "bpf": SystemCall(321, 280, (0, 0, 0)),
    "perf_event_open": SystemCall(298, 241, (0, 0, -1, -1, 0)),
    "userfaultfd": SystemCall(323, 282, (0xFFFF,)),
    "io_uring_setup": SystemCall(425, 425, (0, 0)),
    "io_uring_enter": SystemCall(426, 426, (-1, 0, 0, 0)),
    "keyctl": SystemCall(250, 219, (0, 0, 0)),
    "add_key": SystemCall(248, 217, (0, 0, 0, 0, 0)),
    "request_key": SystemCall(249, 218, (0, 0, 0, 0)),
    "mount": SystemCall(165, 40, (0, 0, 0, 0, 0)),
    "umount2": SystemCall(166, 39, (0, 0)),
    "pivot_root": SystemCall(155, 41, (0, 0)),
    "chroot": SystemCall(161, 51, (0,)),
    "open_tree": SystemCall(428, 428, (-1, 0, 0)),
    "fsopen": SystemCall(430, 430, (0, 0)),
    "fsconfig": SystemCall(431, 431, (-1, 0, 0, 0, 0)),
    "fsmount": SystemCall(432, 432, (-1, 0, 0)),
    "move_mount": SystemCall(429, 429, (-1, 0, -1, 0, 0)),
    "mount_setattr": SystemCall(442, 442, (-1, 0, 0, 0, 0)),
    "unshare(NEWUSER)": SystemCall(272, 97, (0x10000000,)),
    "unshare(NEWNS)": SystemCall(272, 97, (0x00020000,)),
    "setns": SystemCall(308, 268, (-1, 0)),
    "clone(NEWUSER)": SystemCall(56, 220, (0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)),
    "clone(NEWNET|NEWPID)": SystemCall(56, 220, (0x60000000 | signal.SIGCHLD, 0, 0, 0, 0)),
    "clone3": SystemCall(435, 435, (0, 0)),
    "init_module": SystemCall(175, 105, (0, 0, 0)),
    "finit_module": SystemCall(313, 273, (-1, 0, 0)),
    "delete_module": SystemCall(176, 106, (0, 0)),
    "kexec_load": SystemCall(246, 104, (0, 0, 0, 0)),
    "kexec_file_load": SystemCall(320, 294, (-1, -1, 0, 0, 0)),
    "reboot": SystemCall(169, 142, (0, 0, 0, 0)),
    "swapon": SystemCall(167, 224, (0, 0)),
    "acct": SystemCall(163, 89, (0,)),
    "quotactl": SystemCall(179, 60, (0, 0, 0, 0)),
    "iopl": SystemCall(172, None, (0,)),
    "modify_ldt": SystemCall(154, None, (0, 0, 0)),
    "settimeofday": SystemCall(164, 170, (1, 0)),
    "clock_settime": SystemCall(227, 112, (0, 1)),
    "sethostname": SystemCall(170, 161, (0, 0)),
    "setdomainname": SystemCall(171, 162, (0, 0)),
    "vhangup": SystemCall(153, 58, ()),
    "syslog(READ_ALL)": SystemCall(103, 116, (3, 0, 0)),
    "open_by_handle_at": SystemCall(304, 265, (-1, 0, 0)),
    "name_to_handle_at": SystemCall(303, 264, (-1, 0, 0, 0, 0)),
    "kcmp": SystemCall(312, 272, (0, 0, 0, 0, 0)),
    "pidfd_getfd": SystemCall(438, 438, (-1, 0, 0)),
    "process_madvise": SystemCall(440, 440, (-1, 0, 0, 0, 0)),
    "fanotify_init": SystemCall(300, 262, (0, 0)),
    "move_pages": SystemCall(279, 239, (0, 0, 0, 0, 0, 0)),
    "migrate_pages": SystemCall(256, 238, (0, 0, 0, 0)),
    "mbind": SystemCall(237, 235, (0, 0, 0, 0, 0, 0)),
    "lookup_dcookie": SystemCall(212, 18, (0, 0, 0)),
    "vmsplice": SystemCall(278, 75, (-1, 0, 0, 0)),
    "an unknown call": SystemCall(1900, 1900, ()),
    "personality(ADDR_NO_RANDOMIZE)": SystemCall(135, 92, (0x40000,)),
    "personality(READ_IMPLIES_EXEC)": SystemCall(135, 92, (0x400000,)),
    "ptrace(SEIZE, init)": SystemCall(101, 117, (PTRACE_SEIZE, INIT, 0, 0)),
    "process_vm_readv(init)": SystemCall(310, 270, (INIT, *VECTORS, 0)),
    "prlimit64(init)": SystemCall(302, 261, (INIT, 7, 0, 0)),
    "socket(AF_ALG)": SystemCall(41, 198, (AF_ALG, SOCK_SEQPACKET, 0)),
    "socket(AF_VSOCK)": SystemCall(41, 198, (AF_VSOCK, SOCK_STREAM, 0)),
    "socket(AF_PACKET)": SystemCall(41, 198, (AF_PACKET, SOCK_RAW, 0)),
    "socket(AF_XDP)": SystemCall(41, 198, (AF_XDP, SOCK_RAW, 0)),
    "socket(AF_RDS)": SystemCall(41, 198, (AF_RDS, SOCK_SEQPACKET, 0)),
    "socket(AF_TIPC)": SystemCall(41, 198, (AF_TIPC, SOCK_SEQPACKET, 0)),
    "socket(AF_ALG, filter)": SystemCall(41, 198, (AF_ALG, NO_SUCH_TYPE, 0)),
    "socket(AF_ALG + 2**32, filter)": SystemCall(41, 198, (1 << 32 | AF_ALG, NO_SUCH_TYPE, 0)),
    "socket(AF_VSOCK, filter)": SystemCall(41, 198, (AF_VSOCK, NO_SUCH_TYPE, 0)),
    "socket(AF_PACKET, filter)": SystemCall(41, 198, (AF_PACKET, NO_SUCH_TYPE, 0)),
    "socket(AF_XDP, filter)": SystemCall(41, 198, (AF_XDP, NO_SUCH_TYPE, 0)),
    "socket(AF_RDS, filter)": SystemCall(41, 198, (AF_RDS, NO_SUCH_TYPE, 0)),
    "socket(AF_TIPC, filter)": SystemCall(41, 198, (AF_TIPC, NO_SUCH_TYPE, 0)),
    "socketpair(AF_TIPC)": SystemCall(53, 199, (AF_TIPC, NO_SUCH_TYPE, 0, 0)),
    "socket(NETLINK_AUDIT)": SystemCall(41, 198, (AF_NETLINK, SOCK_RAW, NETLINK_AUDIT)),
    "socket(AF_INET, SOCK_RAW)": SystemCall(41, 198, (AF_INET, SOCK_RAW, 1)),
}


def in_a_child(work: Callable[[], None]) -> str:
    """`ok`, the errno of an OSError, or the signal's name: how a child ends that does `work`."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except OSError as error:
            os._exit(error.errno or 255)
        except BaseException:  # noqa: BLE001 -- a forked child must never return
            os._exit(254)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        return signal.Signals(-code).name
    return errno.errorcode.get(code, str(code)) if code else "ok"


def system_call(call: SystemCall) -> None:
    """Raises OSError with what the kernel, or the filter, answers."""
    number = call.x86_64 if X86_64 else call.aarch64
    ctypes.set_errno(0)
    if LIBC.syscall(*map(ctypes.c_long, (number or 0, *call.arguments))) == -1:
        raise OSError(ctypes.get_errno(), "")


def calls() -> dict[str, str]:
    return {
        name: in_a_child(lambda call=call: system_call(call))  # type: ignore[misc]
        for name, call in CALLS.items()
        if X86_64 or call.aarch64 is not None
    }


# The instructions of getpid by the other two ways into an x86_64 kernel.
OTHER_ABIS = {
    "x32": b"\xb8\x27\x00\x00\x40\x0f\x05\xc3",
    "i386": b"\xb8\x14\x00\x00\x00\xcd\x80\xc3",
}


def other_abi(code: bytes) -> str:
    """How a child ends that makes one call of another ABI."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    call = ctypes.CFUNCTYPE(ctypes.c_int)(address)

    def work() -> None:
        call()

    return in_a_child(work)


def other_abis() -> dict[str, str]:
    return {name: other_abi(code) for name, code in OTHER_ABIS.items()} if X86_64 else {}


def terminal_input() -> dict[str, str]:
    """Typing into one's own controlling terminal; and whether a terminal can be had at all."""
    controller, terminal = os.openpty()
    character = ctypes.create_string_buffer(b"\x03x")

    def request(number: int) -> Callable[[], None]:
        def work() -> None:
            os.setsid()
            LIBC.ioctl(terminal, ctypes.c_ulong(TIOCSCTTY), 0)
            ctypes.set_errno(0)
            if LIBC.ioctl(terminal, ctypes.c_ulong(number), character) == -1:
                raise OSError(ctypes.get_errno(), "")

        return work

    names = {"TIOCSTI": TIOCSTI, "TIOCSTI + 2**32": 1 << 32 | TIOCSTI, "TIOCLINUX": TIOCLINUX}
    answers = {name: in_a_child(request(number)) for name, number in names.items()}
    answers["isatty"] = "ok" if os.isatty(terminal) else "no"
    os.close(controller)
    os.close(terminal)
    return answers


def setuid() -> str:
    """Becoming somebody else."""
    return in_a_child(lambda: os.setuid(12345))


def setgroups() -> str:
    """Giving up a group that a file may deny things to, or taking one."""
    return in_a_child(lambda: os.setgroups([12345]))


def mknod_device() -> str:
    """A character device of one's own: 1:1 is /dev/mem."""
    path = f"/tmp/mem-{os.getpid()}"
    return in_a_child(lambda: os.mknod(path, 0o20600, os.makedev(1, 1)))


OBSERVATIONS: dict[str, Callable[[], object]] = {
    "calls": calls,
    "other_abis": other_abis,
    "terminal_input": terminal_input,
    "setuid": setuid,
    "setgroups": setgroups,
    "mknod_device": mknod_device,
}
