"""What the init does with orders that are not the protocol's: it ends the container."""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from ocisbx.init import protocol, wire
from ocisbx.init.protocol import Failed, GoFlag, Ready, Stage, Started
from tests.runtimes.init_container import NATIVE, Bundle, Container, Runtime

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.runtime
one_native = pytest.mark.parametrize("runtime", NATIVE[-1:], ids=lambda one: one.name)

WAITING = ["/bin/sh", "-c", "echo up; while :; do sleep 0.05; done"]


def _order(number: int, first: int, second: int = 0, *, version: int = 1, extra: int = 0) -> bytes:
    header = struct.pack("<IHHII", protocol.MAGIC, version, number, 1, 8 + extra)
    return header + struct.pack("<II", first, second) + bytes(extra)


MALFORMED = {
    "one byte": (b"x", 0),
    "garbage": (b"x" * 24, 0),
    "another version": (_order(1, 0, version=2), 0),
    "an unknown type": (_order(9, 0), 0),
    "run, where the command is there": (_order(4, 0), 0),
    "a body too long": (_order(1, 0, extra=8), 0),
    "longer than any packet": (_order(1, 0, extra=60000), 0),
    "a length that lies": (_order(1, 0)[:-1], 0),
    "unknown flags": (_order(1, 16), 0),
    "a flag without its descriptor": (_order(1, int(GoFlag.STDIN)), 0),
    "a descriptor without its flag": (_order(1, 0), 1),
    "more descriptors than three": (_order(1, 7), 10),
}


@one_native
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_order_ends_the_container(runtime: Runtime, name: str, tmp_path: Path) -> None:
    data, count = MALFORMED[name]
    with Container(Bundle(tmp_path, runtime, WAITING)) as container:
        container.expect(Ready)
        socket.send_fds(container.sock, [data], [0] * count)
        assert container.wait() == 125
        assert wire.receive(container.sock) is None


@one_native
def test_a_terminal_that_is_not_there_is_told(runtime: Runtime, tmp_path: Path) -> None:
    with Container(Bundle(tmp_path, runtime, WAITING)) as container:
        container.expect(Ready)
        container.sock.send(protocol.encode(protocol.Go(GoFlag.TERMINAL)))
        failed = container.expect(Failed)
        assert failed == Failed(Stage.TERMINAL, errno.ENOTTY)
        wire.send_end(container.sock)
        assert container.wait() == 125


@one_native
@pytest.mark.parametrize(
    "data", [_order(1, 0), protocol.encode(protocol.End()), _order(2, 65), _order(2, 9, 3), b"x"]
)
def test_an_order_out_of_turn_ends_the_container(
    runtime: Runtime, data: bytes, tmp_path: Path
) -> None:
    with Container(Bundle(tmp_path, runtime, WAITING)) as container:
        container.go()
        container.expect(Started)
        container.sock.send(data)
        assert container.wait() == 125
        assert wire.receive(container.sock) is None
