"""RUN: the command of a waiting container, and further commands beside it, each with a channel."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

from ocisbx.init import protocol, wire
from ocisbx.init.protocol import (
    Exited,
    Failed,
    GoFlag,
    Kind,
    Ready,
    Run,
    Stage,
    Started,
    Target,
)
from ocisbx.init.wire import Command
from tests.box import eventually
from tests.runtimes.init_container import NATIVE, RUNTIMES, TIMEOUT_S, Bundle, Container, Runtime

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

pytestmark = pytest.mark.runtime
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda one: one.name)
every_native = pytest.mark.parametrize("runtime", NATIVE, ids=lambda one: one.name)
one_native = pytest.mark.parametrize("runtime", NATIVE[-1:], ids=lambda one: one.name)

PATH = "PATH=/usr/local/bin:/usr/bin:/bin"
# All that runs in the container, by its arguments.
LOOK = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"


def shell(source: str, *, directory: str = "", environment: tuple[str, ...] = ()) -> Command:
    return Command(("/bin/sh", "-c", source), (PATH, *environment), directory)


class Side:
    """A further command in a container: its channel and the read end of its stdout."""

    def __init__(
        self,
        container: Container,
        command: Command,
        *,
        terminal: bool = False,
        through: int | None = None,
    ) -> None:
        self.sock, theirs = wire.report_socketpair()
        self.sock.settimeout(TIMEOUT_S)
        self.out, write = os.pipe()
        stdout = None if terminal else write
        with theirs:
            wire.send_run(
                container.orders,
                command,
                stdin=through,
                stdout=stdout,
                channel=theirs.fileno(),
                terminal=terminal,
            )
        os.close(write)

    def expect(self, kind: type[Any]) -> Any:
        received = wire.receive(self.sock)
        assert received is not None
        assert isinstance(received.packet, kind), received
        return received.packet

    def line(self) -> bytes:
        got = b""
        while not got.endswith(b"\n") and (byte := os.read(self.out, 1)):
            got += byte
        return got

    def rest(self) -> bytes:
        got = b""
        while data := os.read(self.out, 65536):
            got += data
        return got

    def finish(self) -> Exited:
        report: Exited = self.expect(Exited)
        wire.send_end(self.sock)
        return report

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sock.close()
        os.close(self.out)


def told(container: Container, source: str) -> bytes:
    """What a further command prints."""
    with Side(container, shell(source)) as side:
        side.expect(Started)
        assert side.finish().status == 0
        return side.rest()


@pytest.fixture
def session(runtime: Runtime, tmp_path: Path) -> Any:
    with Container(Bundle(tmp_path, runtime, [])) as container:
        container.expect(Ready)
        yield container


@every_runtime
def test_a_waiting_container_is_given_its_command_once(runtime: Runtime, tmp_path: Path) -> None:
    read, write = os.pipe()
    with Container(Bundle(tmp_path, runtime, [])) as container, os.fdopen(read, "rb") as out:
        container.expect(Ready)
        command = shell("pwd; echo $A; exit 7", directory="/usr", environment=("A=b c",))
        wire.send_run(container.sock, command, stdout=write)
        os.close(write)
        container.expect(Started)
        report, code = container.finish()
        assert (report.kind, report.status, code) == (Kind.EXITED, 7, 7)
        assert out.read() == b"/usr\nb c\n"


@every_runtime
def test_a_command_that_is_longer_than_a_packet(runtime: Runtime, tmp_path: Path) -> None:
    read, write = os.pipe()
    word = "x" * 100_000
    environment = tuple(f"V{number}={number}" for number in range(5000))
    with Container(Bundle(tmp_path, runtime, [])) as container, os.fdopen(read, "rb") as out:
        container.expect(Ready)
        source = 'echo ${#1} $V4999; [ "$1" = "$2" ]'
        command = Command(("/bin/sh", "-c", source, "sh", word, word), (PATH, *environment))
        wire.send_run(container.sock, command, stdout=write)
        os.close(write)
        container.expect(Started)
        report, _ = container.finish()
        assert (report.kind, report.status) == (Kind.EXITED, 0)
        assert out.read() == b"100000 4999\n"


@every_runtime
@pytest.mark.usefixtures("runtime")
def test_commands_run_side_by_side_and_report_apart(session: Container) -> None:
    slow = Side(session, shell("echo up; read nothing; sleep 60"))
    with slow, Side(session, shell("echo other; exit 3")) as quick:
        slow.expect(Started)
        quick.expect(Started)
        assert quick.rest() == b"other\n"
        assert quick.finish().status == 3
        assert slow.line() == b"up\n"
        wire.send_signal(slow.sock, signal.SIGTERM)
        report = slow.finish()
        assert (report.kind, report.status, report.signals) == (Kind.SIGNALED, 15, 1)
    assert told(session, "echo still here") == b"still here\n"


@every_runtime
@pytest.mark.usefixtures("runtime")
def test_what_a_command_leaves_running_stays(session: Container) -> None:
    told(session, "sleep 61 </dev/null >/dev/null & setsid sleep 62 </dev/null >/dev/null &")
    for left in (b"sleep 61", b"sleep 62"):
        assert eventually(lambda left=left: left in told(session, LOOK))  # type: ignore[misc]


TREES = [63, 64, 65]
TREE = (
    "(setsid sh -c 'sleep 63; :' >/dev/null & ) ; (sleep 64; :) >/dev/null & echo up; sleep 65; :"
)


def asleep(session: Container, *seconds: int) -> list[int]:
    """Those of them for which something sleeps; a shell that is going to start it does not."""
    seen = told(session, LOOK)
    return [n for n in seconds if b"sleep %d " % n in seen]


@every_runtime
@pytest.mark.parametrize("how", ["a signal", "a hang-up"])
def test_a_commands_whole_tree_is_killed_without_the_others(how: str, session: Container) -> None:
    with Side(session, shell("echo up; sleep 66; :")) as other:
        other.expect(Started)
        assert other.line() == b"up\n"
        with Side(session, shell(TREE)) as side:
            side.expect(Started)
            assert side.line() == b"up\n"
            # All at once are killed who are there; none may be on its way yet.
            assert eventually(lambda: asleep(session, *TREES) == TREES)
            if how == "a signal":
                wire.send_signal(side.sock, signal.SIGKILL, Target.ALL)
                assert side.finish().status == signal.SIGKILL
        assert eventually(lambda: asleep(session, *TREES) == [])
        assert asleep(session, 66) == [66]
        wire.send_signal(other.sock, signal.SIGKILL)
        other.finish()


@every_runtime
def test_none_of_a_tree_is_missed_where_its_parent_dies_while_it_is_looked_at(
    session: Container,
) -> None:
    chain = "g() { [ $1 -gt 0 ] || exec sleep 69; (g $(($1 - 1)); :) & wait; }; g 40; :"
    for _ in range(5):
        with Side(session, shell(chain)) as side:
            side.expect(Started)
            assert eventually(lambda: asleep(session, 69) == [69])
            wire.send_signal(side.sock, signal.SIGKILL, Target.ALL)
            assert side.finish().status == signal.SIGKILL
            assert eventually(lambda: b"sleep 69" not in told(session, LOOK))


@every_native
def test_who_has_lost_its_first_thread_is_killed_as_well(session: Container) -> None:
    """It counts as a zombie, and runs on (pthread_exit(3))."""
    script = """import ctypes, subprocess, threading
