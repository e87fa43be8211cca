"""What a terminal still holds when its program has ended: all of it is taken, and nobody waits."""

from __future__ import annotations

import contextlib
import os
import pty
import tty

import pytest

from ocisbx.backends.terminal import TerminalStream
from ocisbx.capture.sinks import NullSink

# n_tty.c's own buffer, and what is held before it (pty.c).
SIZES = (1, 64, 4095, 4096, 4097, 8192, 1 << 20)


def write_what_goes(fd: int, data: bytes) -> int:
    total = 0
    with contextlib.suppress(BlockingIOError):
        while total < len(data):
            total += os.write(fd, data[total:])
    return total


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("closes", [False, True])
def test_nothing_of_it_is_lost(size: int, *, closes: bool) -> None:
    data = os.urandom(size)
    for _ in range(50):
        got = bytearray()
        controller_fd, terminal_fd = pty.openpty()
        stream = TerminalStream("stdout", controller_fd, 1 << 30, NullSink(), on_data=got.extend)
        try:
            tty.setraw(terminal_fd)
            os.set_blocking(terminal_fd, False)
            written = write_what_goes(terminal_fd, data)
            if closes:
                os.close(terminal_fd)
            stream.drain()
            assert got == data[:written]
            assert stream.closed is closes
        finally:
            stream.close()
            if not closes:
                os.close(terminal_fd)
