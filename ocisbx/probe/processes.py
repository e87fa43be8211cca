"""Who a process is, beyond its pid: read from /proc."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from typing import TYPE_CHECKING

from ocisbx.errors import InvalidState

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def boot_id() -> str:
    """The kernel's id of this boot (random(4)): what tells a reused pid of before a reboot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def start_time(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot (proc_pid_stat(5), field 22); None: gone.

    Together with the boot id it names a process for good; a pid alone is reused.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name (field 2) may hold spaces and parentheses: count from its last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@cache
def pid_namespace() -> int:
    """The inode that names our pid namespace (namespaces(7)): pids of another mean nothing here."""
    return os.stat("/proc/self/ns/pid").st_ino


def own_start_time() -> int:
    """`start_time` of this process."""
    return _own_start_time(os.getpid())


@cache
def _own_start_time(pid: int) -> int:
    # By pid: a child that was forked has another one.
    return start_time(pid) or 0


def command_line(pid: int) -> list[bytes]:
    """The arguments of `pid`; empty when it is gone, a zombie, or somebody else's."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """The children of the first thread of `pid` (proc_pid_task_tid_children(5))."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return list(map(int, file.read().split()))
    except OSError:
        return []


def processes() -> list[int]:
    """The pids that /proc shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def oom_score_adj() -> int:
    """Our own (proc_pid_oom_score_adj(5)); below 0 the kernel spares us when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def is_still(stat: bytes) -> bool:
    """Whether a process does nothing any more, by its /proc/PID/stat (proc_pid_stat(5), "state"):
    stopped by a signal or a debugger, or dead. Of one with many threads the first is a zombie
    before the last has ended, which is when a pidfd tells of it."""
    return stat.rpartition(b")")[2][1:2] in (b"T", b"t", b"Z", b"X")


@contextlib.contextmanager
def handle_of(pid: int | None) -> Iterator[int | None]:
    """A pidfd of the process that something is to end with; None where there is none.

    Raises:
        InvalidState: it has ended already.
    """
    if pid is None:
        yield None
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise InvalidState("the process to end with has ended already") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)
