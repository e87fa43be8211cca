"""Frames between the host and the agent in the guest, over one virtio-serial port.

A frame is a kind (one byte), the payload's length (four, big-endian) and the payload: JSON for
what asks and answers, raw bytes for streams.
"""

import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

PORT = "ocisbx.agent"
# Both sides send pieces of at most this; stdin stops while so much has not reached the command.
CHUNK_BYTES = 32768
WINDOW_BYTES = 8 * CHUNK_BYTES
_HEAD = struct.Struct("!BI")


class Kind(IntEnum):
    """What a frame says; the first group goes to the guest, the second comes from it."""

    HELLO = 1  # {"time_ns", "random": hex}: a restored guest has neither clock nor entropy
    PUT = 2  # {"path", "user", "directory"}, then DATA (a tar) and END
    GET = 3  # {"path"}: asks for a tar
    RUN = 4  # {"user", "context", "argv", "env", "directory"}, then DATA (stdin) and END, SIGNAL
    SIGNAL = 5  # {"number"}
    DATA = 6
    END = 7

    OK = 16
    FAILED = 17  # {"what"}
    OUT = 18
    ERR = 19
    TAKEN = 20  # {"bytes"}: so much of stdin is written
    EXIT = 21  # {"code"}
    TAR = 22
    TAR_END = 23  # {"code", "said"}


def pack(kind: Kind, payload: bytes | dict[str, Any] = b"") -> bytes:
    """Return the bytes of one frame."""
    if isinstance(payload, dict):
        payload = json.dumps(payload).encode()
    return _HEAD.pack(kind, len(payload)) + payload


class Unpacker:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """Take bytes as they came; yield the frames that are complete."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer)
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield Kind(kind), payload
