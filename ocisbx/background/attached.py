"""The end of who is attached: a connection to a terminal, or an input, of another process's."""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque
from typing import TYPE_CHECKING, Self

from ocisbx.background import frames
from ocisbx.background.packets import ask_attach

if TYPE_CHECKING:
    from ocisbx.terminal.device import Size

# What is typed and not taken yet; more is not taken from who types.
BACKLOG_BYTES = 1 << 16
# More than a connection takes at first (net.core.wmem_default).
LEAVING_BYTES = 1 << 20


class Attached:
    """Nothing here waits; poll `fileno()` for `events` and call `flush` and `receive`."""

    def __init__(self, connection: socket.socket) -> None:
        """Takes ownership."""
        connection.settimeout(0)
        self._socket = connection
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0

    @classmethod
    def to(cls, container_id: str, size: Size | None) -> tuple[dict[str, object], Self | None]:
        """What is told of this container, and a connection; without one where it has no terminal
        and takes no input, or has ended.

        Raises:
            OcisbxError: what its supervisor says is wrong.
        """
        found = ask_attach(container_id, size)
        if found is None:
            return {}, None
        told, connection = found
        return told, None if connection is None else cls(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def events(self) -> int:
        """What to poll for."""
        return select.POLLIN | (select.POLLOUT if self._queue else 0)

    @property
    def has_room(self) -> bool:
        """Whether more may be typed now."""
        return self._queued_bytes < BACKLOG_BYTES

    def type(self, data: bytes) -> None:
        """This was typed."""
        for piece in frames.pieces(frames.TYPED, data):
            self._send(piece)

    def resize(self, size: Size) -> None:
        """Who sits there has a terminal of this size now."""
        self._send(frames.encode_size(*size))

    def leave(self) -> None:
        """They left by their keys, not by an accident. What they typed and nobody takes is
        dropped, and there is room for this in a connection that is full of it."""
        self._queue.clear()
        self._queued_bytes = 0
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LEAVING_BYTES)
        self._send(frames.LEFT)

    def flush(self) -> None:
        """Send what waits. Whether anybody listens, `receive` tells."""
        try:
            while self._queue:
                self._socket.send(self._queue[0])
                self._queued_bytes -= len(self._queue.popleft())
        except BlockingIOError:
            return
        except OSError:
            self._queue.clear()
            self._queued_bytes = 0

    def receive(self) -> frames.Frame | None:
        """What comes next; None: it is over.

        Raises:
            BlockingIOError: there is nothing now.
        """
        try:
            packet = self._socket.recv(frames.PACKET_BYTES)
        except ConnectionError:
            return None
        return frames.split(packet) if packet else None

    def _send(self, packet: bytes) -> None:
        self._queue.append(packet)
        self._queued_bytes += len(packet)
        self.flush()
