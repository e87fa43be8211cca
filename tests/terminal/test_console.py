"""The console socket, with peers that do not do as a runtime does."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import socket
import struct
import tempfile
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocisbx import TerminalError
from ocisbx.terminal.console import ConsoleSocket, is_controller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = ("controller", "terminal", "file", "pipe", "socket")


@contextlib.contextmanager
def descriptor_of(kind: str) -> Iterator[int]:
    """One of this kind, closed afterwards with whatever belongs to it."""
    if kind in ("controller", "terminal"):
        pair = pty.openpty()
    elif kind == "pipe":
        pair = os.pipe()
    elif kind == "file":
        pair = (os.open("/dev/null", os.O_RDWR), os.dup(2))
    else:
        one, other = socket.socketpair()
        pair = (one.detach(), other.detach())
    try:
        yield pair[1] if kind == "terminal" else pair[0]
    finally:
        for descriptor in pair:
            os.close(descriptor)


def connect(console: ConsoleSocket) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(console.address)
    return peer


def send(peer: socket.socket, said: bytes, kinds: tuple[str, ...]) -> None:
    with contextlib.ExitStack() as stack:
        fds = [stack.enter_context(descriptor_of(kind)) for kind in kinds]
        if fds:
            socket.send_fds(peer, [said or b" "], fds)
        elif said:
            peer.send(said)


def receive(console: ConsoleSocket, pid: int, patience_s: float = 20.0) -> int | None:
    """As the driver's loop does it; None: nothing came in time."""
    deadline = time.monotonic() + patience_s
    while not console.received and (left_s := deadline - time.monotonic()) > 0:
        if select.select(console.descriptors(), [], [], left_s)[0]:
            console.take(pid)
    return console.finish(pid) if console.received else None


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ConsoleSocket]:
    made = ConsoleSocket(str(tmp_path))
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


def test_one_controlling_end_is_taken(console: ConsoleSocket) -> None:
    with connect(console) as peer:
        send(peer, b"/dev/ptmx", ("controller",))
        controller_fd = receive(console, os.getpid())
    assert controller_fd is not None
    assert is_controller(controller_fd)
    assert not os.get_inheritable(controller_fd)
    os.close(controller_fd)


@pytest.mark.parametrize(
    ("said", "kinds", "words"),
    [
        (b"x", (), "without a descriptor"),
        (b"x", ("controller", "controller"), "more than one"),
        (b"x", ("controller",) * 9, "more than one"),
        (b"x", ("terminal",), "not the controlling end"),
        (b"x", ("file",), "not the controlling end"),
        (b"x", ("pipe",), "not the controlling end"),
        (b"x", ("socket",), "not the controlling end"),
        (b"", (), "without a message"),
    ],
)
def test_anything_else_is_refused_and_closed(
    console: ConsoleSocket, said: bytes, kinds: tuple[str, ...], words: str
) -> None:
    before = psutil.Process().num_fds()
    with connect(console) as peer:
        send(peer, said, kinds)
        peer.shutdown(socket.SHUT_WR)
        with pytest.raises(TerminalError, match=words):
            receive(console, os.getpid())
    console.close()
    # The listener is gone, too.
    assert psutil.Process().num_fds() == before - 1


def test_a_second_connection_is_refused(console: ConsoleSocket) -> None:
    with connect(console) as peer, connect(console):
        send(peer, b" ", ("controller",))
        with pytest.raises(TerminalError, match="second connection"):
            receive(console, os.getpid())


def test_a_second_connection_is_refused_while_the_first_says_nothing(
    console: ConsoleSocket,
) -> None:
    with connect(console):
        console.take(os.getpid())
        with connect(console), pytest.raises(TerminalError, match="second connection"):
            receive(console, os.getpid())


def test_a_second_connection_after_the_terminal_is_refused(console: ConsoleSocket) -> None:
    with connect(console) as peer:
        send(peer, b" ", ("controller",))
        while not console.received:
            console.take(os.getpid())
        with connect(console), pytest.raises(TerminalError, match="second connection"):
            console.finish(os.getpid())


def test_only_the_runtime_may_connect(console: ConsoleSocket) -> None:
    with connect(console) as peer:
        send(peer, b" ", ("controller",))
        with pytest.raises(TerminalError, match="not the runtime") as told:
            receive(console, os.getpid() + 1)
    assert str(os.getpid()) in told.value.why


def test_one_that_never_came_is_said(console: ConsoleSocket) -> None:
    assert receive(console, os.getpid(), 0.2) is None
    with pytest.raises(TerminalError, match="did not hand over"):
        console.finish(os.getpid())


def test_a_path_may_be_long(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 120) / ("y" * 200)
    directory.mkdir(parents=True)
    here = os.getcwd()
    console = ConsoleSocket(str(directory))
    assert os.getcwd() == here
    assert len(console.address) < 108
    with connect(console) as peer:
        send(peer, b" ", ("controller",))
        controller_fd = receive(console, os.getpid())
    assert controller_fd is not None
    os.close(controller_fd)
    assert list(directory.iterdir()) == []


def test_it_is_ours_alone(console: ConsoleSocket, tmp_path: Path) -> None:
    assert (tmp_path / "console").stat().st_mode & 0o777 == 0o600


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connect")),
        st.tuples(
            st.just("send"), st.binary(max_size=40), st.lists(st.sampled_from(KINDS), max_size=7)
        ),
        st.tuples(st.just("credentials")),
        st.tuples(st.just("hang up")),
        st.tuples(st.just("take")),
    ),
    max_size=8,
)


@given(steps=STEPS)
@settings(max_examples=300)
def test_whatever_a_peer_does(steps: list[tuple[Any, ...]]) -> None:
    """A terminal's controlling end or an error, soon; no descriptor of the peer's stays open."""
    before = psutil.Process().num_fds()
    with tempfile.TemporaryDirectory() as directory:
        console = ConsoleSocket(directory)
        peers: list[socket.socket] = []
        with contextlib.suppress(TerminalError, OSError):
            for step in steps:
                follow(console, peers, step)
            controller_fd = receive(console, os.getpid(), 0.01)
            if controller_fd is not None:
                assert is_controller(controller_fd)
                os.close(controller_fd)
        console.close()
        for peer in peers:
            peer.close()
    assert psutil.Process().num_fds() == before


def follow(console: ConsoleSocket, peers: list[socket.socket], step: tuple[Any, ...]) -> None:
    """One step of a peer, or of ours."""
    if step[0] == "connect":
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(0)
        peers.append(peer)
        peer.connect(console.address)
    elif step[0] == "take":
        console.take(os.getpid())
    elif peers and step[0] == "send":
        send(peers[-1], step[1], tuple(step[2]))
    elif peers and step[0] == "credentials":
        credentials = struct.pack("3i", os.getpid(), os.getuid(), os.getgid())
        peers[-1].sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)])
    elif peers:
        peers.pop().close()
