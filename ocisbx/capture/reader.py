"""Reading a capture while it grows, or later: by offset, head, tail, follow; and showing it.

Captures are bytes; nothing here decodes them but `render`, which is for people's eyes.
"""

from __future__ import annotations

import codecs
import os
import stat
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ocisbx.errors import OcisbxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_BYTES = 64 * 1024
# ECMA-48: C0, DEL and C1 are what every escape sequence starts with. C0 and DEL have pictures in
# Unicode (U+2400, U+2421), C1 has none.
INERT = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)


def read_at(path: str, offset: int, size: int) -> bytes:
    """Up to `size` bytes from `offset`; fewer, or none, where the file ends (so far).

    Raises OcisbxError when `path` is missing, is a symlink or is not a regular file.
    """
    with open_capture(path) as fd:
        return _read_exactly(fd, offset, size)


def head(path: str, *, lines: int | None = None, size_bytes: int | None = None) -> bytes:
    """The first `lines` lines, or `size_bytes` bytes (10 lines unless told). Raises OcisbxError."""
    with open_capture(path) as fd:
        if size_bytes is not None:
            return _read_exactly(fd, 0, size_bytes)
        missing = 10 if lines is None else lines
        chunks: list[bytes] = []
        offset = 0
        while missing > 0 and (block := os.pread(fd, BLOCK_BYTES, offset)):
            pieces = block.split(b"\n", missing)
            if len(pieces) > missing:
                block = block[: len(block) - len(pieces[-1])]
            missing -= len(pieces) - 1
            chunks.append(block)
            offset += len(block)
        return b"".join(chunks)


def tail(path: str, *, lines: int | None = None, size_bytes: int | None = None) -> bytes:
    """The last `lines` lines, or `size_bytes` bytes (10 lines unless told). Raises OcisbxError.

    An unfinished last line counts as one.
    """
    with open_capture(path) as fd:
        end = os.fstat(fd).st_size
        if size_bytes is not None:
            start = max(0, end - max(0, size_bytes))
            return _read_exactly(fd, start, end - start)
        return _tail_lines(fd, end, 10 if lines is None else lines)


def follow(
    path: str, offset: int = 0, *, stop: Callable[[], bool], interval_s: float = 0.05
) -> Iterator[bytes]:
    """Yield what is in the file from `offset`, and what is added, until `stop()` says True.

    `stop` is asked whenever the end is reached; what was written before it said True is still
    yielded. The file may be unlinked meanwhile. Raises OcisbxError as `read_at` does.
    """
    with open_capture(path) as fd:
        stopped = False
        while True:
            block = os.pread(fd, BLOCK_BYTES, offset)
            if block:
                offset += len(block)
                yield block
            elif stopped:
                return
            else:
                stopped = stop()
                if not stopped:
                    time.sleep(interval_s)


@contextmanager
def open_capture(path: str) -> Iterator[int]:
    """A descriptor of the regular file at `path`; a FIFO put there cannot hang the reader."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise OcisbxError(
            f"cannot open the capture file {path!r}",
            why=error.strerror or "" if isinstance(error, OSError) else str(error),
            remedy="only captures that are running or were kept can be read",
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OcisbxError(
                f"cannot read the capture file {path!r}",
                why="not a regular file",
                remedy="something else was put in its place; do not trust this directory",
            )
        yield fd
    finally:
        os.close(fd)


def _read_exactly(fd: int, offset: int, size: int) -> bytes:
    chunks: list[bytes] = []
    while size > 0 and (block := os.pread(fd, min(size, 1 << 24), offset)):
        chunks.append(block)
        offset += len(block)
        size -= len(block)
    return b"".join(chunks)


def _tail_lines(fd: int, end: int, lines: int) -> bytes:
    if lines <= 0 or end == 0:
        return b""
    chunks: list[bytes] = []
    # The newline that ends the file ends the last line, it does not begin another.
    missing = lines + (os.pread(fd, 1, end - 1) == b"\n")
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        block = _read_exactly(fd, start, end - start)
        found = block.count(b"\n")
        if found >= missing:
            chunks.append(block.split(b"\n", found - missing + 1)[-1])
            break
        missing -= found
        chunks.append(block)
        end = start
    return b"".join(reversed(chunks))


class Renderer:
    """Turns bytes into text that cannot steer a terminal, across chunk borders."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The text that is complete by now; `final` gives the rest too.

        Invalid UTF-8 and C1 controls become U+FFFD, C0 controls and DEL their pictures, so that
        no escape sequence survives. \\n and \\t stay, \\r\\n becomes \\n.
        """
        text = self._held + self._decoder.decode(data, final)
        self._held = ""
        if text.endswith("\r") and not final:
            text, self._held = text[:-1], "\r"
        return text.replace("\r\n", "\n").translate(INERT)


def render(data: bytes) -> str:
    """`data` as inert text, see `Renderer.feed`."""
    return Renderer().feed(data, final=True)
