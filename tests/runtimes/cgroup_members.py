"""Processes that are hard to kill, for test_cgroup_kill.py: `cgroup_members.py KIND [ARGUMENT]`.

tree COUNT: so many processes, of which every fourth is stopped, every fourth another's orphan in a
session of its own, and every fourth ignores what can be ignored. hoppers COUNT: each is replaced by
its child without end. threads DIRECTORY: a second thread, which moves into that threaded cgroup.
traced DIRECTORY: a child in that cgroup, stopped, of which this process is the tracer. held
DIRECTORY: the same, and the child stops at its exit once more, for a tracer that never answers.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PTRACE_TRACEME = 0
PTRACE_SETOPTIONS = 0x4200
PTRACE_O_TRACEEXIT = 0x40

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def sleep() -> None:
    while True:
        time.sleep(1000)


def orphan() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    sleep()


def stopped() -> None:
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


def stubborn() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    sleep()


KINDS = (sleep, orphan, stopped, stubborn)


def tree(count: int) -> None:
    """A chain of parents with twelve children each."""
    made = 1
    while made < count:
        if made % 13 == 0:
            if os.fork():
                break
        elif os.fork() == 0:
            KINDS[made % len(KINDS)]()
        made += 1
    sleep()


def hop() -> None:
    while os.fork() == 0:
        pass
    os._exit(0)


def hoppers(count: int) -> None:
    for _ in range(count):
        if os.fork() == 0:
            hop()
    sleep()


def threads(directory: str) -> None:
    def move() -> None:
        with open(f"{directory}/cgroup.threads", "w", encoding="ascii") as file:
            file.write(str(threading.get_native_id()))
        sleep()

    threading.Thread(target=move).start()
    sleep()


def traced(directory: str, options: int = 0) -> None:
    child = os.fork()
    if child == 0:
        with open(f"{directory}/cgroup.procs", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
        libc.ptrace(PTRACE_TRACEME, 0, None, None)
        stopped()
    os.waitpid(child, 0)
    if libc.ptrace(PTRACE_SETOPTIONS, child, None, options):
        sys.exit("cannot trace")
    print(child, flush=True)  # noqa: T201 -- the test reads it
    sleep()


def held(directory: str) -> None:
    traced(directory, PTRACE_O_TRACEEXIT)


if __name__ == "__main__":
    kind, argument = sys.argv[1:]
    if kind in ("tree", "hoppers"):
        {"tree": tree, "hoppers": hoppers}[kind](int(argument))
    else:
        {"threads": threads, "traced": traced, "held": held}[kind](argument)