def run():
    while True:
        subprocess.run(['sleep', '67'])
threading.Thread(target=run).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    with Side(session, Command(("python3", "-I", "-S", "-c", script), (PATH,))) as side:
        side.expect(Started)
        assert eventually(lambda: asleep(session, 67) == [67])
        wire.send_signal(side.sock, signal.SIGKILL, Target.ALL)
        assert side.finish().status == signal.SIGKILL
    time.sleep(0.1)
    assert asleep(session, 67) == []
    detached = 'setsid python3 -I -S -c "$0" & echo up; sleep 66; :'
    with Side(session, Command(("sh", "-c", detached, script), (PATH,))) as side:
        side.expect(Started)
        assert eventually(lambda: asleep(session, 66, 67) == [66, 67])
    assert eventually(lambda: asleep(session, 66, 67) == [])


@every_native
def test_a_tree_that_grows_while_it_is_killed(session: Container) -> None:
    grow = (
        "g() { [ $1 -gt 0 ] || exec sleep 68; g $(($1 - 1)) & g $(($1 - 1)) & wait; }; echo up; g 7"
    )
    with Side(session, shell(grow)) as side:
        side.expect(Started)
        assert side.line() == b"up\n"
        time.sleep(0.05)
    deadline = time.monotonic() + TIMEOUT_S
    while b"sleep 68" in (seen := told(session, LOOK)):
        assert time.monotonic() < deadline, seen


@every_native
def test_a_command_has_three_descriptors_and_usage_of_its_own(session: Container) -> None:
    assert told(session, "ls /proc/self/fd | tr '\\n' ' '") == b"0 1 2 3 "
    busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    with Side(session, shell(f"({busy}) & wait")) as side:
        side.expect(Started)
        used = side.finish().total.user_usec
    with Side(session, shell(":")) as side:
        side.expect(Started)
        assert side.finish().total.user_usec < used / 2


@every_native
def test_a_leader_that_a_command_kills_leaves_no_report(session: Container) -> None:
    """Its command goes on without anybody who speaks for it, until the container ends."""
    with Side(session, shell("sleep 0.3; kill -9 $PPID; sleep 69")) as side:
        side.expect(Started)
        assert wire.receive(side.sock) is None
    assert told(session, "echo lives") == b"lives\n"


