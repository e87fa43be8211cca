"""What a caller hands to a supervisor: the plan and the call, over a socket, never by arguments.

Variables of the payload may be secrets: of the caller's environment only those go over that the
plan names, and nothing of it reaches a disk but the container's config.json.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ocisbx.errors import RuntimeFailed
from ocisbx.plan import Plan

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

# Descriptors of a supervisor: the socket to its caller, the payload's input, the pidfd of who may
# not end before it, the file for a transcript.
CALLER_FD: Final = 3
STDIN_FD: Final = 4
PARENT_FD: Final = 5
TRANSCRIPT_FD: Final = 6
CHUNK_BYTES: Final = 1 << 16


class Request(NamedTuple):
    """One container to be. `start`: at once; `stdin`, `parent`, `transcript`: descriptors of the
    supervisor's."""

    id: str
    plan: Plan
    argv: tuple[str, ...]
    environment: dict[str, str]
    extra_environment: dict[str, str]
    name: str | None
    start: bool
    audit: bool
    resolve_s: float
    start_timeout_s: float | None
    stdin: int | None
    parent: int | None
    # A session ends when nothing was asked of it for so long, or when it is so old.
    idle_s: float | None = None
    lifetime_s: float | None = None
    parent_id: str = ""
    # The payload's input is what those type who attach.
    keyboard: bool = False
    transcript: int | None = None

    def to_json(self) -> str:
        return json.dumps(self._replace(plan=None)._asdict() | {"plan": self.plan.to_json()})  # type: ignore[arg-type]


def send_request(connection: socket.socket, request: Request) -> None:
    """All of it, and that no more comes. Raises OSError."""
    connection.sendall(request.to_json().encode() + b"\n")


def read_request(connection: socket.socket) -> Request:
    """The request. Raises RuntimeFailed: the caller is gone."""
    line = next(read_lines(connection), None)
    if line is None:
        raise RuntimeFailed("the caller has ended before it said what to run")
    raw = line | {"plan": Plan.from_json(line["plan"]), "argv": tuple(line["argv"])}
    return Request(**raw)


def send_line(connection: socket.socket, document: dict[str, Any]) -> None:
    """Tell the other end; silent when it is gone."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(document).encode() + b"\n")


def read_lines(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """The documents that come, to the end of the connection."""
    pending = bytearray()
    while chunk := _receive(connection):
        pending += chunk
        while b"\n" in chunk:
            line, _, rest = bytes(pending).partition(b"\n")
            pending[:] = rest
            chunk = rest
            yield json.loads(line)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(CHUNK_BYTES)
    except ConnectionResetError:
        return b""
