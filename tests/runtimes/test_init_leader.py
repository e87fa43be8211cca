"""Who takes the next order of a session: there before it, whatever is done to it meanwhile."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from ocisbx.init import protocol, wire
from ocisbx.init.protocol import Failed, Ready, Stage, Started
from tests.box import eventually
from tests.runtimes.init_container import TIMEOUT_S, Bundle, Container, Runtime
from tests.runtimes.test_init_run import (
    Side,
    every_runtime,
    one_native,
    session,
    shell,
    told,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["session"]

pytestmark = pytest.mark.runtime

# linux/ptrace.h
PTRACE_DETACH, PTRACE_SYSCALL, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 24, 0x4206, 0x4207

# Those that lead no command yet: of ours, not process 1, and no child's parent. The next is there
# when a command has run for some time.
WAITING = """
sleep 0.1
for at in /proc/[0-9]*; do
  read -r name 2>/dev/null <$at/cmdline || :
  pid=${at#/proc/}
  case $name in /ocisbx-init*) ;; *) continue ;; esac
  [ $pid = 1 ] || grep -qs " $pid (\\|^PPid:\t$pid$" /proc/[0-9]*/status || echo $pid
done
"""


def signalled(number: signal.Signals) -> str:
    """What signals those, and prints their pids."""
    return WAITING.replace("echo $pid", f"{{ kill -{number:d} $pid; echo $pid; }}")


def waiting(session: Container) -> list[int]:
    """Their pids inside."""
    return list(map(int, told(session, WAITING).split()))


def one_waits(session: Container) -> int:
    found: list[int] = []

    def look() -> bool:
        found[:] = waiting(session)
        return len(found) == 1

    assert eventually(look), found
    return found[0]


@every_runtime
def test_it_is_there_before_the_order_and_is_made_anew(session: Container) -> None:
    first = one_waits(session)
    # It is who leads this one.
    assert int(told(session, "echo $PPID")) == first
    assert one_waits(session) != first


@every_runtime
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_a_command_kills_or_stops_is_replaced(
    number: signal.Signals, session: Container
) -> None:
    one_waits(session)
    # Another one than who leads the command that does it; who has just been killed may take one
    # order along.
    (waited,) = map(int, told(session, f"sleep 0.5; {signalled(number)} sleep 0.2").split())
    assert told(session, "echo still taken") == b"still taken\n"
    assert one_waits(session) != waited


@every_runtime
def test_what_it_is_sent_while_it_waits_is_not_the_next_commands(session: Container) -> None:
    told_it = told(session, f"sleep 0.5; {signalled(signal.SIGTERM)}")
    assert len(told_it.split()) == 1
    assert told(session, "sleep 0.2; echo not ended") == b"not ended\n"


@every_runtime
@pytest.mark.parametrize(
    "packet", [b"", b"x", b"x" * 40_000, protocol.encode(protocol.End())], ids=len
)
def test_an_order_that_is_none_costs_nothing_else(packet: bytes, session: Container) -> None:
    for _ in range(3):
        session.orders.send(packet)
    assert told(session, "echo lives") == b"lives\n"


@one_native
def test_where_none_can_be_made_the_order_is_refused(session: Container) -> None:
    """As in a container that has as many processes as it may."""
    before = resource.prlimit(session.init_pid, resource.RLIMIT_NPROC)
    resource.prlimit(session.init_pid, resource.RLIMIT_NPROC, (0, before[1]))
    with Side(session, shell("echo never")) as side:
        assert side.expect(Failed) == Failed(Stage.CLONE, errno.EAGAIN)
        assert wire.receive(side.sock) is None
    resource.prlimit(session.init_pid, resource.RLIMIT_NPROC, before)
    assert told(session, "echo again") == b"again\n"


@one_native
def test_leaders_that_all_end_at_once_are_not_made_without_end(session: Container) -> None:
    """A command's ids are process 1's: it may take every descriptor of the next ones away."""
    one_waits(session)
    told(session, f"sleep 0.5; prlimit --pid 1 --nofile=3:3; {signalled(signal.SIGKILL)} sleep 0.2")
    init = psutil.Process(session.init_pid)
    before = sum(init.cpu_times()[:4])
    for _ in range(3):
        with Side(session, shell("echo never")) as side:
            assert wire.receive(side.sock) is None
    time.sleep(0.5)
    assert sum(init.cpu_times()[:4]) - before < 0.2


@every_runtime
def test_beside_a_containers_own_command_nobody_waits(runtime: Runtime, tmp_path: Path) -> None:
    """Its command might count, or signal, what is there."""
    with Container(Bundle(tmp_path, runtime, ["/bin/sh", "-c", "sleep 75"])) as container:
        container.go()
        container.expect(Started)
        container.orders.send(b"")
        for _ in range(3):
            assert waiting(container) == []


@every_runtime
def test_many_orders_at_once(session: Container) -> None:
    sides = [Side(session, shell(f"echo {number}")) for number in range(30)]
    for number, side in enumerate(sides):
        with side:
            side.expect(Started)
            assert side.rest() == b"%d\n" % number
            assert side.finish().status == 0


@one_native
def test_process_1_rests_where_no_leader_is_to_be_made(runtime: Runtime, tmp_path: Path) -> None:
    with Container(Bundle(tmp_path, runtime, ["/bin/sh", "-c", "exit 4"])) as container:
        container.expect(Ready)
        assert container.orders.fileno() >= 0
        init = psutil.Process(container.init_pid)
        time.sleep(0.1)
        before = init.num_ctx_switches().voluntary
        time.sleep(0.5)
        assert init.num_ctx_switches().voluntary - before < 20
        wire.send_go(container.sock)
        container.expect(Started)
        assert container.finish()[1] == 4


@every_runtime
def test_outputs_end_with_the_report(session: Container) -> None:
    """Its driver is woken once, by that."""
    typed, types = os.pipe()
    script = "exec >&- 2>&-; read line; exit 3"
    with Side(session, shell(script), through=typed) as side:
        os.close(typed)
        side.expect(Started)
        assert select.select([side.out, side.sock.fileno()], [], [], 0.5)[0] == []
        os.write(types, b"on\n")
        os.close(types)
        assert select.select([side.sock], [], [], TIMEOUT_S)[0]
        assert side.rest() == b""
        assert side.finish().status == 3


class Slowed:
    """A process that we hold up before and after each of its system calls (ptrace(2))."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._call(PTRACE_SEIZE)
        self._call(PTRACE_INTERRUPT)

    def step(self, pause_s: float) -> None:
        os.waitpid(self._pid, 0)
        time.sleep(pause_s)
        self._call(PTRACE_SYSCALL)

    def let_go(self) -> None:
        self._call(PTRACE_INTERRUPT)
        os.waitpid(self._pid, 0)
        self._call(PTRACE_DETACH)

    def _call(self, request: int) -> None:
        assert ctypes.CDLL(None).ptrace(request, self._pid, None, None) == 0


@one_native
@pytest.mark.parametrize("count", [2, 4])
def test_leaders_that_end_before_process_1_looks_took_their_orders(
    count: int, session: Container
) -> None:
    """As on a busy machine: each step of it takes longer than their whole lives."""
    slowed = Slowed(session.init_pid)
    sides = [Side(session, shell("exit 3")) for _ in range(count + 1)]
    for side in sides[:-1]:
        # Its leader does not wait for us.
        with side:
            pass
    with sides[-1] as side:
        while not select.select([side.sock], [], [], 0)[0]:
            slowed.step(0.003)
        slowed.let_go()
        side.expect(Started)
        assert side.finish().status == 3


@one_native
@pytest.mark.parametrize("kind", ["a pipe", "nothing", "a second time"])
def test_a_place_for_orders_that_is_none_ends_the_container(kind: str, session: Container) -> None:
    packet = protocol.encode(protocol.Listen())
    if kind == "a second time":
        assert told(session, "echo first") == b"first\n"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    with ours, theirs, os.fdopen(read), os.fdopen(write):
        given = {"a pipe": [read], "nothing": [], "a second time": [theirs.fileno()]}[kind]
        socket.send_fds(session.sock, [packet], given)
        assert session.wait() == 125
