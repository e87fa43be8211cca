"""Terminals of further commands: sent out by their leaders, or relayed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest

from ocisbx.init import protocol, wire
from ocisbx.init.protocol import Failed, Ready, Stage, Started, Target, Terminal
from ocisbx.init.wire import Command
from ocisbx.probe.gather import subordinate_ids
from ocisbx.terminal.console import is_controller
from ocisbx.terminal.device import Size, read_some, set_size
from tests.box import eventually
from tests.runtimes.init_container import NATIVE, RUNTIMES, TIMEOUT_S, Bundle, Container, Runtime
from tests.runtimes.test_init_run import (
    PATH,
    Side,
    every_native,
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


def controller_of(side: Side) -> int:
    received = wire.receive(side.sock)
    assert received is not None
    assert received.packet == Terminal()
    (controller_fd,) = received.descriptors
    assert is_controller(controller_fd)
    return controller_fd


@every_native
def test_a_command_on_a_terminal_waits_until_that_has_a_size(session: Container) -> None:
    words = "tty; stty size; [ $(ps -o sid= $$) = $$ ] && echo leads; ls -l /proc/self/fd"
    with Side(session, shell(words), terminal=True) as side:
        controller_fd = controller_of(side)
        side.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.receive(side.sock)
        side.sock.settimeout(TIMEOUT_S)
        set_size(controller_fd, Size(12, 34))
        wire.send_go(side.sock, terminal=True)
        side.expect(Started)
        side.finish()
    # The kernel hands it over in pieces, to the end: that nobody has the terminal open.
    os.set_blocking(controller_fd, True)
    shown = b""
    while data := read_some(controller_fd):
        shown += data
    os.close(controller_fd)
    assert shown.startswith(b"/dev/pts/")
    assert b"12 34\r\nleads\r\n" in shown
    # Of its three descriptors all are that, and there is no other.
    assert shown.count(b"/dev/pts/") == 4
    assert b"ptmx" not in shown


@every_native
def test_who_drives_a_terminal_and_hangs_up_before_it_starts(session: Container) -> None:
    with Side(session, shell("touch /tmp/ran"), terminal=True) as side:
        os.close(controller_of(side))
    assert told(session, "sleep 0.3; ls /tmp") == b""


@one_native
def test_a_container_without_terminals_says_so(session: Container) -> None:
    # Of devpts' own name: /dev/ptmx is a link to it.
    assert told(session, "rm /dev/ptmx && echo gone") == b"gone\n"
    with Side(session, shell("true"), terminal=True) as side:
        assert side.expect(Failed) == Failed(Stage.TERMINAL, errno.ENOENT)
        wire.send_end(side.sock)
        assert wire.receive(side.sock) is None
    assert told(session, "echo lives") == b"lives\n"


@one_native
@pytest.mark.parametrize("packet", [protocol.Signal(15, Target.PAYLOAD), protocol.End()])
def test_out_of_turn_before_the_terminal_is_used(
    packet: protocol.Order, session: Container
) -> None:
    with Side(session, shell("touch /tmp/ran"), terminal=True) as side:
        os.close(controller_of(side))
        side.sock.send(protocol.encode(packet))
        assert wire.receive(side.sock) is None
    assert told(session, "ls /tmp") == b""


class Relayed(Side):
    """A command on a terminal that its leader relays; `near` is our end."""

    def __init__(self, container: Container, what: str | Command) -> None:
        command = shell(what) if isinstance(what, str) else what
        self.near, far = socket.socketpair()
        self.near.settimeout(TIMEOUT_S)
        with far:
            super().__init__(container, command, terminal=True, through=far.fileno())
        wire.send_resize(self.sock, 12, 34)
        wire.send_go(self.sock, terminal=True)

    def shown(self, until: bytes) -> bytes:
        found = b""
        while until not in found:
            data = self.near.recv(65536)
            assert data, found
            found += data
        return found


@every_runtime
def test_a_terminal_is_relayed(session: Container) -> None:
    # A signal would end `read`.
    loop = "while :; do sleep 0.05; done"
    source = f"trap 'stty size' WINCH; tty; stty size; read x; echo got $x; {loop}"
    with Relayed(session, source) as side, side.near:
        side.expect(Started)
        shown = side.shown(b"12 34\r\n")
        assert shown.startswith(b"/dev/pts/")
        side.near.sendall(b"this\n")
        side.shown(b"got this\r\n")
        wire.send_resize(side.sock, 40, 100)
        side.shown(b"40 100\r\n")
        # Ctrl-C is the foreground's.
        side.near.sendall(b"\x03")
        assert side.finish().status == signal.SIGINT


@every_runtime
def test_a_flood_waits_for_who_reads_and_comes_whole(session: Container) -> None:
    with Relayed(session, "stty -onlcr; seq 60000; echo end") as side, side.near:
        side.expect(Started)
        time.sleep(0.5)
        shown = side.shown(b"end\n")
        assert shown == b"".join(b"%d\n" % n for n in range(1, 60001)) + b"end\n"
        assert side.finish().status == 0


@every_runtime
def test_what_is_typed_waits_for_who_reads(session: Container) -> None:
    source = "stty raw -echo; echo up; sleep 0.5; head -c 200000 | cksum; exit 4"
    with Relayed(session, source) as side, side.near:
        side.expect(Started)
        side.shown(b"up")
        side.near.sendall(b"x" * 200000)
        assert b" 200000" in side.shown(b" 200000")
        assert side.finish().status == 4


@every_runtime
def test_the_end_of_who_types_is_not_the_commands(session: Container) -> None:
    with Relayed(session, "echo up; sleep 0.5; echo still here") as side, side.near:
        side.expect(Started)
        side.near.shutdown(socket.SHUT_WR)
        side.shown(b"still here\r\n")
        assert side.finish().status == 0


CHANGES_IDS = ("CAP_SETUID", "CAP_SETGID", "CAP_CHOWN")
SUBORDINATE = tuple(
    ids.start
    for name in ("subuid", "subgid")
    for ids in subordinate_ids(f"/etc/{name}", os.getuid())[:1]
)
# gVisor has every id; the cell that crun needs maps one.
MAPPING = [
    one
    for one in RUNTIMES
    if one not in NATIVE
    or (not one.in_cell and len(SUBORDINATE) == 2 and shutil.which("newuidmap") is not None)
]


@pytest.mark.parametrize("capabilities", [CHANGES_IDS, CHANGES_IDS[:2]], ids=["chown", "none"])
@pytest.mark.parametrize("runtime", MAPPING, ids=lambda one: one.name)
def test_a_terminal_is_its_users(
    capabilities: tuple[str, ...], runtime: Runtime, tmp_path: Path
) -> None:
    """Who may not give files away has what is open, and no more."""
    more = SUBORDINATE if runtime in NATIVE else ()
    bundle = Bundle(tmp_path, runtime, [], capabilities=capabilities, subordinate=more)
    words = "stat -c %u $(tty); echo opened > $(tty); echo done"
    command = Command(("/bin/sh", "-c", words), (PATH,), "", 77, 77)
    with Container(bundle) as container:
        container.expect(Ready)
        with Relayed(container, command) as side, side.near:
            side.expect(Started)
            shown = side.shown(b"done\r\n")
            side.finish()
    given = "CAP_CHOWN" in capabilities
    assert shown.startswith(b"77\r\n" if given else b"0\r\n"), shown
    assert (b"opened\r\n" in shown) == given, shown


@every_runtime
def test_a_leader_whose_driver_is_gone_does_not_wait_for_its_own_terminal(
    session: Container,
) -> None:
    """That is full, and it is the one who reads there."""
    # Process 1, who leads the command that looks, and who waits for the next, after some time.
    leaders = "sleep 0.1; cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c ^/ocisbx-init"
    with Relayed(session, "yes") as side, side.near:
        side.expect(Started)
        # Nobody reads: by now it has nowhere to write to.
        time.sleep(0.5)
        assert eventually(lambda: told(session, leaders) == b"4\n")
        side.sock.close()
        assert eventually(lambda: told(session, leaders) == b"3\n")


@one_native
@pytest.mark.parametrize("kind", ["relayed", "plain"])
def test_a_resize_with_a_descriptor_ends_the_command(kind: str, session: Container) -> None:
    side: Side
    if kind == "relayed":
        side = Relayed(session, "sleep 74")
        side.near.close()
    else:
        side = Side(session, shell("sleep 74"))
    with side:
        side.expect(Started)
        socket.send_fds(side.sock, [protocol.encode(protocol.Resize(1, 1))], [0])
        assert wire.receive(side.sock) is None
    assert told(session, "echo lives") == b"lives\n"
