"""What passes between who is attached and who holds the terminal: packets of one letter and more.

From who is attached: `i` typed, `s` the size, `d` left by their keys. To them: `o` shown, `l` how
many bytes were not, `m` why it is over. An end of file is the end of the other side.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

TYPED, SIZED, LEFT = b"i", b"s", b"d"
SHOWN, LOST, OVER = b"o", b"l", b"m"
# Of data in one packet: several of them have room in a socket (net.core.wmem_default).
DATA_BYTES: Final = 1 << 15
PACKET_BYTES: Final = DATA_BYTES + 1
_SIZE: Final = struct.Struct("<HH")
_COUNT: Final = struct.Struct("<Q")


class Frame(NamedTuple):
    """One packet: its letter, and what it holds."""

    kind: bytes
    data: bytes


def split(packet: bytes) -> Frame:
    return Frame(packet[:1], packet[1:])


def encode_size(rows: int, columns: int) -> bytes:
    return SIZED + _SIZE.pack(rows, columns)


def decode_size(data: bytes) -> tuple[int, int] | None:
    """None: it is no size that a terminal can have."""
    if len(data) != _SIZE.size:
        return None
    rows, columns = _SIZE.unpack(data)
    return (rows, columns) if rows and columns else None


def encode_lost(size: int) -> bytes:
    return LOST + _COUNT.pack(size)


def decode_lost(data: bytes) -> int:
    count: int = _COUNT.unpack(data)[0] if len(data) == _COUNT.size else 0
    return count


def pieces(kind: bytes, data: bytes | memoryview) -> list[bytes]:
    """The packets that carry all of it."""
    return [
        kind + bytes(data[start : start + DATA_BYTES]) for start in range(0, len(data), DATA_BYTES)
    ]