@every_runtime
@pytest.mark.parametrize(
    ("command", "failed"),
    [
        (Command(("/no/such",), ()), Failed(Stage.EXEC, errno.ENOENT)),
        (Command(("/usr",), ()), Failed(Stage.EXEC, errno.EACCES)),
        (Command(("true",), (PATH,), "/no/such"), Failed(Stage.CHDIR, errno.ENOENT)),
        (Command(("true",), (PATH,), uid=77), Failed(Stage.USER, errno.EPERM)),
    ],
    ids=["missing", "a directory", "no such directory", "another user"],
)
def test_a_command_that_cannot_start(command: Command, failed: Failed, session: Container) -> None:
    with Side(session, command) as side:
        assert side.expect(Failed) == failed
        wire.send_end(side.sock)
        assert wire.receive(side.sock) is None
    assert told(session, "echo lives") == b"lives\n"


@every_runtime
def test_a_command_beside_the_containers_own(runtime: Runtime, tmp_path: Path) -> None:
    with Container(Bundle(tmp_path, runtime, ["/bin/sh", "-c", "sleep 70"])) as container:
        container.go()
        container.expect(Started)
        assert eventually(lambda: b"sleep\0" in told(container, "cat /proc/*/cmdline"))
        side = Side(container, shell("echo up; sleep 71"))
        with side:
            side.expect(Started)
            assert side.line() == b"up\n"
            wire.send_signal(container.sock, signal.SIGKILL)
            report, _ = container.finish()
            assert report.status == signal.SIGKILL
            # It goes with the container, and nobody is left to report it.
            assert wire.receive(side.sock) is None


def _run(
    flags: int = 0, argc: int = 1, envc: int = 0, strings: bytes = b"\0ls\0", size: int = -1
) -> bytes:
    size = len(strings) if size < 0 else size
    body = struct.pack("<6I", flags, argc, envc, size, 2**32 - 1, 2**32 - 1) + strings
    return struct.pack("<IHHII", protocol.MAGIC, 1, 4, 1, len(body)) + body


MALFORMED = {
    "no command": (_run(argc=0, strings=b"\0"), 0),
    "a string without its end": (_run(strings=b"\0ls"), 0),
    "more strings than there are": (_run(argc=3), 0),
    "fewer strings than there are": (_run(strings=b"\0ls\0la\0"), 0),
    "as many as would wrap around": (_run(argc=2**32 - 1, envc=2**32 - 1), 0),
    "a size that lies": (_run(size=99), 0),
    "unknown flags": (_run(flags=64), 0),
    "a file that did not come": (_run(flags=16, strings=b"", size=4), 0),
    "a channel that did not come": (_run(flags=32), 0),
    "descriptors without flags": (_run(), 2),
    "a short body": (struct.pack("<IHHII", protocol.MAGIC, 1, 4, 1, 8) + bytes(8), 0),
    "go, without a command of its own": (
        struct.pack("<IHHII", protocol.MAGIC, 1, 1, 1, 8) + bytes(8),
        0,
    ),
}


@one_native
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_run_ends_the_container(session: Container, name: str) -> None:
    data, count = MALFORMED[name]
    socket.send_fds(session.sock, [data], [0] * count)
    assert session.wait() == 125
    assert wire.receive(session.sock) is None


@one_native
def test_a_channel_that_is_no_socket_costs_that_command_only(session: Container) -> None:
    read, write = os.pipe()
    wire.send_run(session.orders, shell("echo never"), stdout=write, channel=write)
    os.close(write)
    with os.fdopen(read, "rb") as out:
        assert out.read() == b""
    assert told(session, "echo lives") == b"lives\n"


@one_native
def test_a_second_command_of_the_containers_own_is_refused(session: Container) -> None:
    wire.send_run(session.sock, shell("sleep 72"))
    session.expect(Started)
    wire.send_run(session.sock, shell("sleep 73"))
    assert session.wait() == 125


def test_flags_are_told_by_what_comes_along() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    with ours, theirs, os.fdopen(read), os.fdopen(write):
        wire.send_run(ours, Command(("ls", "x" * 40_000), ()), stdout=write, channel=read)
        data, fds, _, _ = socket.recv_fds(theirs, 1000, 5)
        run, _ = protocol.decode(data)
        assert isinstance(run, Run)
        assert run.flags == GoFlag.STDOUT | GoFlag.STORED | GoFlag.CHANNEL
        assert (run.argc, run.strings) == (2, b"")
        with os.fdopen(fds[1], "rb") as stored:
            assert stored.read() == b"\0ls\0" + b"x" * 40_000 + b"\0"
        for fd in (fds[0], fds[2]):
            os.close(fd)
