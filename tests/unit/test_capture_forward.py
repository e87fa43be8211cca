"""ForwardSink on real pipes, terminals, sockets and files, with far ends that do not read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import random
import select
import socket
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.capture import ForwardSink, OutputStream
from ocisbx.capture.forward import put_bounded, tty_piece
from ocisbx.errors import ConfigError, OcisbxError

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_CAP = 1 << 40
# What a write took that did not wait for anybody; a blocked one would take for ever.
AT_ONCE_S = 10.0


@pytest.fixture(autouse=True)
def no_leaked_descriptors() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def far_end(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """(descriptor to write to, descriptor to read from) of the kind that the test names."""
    if request.param in {"pipe", "locked pipe"}:
        read_fd, write_fd = os.pipe()
        if request.param == "locked pipe":
            # To anybody but root this refuses to reopen it, as another user's pipe does.
            os.fchmod(write_fd, 0)
    elif request.param == "tty":
        read_fd, write_fd = pty.openpty()
    elif request.param == "raw tty":
        read_fd, write_fd = pty.openpty()
        attributes = termios.tcgetattr(write_fd)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(write_fd, termios.TCSANOW, attributes)
    else:
        one, other = socket.socketpair()
        read_fd, write_fd = one.detach(), other.detach()
    yield write_fd, read_fd
    os.close(write_fd)
    os.close(read_fd)


KINDS = pytest.mark.parametrize(
    "far_end", ["pipe", "locked pipe", "tty", "raw tty", "socket"], indirect=True
)


def text(size: int) -> bytes:
    """Lines and words of every length, with the control characters that a terminal expands."""
    source = random.Random(3)  # noqa: S311 - data, not a secret
    return bytes(source.choices(b"ab c\n\t\r\b" + b"x" * 40, k=size))


def read_all(fd: int) -> bytes:
    data = b""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while poller.poll(0):
        try:
            block = os.read(fd, 1 << 16)
        except OSError:
            break
        if not block:
            break
        data += block
    return data


@KINDS
def test_a_far_end_that_never_reads_blocks_nothing(far_end: tuple[int, int]) -> None:
    write_fd, read_fd = far_end
    flags = fcntl.fcntl(write_fd, fcntl.F_GETFL)
    sink = ForwardSink(write_fd)
    data = text(1 << 20)
    started = time.monotonic()
    sink.write(memoryview(data))
    for _ in range(3):
        sink.flush()
    assert time.monotonic() - started < AT_ONCE_S
    assert sink.pending
    fd, events = sink.watch() or (-1, 0)
    assert fd != write_fd
    assert events == select.POLLOUT
    assert fcntl.fcntl(write_fd, fcntl.F_GETFL) == flags

    received = b""
    while sink.pending:
        received += read_all(read_fd)
        sink.flush()
    received += read_all(read_fd)
    translated = data.replace(b"\n", b"\r\n") if is_cooked(write_fd) else data
    assert received == translated
    assert sink.watch() is None
    sink.close()
    sink.close()
    os.fstat(write_fd)


def is_cooked(fd: int) -> bool:
    return os.isatty(fd) and bool(termios.tcgetattr(fd)[1] & termios.OPOST)


@KINDS
def test_bounded_writes_never_block(far_end: tuple[int, int]) -> None:
    """The way that is left where the object cannot be reopened (another user's pipe, `su`)."""
    write_fd, read_fd = far_end
    put = put_bounded(write_fd, tty=os.isatty(write_fd))
    data = memoryview(text(1 << 20))
    rest = data
    received = 0
    rounds = random.Random(5)  # noqa: S311 - data, not a secret
    started = time.monotonic()
    # The far end reads odd amounts, so that every fill level is met.
    for _ in range(40):
        while size := put(rest):
            rest = rest[size:]
        received += len(os.read(read_fd, rounds.choice([1, 7, 255, 256, 257, 4095, 5000])))
    assert time.monotonic() - started < AT_ONCE_S * 2
    assert len(data) - len(rest) > 0
    assert received > 0


def test_a_terminal_piece_is_a_run_or_one_control_character() -> None:
    assert bytes(tty_piece(memoryview(b"abc\ndef"))) == b"abc"
    assert bytes(tty_piece(memoryview(b"\n\n"))) == b"\n"
    assert bytes(tty_piece(memoryview(b"x" * 1000))) == b"x" * 256


def test_a_stopped_terminal_blocks_nothing() -> None:
    controller_fd, terminal_fd = pty.openpty()
    termios.tcflow(terminal_fd, termios.TCOOFF)
    sink = ForwardSink(terminal_fd)
    sink.write(memoryview(b"hello\n"))
    assert sink.pending
    termios.tcflow(terminal_fd, termios.TCOON)
    sink.flush()
    assert not sink.pending
    assert read_all(controller_fd) == b"hello\r\n"
    sink.close()
    os.close(terminal_fd)
    os.close(controller_fd)


@pytest.mark.parametrize("append", [False, True])
def test_a_regular_file_is_written_at_its_shared_offset(tmp_path: Path, append: bool) -> None:  # noqa: FBT001 - parameter
    path = tmp_path / "out"
    path.write_bytes(b"before\n")
    fd = os.open(path, os.O_WRONLY | (os.O_APPEND if append else 0))
    if not append:
        os.lseek(fd, 0, os.SEEK_END)
    sink = ForwardSink(fd)
    sink.write(memoryview(b"payload\n"))
    assert not sink.pending
    sink.close()
    os.write(fd, b"after\n")
    os.close(fd)
    assert path.read_bytes() == b"before\npayload\nafter\n"


@pytest.mark.parametrize("kind", ["pipe", "socket", "tty"])
def test_a_far_end_that_went_away_ends_the_payloads_pipe(kind: str) -> None:
    if kind == "pipe":
        far_fd, near_fd = os.pipe()
    elif kind == "tty":
        far_fd, near_fd = pty.openpty()
    else:
        one, other = socket.socketpair()
        far_fd, near_fd = one.detach(), other.detach()
    reader, writer = os.pipe()
    stream = OutputStream("stdout", reader, NO_CAP, ForwardSink(near_fd))
    os.write(writer, b"first")
    stream.pump()
    os.close(far_fd)
    os.write(writer, b"second")
    stream.pump()
    assert stream.closed
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"third")
    captured = stream.finish()
    assert (captured.total_bytes, captured.read()) == (11, b"")
    os.close(writer)
    os.close(near_fd)


