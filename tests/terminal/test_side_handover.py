"""What comes from inside in place of a command's terminal is not taken for one."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from ocisbx import TerminalError
from ocisbx.background.commands import Orders
from ocisbx.calls import given_call
from ocisbx.init import protocol
from tests.sessions.conftest import CRUN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ocisbx.host import RuntimeBinary
    from tests.box import Box


@pytest.fixture
def runtime() -> RuntimeBinary:
    return CRUN


def two_of_one() -> list[int]:
    controller_fd, terminal_fd = os.openpty()
    os.close(terminal_fd)
    return [controller_fd, os.dup(controller_fd)]


def the_wrong_end() -> list[int]:
    controller_fd, terminal_fd = os.openpty()
    os.close(controller_fd)
    return [terminal_fd]


@pytest.mark.parametrize(
    "make",
    [list, lambda: [os.open("/dev/null", os.O_RDWR)], lambda: list(os.pipe()), two_of_one,
     the_wrong_end],
    ids=["nothing", "a file", "a pipe", "two", "the other end"],
)  # fmt: skip
def test_what_is_no_terminal(make: Callable[[], list[int]], box: Box, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    plan = box.sandbox().resolve().for_commands()._replace(terminal=True)
    directory = tmp_path / "state" / "ocisbx" / "containers" / "it"
    directory.mkdir(parents=True)
    thread = threading.Thread(target=_lead, args=(theirs, make))
    thread.start()
    open_before = len(os.listdir("/proc/self/fd"))
    try:
        orders = Orders("it", plan, ours)
        with (
            contextlib.closing(orders),
            pytest.raises(TerminalError, match="did not hand over the terminal"),
        ):
            orders.run(given_call(["true"]), audit=False)
    finally:
        thread.join()
        theirs.close()
    assert len(os.listdir("/proc/self/fd")) <= open_before


def _lead(orders: socket.socket, make: Callable[[], list[int]]) -> None:
    """In place of the container's process 1."""
    data, fds, _, _ = socket.recv_fds(orders, 65536, 4)
    packet, _ = protocol.decode(data)
    assert isinstance(packet, protocol.Run)
    with socket.socket(fileno=fds[-1]) as channel:
        given = make()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(given)}i", *given))
        channel.sendmsg([protocol.encode(protocol.Terminal())], [rights] if given else [])
        for descriptor in given:
            os.close(descriptor)
        # The driver hangs up.
        assert channel.recv(100) == b""
