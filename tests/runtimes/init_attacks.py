"""A payload that attacks process 1; run inside the container by test_init_attack.py.

Prints one JSON object: attack -> the errno's name, or what it got. Uses ctypes: the payload is a
plain program of the distribution and sees nothing of the project.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import signal
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
INIT = 1
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
NUMBERS = {
    "x86_64": {"ptrace": 101, "kcmp": 312, "process_vm_readv": 310, "process_vm_writev": 311},
    "aarch64": {"ptrace": 117, "kcmp": 272, "process_vm_readv": 270, "process_vm_writev": 271},
}[platform.machine()] | {"pidfd_open": 434, "pidfd_getfd": 438, "process_madvise": 440}


def syscall(name: str, *arguments: int) -> int:
    LIBC.syscall.restype = ctypes.c_long
    result: int = LIBC.syscall(*[ctypes.c_long(one) for one in (NUMBERS[name], *arguments)])
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def vectors(address: int) -> tuple[int, int, object]:
    """process_vm_readv's local and remote vector, and what keeps their memory alive."""
    room = ctypes.create_string_buffer(64)
    numbers = struct.pack("QQQQ", ctypes.addressof(room), 64, address, 64)
    pair = ctypes.create_string_buffer(numbers)
    return ctypes.addressof(pair), ctypes.addressof(pair) + 16, (room, pair)


def vm(name: str) -> int:
    # the start of a static program's text, where the init is linked to
    local, remote, _memory = vectors(0x400000 if platform.machine() == "x86_64" else 0x210000)
    return syscall(name, INIT, local, 1, remote, 1, 0)


def take_descriptor(number: int) -> int:
    pidfd = syscall("pidfd_open", INIT, 0)
    return syscall("pidfd_getfd", pidfd, number, 0)


def opened(path: str, flags: int) -> int:
    fd = os.open(path, flags)
    os.close(fd)
    return 0


def read(path: str) -> bytes:
    return Path(path).read_bytes()


ATTACKS: dict[str, Callable[[], object]] = {
    "fdinfo": lambda: list(Path("/proc/1/fdinfo").iterdir()),
    "descriptor 3": lambda: Path("/proc/1/fd/3").readlink(),
    "open descriptor 3": lambda: opened("/proc/1/fd/3", os.O_RDWR),
    "read memory": lambda: opened("/proc/1/mem", os.O_RDONLY),
    "write memory": lambda: opened("/proc/1/mem", os.O_RDWR),
    "maps": lambda: read("/proc/1/maps"),
    "environ": lambda: read("/proc/1/environ"),
    "root": lambda: list(Path("/proc/1/root/").iterdir()),
    "program": lambda: opened("/proc/1/exe", os.O_RDONLY),
    "auxv": lambda: read("/proc/1/auxv"),
    "io": lambda: read("/proc/1/io"),
    "syscall": lambda: read("/proc/1/syscall"),
    "namespace": lambda: Path("/proc/1/ns/net").readlink(),
    "ptrace attach": lambda: syscall("ptrace", PTRACE_ATTACH, INIT, 0, 0),
    "ptrace seize": lambda: syscall("ptrace", PTRACE_SEIZE, INIT, 0, 0),
    "process_vm_readv": lambda: vm("process_vm_readv"),
    "process_vm_writev": lambda: vm("process_vm_writev"),
    "process_madvise": lambda: syscall(
        "process_madvise", syscall("pidfd_open", INIT, 0), 0, 0, 21, 0
    ),
    "pidfd_getfd": lambda: take_descriptor(3),
    "kcmp": lambda: syscall("kcmp", INIT, os.getpid(), 0, 0, 0),
}


def attempt(attack: Callable[[], object]) -> str:
    try:
        return f"got {attack()!r}"
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def signals_to_init(*, unstoppable: bool) -> dict[str, object]:
    """Every signal to process 1, one by one: each comes back to us, but the two that kill or stop.

    One by one, because a stop signal removes a pending SIGCONT (signal(7)).
    """
    got: set[int] = set()
    catchable = {int(one) for one in signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP}
    for signo in catchable:
        signal.signal(signo, lambda number, _frame: got.add(number))
    forwarded = catchable - {signal.SIGCHLD}
    fatal = (signal.SIGKILL, signal.SIGSTOP) if unstoppable else ()
    for signo in (*fatal, signal.SIGCHLD, *sorted(forwarded)):
        os.kill(INIT, signo)
        end = time.monotonic() + 5
        while signo in forwarded and signo not in got and time.monotonic() < end:
            time.sleep(0.0005)
    return {"missing": sorted(forwarded - got), "extra": sorted(got - forwarded)}


def forge() -> list[str]:
    """A report on every descriptor number there might be."""
    packet = struct.pack("<IHHIIIIQII18Q", 0x5842534F, 1, 19, 1, 168, 1, 77, *([0] * 21))
    written = []
    for fd in range(3, 1024):
        try:
            os.write(fd, packet)
            written.append(str(fd))
        except OSError as error:
            if error.errno != errno.EBADF:
                written.append(f"{fd} {error}")
    return written


def main(*, unstoppable: bool) -> None:
    results: dict[str, object] = {"forge": forge()}
    results |= {name: attempt(attack) for name, attack in ATTACKS.items()}
    results["signals"] = signals_to_init(unstoppable=unstoppable)
    sys.stdout.write(json.dumps(results))


def forge_with_descriptor_3() -> None:
    """What the guarantee prevents: the init's own descriptor, and a report of our making on it."""
    take_descriptor(3)
    forge()
    time.sleep(10)