def test_back_pressure_reaches_the_payload_and_nothing_is_lost() -> None:
    far_fd, near_fd = os.pipe()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    stream = OutputStream("stdout", reader, NO_CAP, ForwardSink(near_fd))
    data = text(700_000)
    rest = memoryview(data)
    stalled = 0
    received = b""
    while rest or not stream.closed:
        try:
            if rest:
                rest = rest[os.write(writer, rest[:65536]) :]
                if not rest:
                    os.close(writer)
        except BlockingIOError:
            stalled += 1
            if stalled % 3 == 0:
                received += os.read(far_fd, 1 << 18)
        stream.pump()
        if not rest:
            received += read_all(far_fd)
    assert stalled
    assert received + read_all(far_fd) == data
    stream.close()
    os.close(near_fd)
    os.close(far_fd)


def test_the_end_waits_for_what_is_pending() -> None:
    far_fd, near_fd = os.pipe()
    os.set_blocking(near_fd, False)
    full = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            full += os.write(near_fd, bytes(4096))
    os.set_blocking(near_fd, True)
    reader, writer = os.pipe()
    stream = OutputStream("stdout", reader, NO_CAP, ForwardSink(near_fd))
    os.write(writer, b"last words")
    os.close(writer)
    stream.drain()
    assert not stream.closed
    fd, events = stream.watch() or (-1, 0)
    assert (fd not in {near_fd, reader}, events) == (True, select.POLLOUT)
    assert len(os.read(far_fd, full)) == full
    stream.pump()
    assert stream.closed
    assert os.read(far_fd, 100) == b"last words"
    stream.close()
    os.close(near_fd)
    os.close(far_fd)


def test_the_cap_holds_for_forwarded_output() -> None:
    far_fd, near_fd = os.pipe()
    reader, writer = os.pipe()
    stream = OutputStream("stdout", reader, 4, ForwardSink(near_fd))
    os.write(writer, b"abcdefgh")
    os.close(writer)
    stream.drain()
    assert os.read(far_fd, 100) == b"abcd"
    captured = stream.finish()
    assert (captured.total_bytes, captured.truncated) == (8, True)
    os.close(near_fd)
    os.close(far_fd)


def test_inert_output_cannot_steer_a_terminal() -> None:
    controller_fd, terminal_fd = pty.openpty()
    reader, writer = os.pipe()
    stream = OutputStream("stdout", reader, NO_CAP, ForwardSink(terminal_fd, inert=True))
    for chunk in (b"\x1b]52;c;", b"aGk=\x07 \xc3", b"\xa4 \xff\r", b"\nend\xe2\x82"):
        os.write(writer, chunk)
        stream.pump()
    os.close(writer)
    stream.pump()
    assert stream.closed
    stream.close()
    shown = read_all(controller_fd).decode()
    assert shown == "␛]52;c;aGk=␇ ä \ufffd\r\nend\ufffd"
    os.close(terminal_fd)
    os.close(controller_fd)


def test_a_full_disk_of_the_callers_is_one_clear_error() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    stream = OutputStream("stdout", reader, NO_CAP, ForwardSink(fd))
    os.write(writer, b"x")
    with pytest.raises(OcisbxError, match=f"cannot write to descriptor {fd}") as caught:
        stream.pump()
    assert caught.value.why == os.strerror(errno.ENOSPC)
    os.write(writer, b"y")
    stream.pump()
    assert stream.total_bytes == 2
    stream.close()
    os.close(writer)
    os.close(fd)


def test_a_descriptor_that_cannot_be_written_is_refused() -> None:
    read_fd, write_fd = os.pipe()
    with pytest.raises(ConfigError, match="not open for writing"):
        ForwardSink(read_fd)
    os.close(read_fd)
    os.close(write_fd)
    with pytest.raises(ConfigError, match=f"output descriptor {write_fd} is not open"):
        ForwardSink(write_fd)
