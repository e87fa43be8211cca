"""How a pool's containers are lent over a unix socket: the borrower's half, and what both know.

Who connects says in one packet what it wants (a JSON object: `workspace`, or null), and gets one: a
JSON object, with the socket of the container's init and a file that holds the plan as descriptors.
The connection is the loan: when it ends, the container ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.background.packets import receive
from ocisbx.errors import ConfigError, InvalidState, OcisbxError, RuntimeFailed
from ocisbx.plan import Plan
from ocisbx.values import show
from ocisbx.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKET_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("3i")


class Loan(NamedTuple):
    """A container that waits for its command."""

    id: str
    bundle: str
    cgroup: str
    plan: Plan
    orders: socket.socket


def new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)


def check_peer(connection: socket.socket) -> bool:
    """Whether the other end is the same user (SO_PEERCRED, unix(7))."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1]) == os.geteuid()


@contextlib.contextmanager
def borrow(path: str, workspace: str | None = None) -> Iterator[Loan]:
    """A container of the pool that listens there, until the context ends; with this workspace,
    where the pool leaves that to its calls.

    Raises:
        ConfigError: there is no pool, or it is somebody else's.
        OcisbxError: the pool has none, and cannot start one.
    """
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(new_socket())
        try:
            connection.connect(path)
        except OSError as error:
            raise ConfigError(
                f"no pool listens at {show(path)}",
                why=(error.strerror or str(error)).lower(),
                remedy="ocisbx pool serve --socket PATH",
            ) from None
        if not check_peer(connection):
            raise ConfigError(f"the pool at {show(path)} is another user's")
        with contextlib.suppress(BrokenPipeError):
            # What has ended meanwhile is noticed next.
            connection.send(json.dumps({"workspace": workspace}).encode())
        data, descriptors = receive(connection, PACKET_BYTES, 2)
        if len(descriptors) != 2:
            for descriptor in descriptors:
                os.close(descriptor)
            raise _refused(path, data)
        orders = stack.enter_context(socket.socket(fileno=descriptors[0]))
        stack.callback(os.close, descriptors[1])
        told = json.loads(data)
        if told["version"] != VERSION:
            what = f"the pool at {show(path)} is served by ocisbx {told['version']}"
            raise InvalidState(what, why=f"this is {VERSION}", remedy="start it again")
        plan = Plan.from_json(_read(descriptors[1]).decode())
        yield Loan(told["id"], told["bundle"], told["cgroup"], plan, orders)
        if workspace is not None:
            # Until the server has taken away what kept names free in it.
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)


def _refused(path: str, data: bytes) -> OcisbxError:
    if not data:
        return RuntimeFailed(
            f"the pool at {show(path)} ended before it gave a container",
            remedy="look why its `ocisbx pool serve` has ended, and start it again",
        )
    told = json.loads(data)
    return RuntimeFailed(told["what"], why=told["why"], remedy=told["remedy"])


def _read(descriptor: int) -> bytes:
    """All of it; its position is shared with other borrowers."""
    data = b""
    while more := os.pread(descriptor, 1 << 20, len(data)):
        data += more
    return data
