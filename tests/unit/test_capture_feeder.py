"""InputFeeder with real pipes: bytes and descriptors in, the right end, no leaks."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocisbx.capture import PIPE_BYTES, InputFeeder, check_input
from ocisbx.errors import ConfigError, OcisbxError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_leaked_descriptors() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def feed_all(feeder: InputFeeder, reader: int, read_bytes: int = 1 << 16) -> bytes:
    """Drive the feeder as the driver's loop does, and read as a payload does."""
    received = b""
    os.set_blocking(reader, False)
    while True:
        watched = feeder.watch()
        if watched is not None:
            poller = select.poll()
            poller.register(*watched)
            if poller.poll(0):
                feeder.pump()
        try:
            block = os.read(reader, read_bytes)
        except BlockingIOError:
            continue
        if not block:
            return received
        received += block


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, PIPE_BYTES])
def test_bytes_that_fit_are_in_the_pipe_before_the_start(size: int) -> None:
    reader, writer = os.pipe()
    data = os.urandom(size)
    feeder = InputFeeder(writer, data)
    assert feeder.closed
    assert feeder.watch() is None
    assert (feeder.total_bytes, feeder.fileno()) == (size, -1)
    assert feed_all(feeder, reader) == data
    feeder.pump()
    feeder.close()
    os.close(reader)


@settings(deadline=None, max_examples=30)
@given(size=st.integers(0, 900_000), read_bytes=st.integers(1000, 200_000))
def test_any_amount_of_bytes_arrives_whole(size: int, read_bytes: int) -> None:
    reader, writer = os.pipe()
    data = os.urandom(size)
    feeder = InputFeeder(writer, data)
    assert feed_all(feeder, reader, read_bytes) == data
    assert feeder.closed
    assert feeder.total_bytes == size
    os.close(reader)


def test_a_payload_may_close_its_input() -> None:
    reader, writer = os.pipe()
    feeder = InputFeeder(writer, bytes(1 << 20))
    assert feeder.watch() == (writer, select.POLLOUT)
    os.close(reader)
    feeder.pump()
    assert feeder.closed
    feeder.close()


@settings(deadline=None, max_examples=20)
@given(size=st.integers(0, 400_000))
def test_a_file_is_copied_from_its_offset(size: int) -> None:
    source = os.memfd_create("source")
    data = os.urandom(size)
    os.write(source, b"skipped" + data)
    os.lseek(source, 7, os.SEEK_SET)
    reader, writer = os.pipe()
    assert feed_all(InputFeeder(writer, source), reader) == data
    os.close(reader)
    os.fstat(source)
    os.close(source)


def test_dev_null_ends_at_once() -> None:
    source = os.open(os.devnull, os.O_RDONLY)
    reader, writer = os.pipe()
    assert feed_all(InputFeeder(writer, source), reader) == b""
    os.close(reader)
    os.close(source)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_comes_later_is_passed_on_at_once(kind: str) -> None:
    if kind == "pipe":
        source, far_fd = os.pipe()
    else:
        one, other = socket.socketpair()
        source, far_fd = one.detach(), other.detach()
    reader, writer = os.pipe()
    feeder = InputFeeder(writer, source)
    watched_fd, events = feeder.watch() or (-1, 0)
    assert watched_fd not in {source, writer}
    assert events == select.POLLIN
    feeder.pump()
    assert not feeder.closed
    for word in (b"one", b"two"):
        os.write(far_fd, word)
        feeder.pump()
        assert os.read(reader, 100) == word
    os.close(far_fd)
    feeder.pump()
    assert feeder.closed
    assert os.read(reader, 100) == b""
    assert os.get_blocking(source)
    os.close(source)
    os.close(reader)


def test_a_terminal_gives_lines_and_its_end() -> None:
    controller_fd, terminal_fd = pty.openpty()
    reader, writer = os.pipe()
    feeder = InputFeeder(writer, terminal_fd)
    os.write(controller_fd, b"no line yet")
    feeder.pump()
    assert feeder.total_bytes == 0
    os.write(controller_fd, b" now\n")
    feeder.pump()
    assert os.read(reader, 100) == b"no line yet now\n"
    os.write(controller_fd, b"\x04")
    feeder.pump()
    assert feeder.closed
    assert os.read(reader, 100) == b""
    os.close(reader)
    os.close(terminal_fd)
    os.close(controller_fd)


def test_a_terminal_that_hangs_up_ends_the_input() -> None:
    controller_fd, terminal_fd = pty.openpty()
    reader, writer = os.pipe()
    feeder = InputFeeder(writer, terminal_fd)
    os.close(controller_fd)
    feeder.pump()
    assert feeder.closed
    os.close(reader)
    os.close(terminal_fd)


def test_a_slow_payload_holds_the_source_back() -> None:
    source, far_fd = os.pipe()
    reader, writer = os.pipe()
    os.set_blocking(far_fd, False)
    feeder = InputFeeder(writer, source)
    sent = 0
    for _ in range(100):
        try:
            sent += os.write(far_fd, bytes(4096))
        except BlockingIOError:
            break
        feeder.pump()
    while feeder.watch() != (writer, select.POLLOUT):
        with contextlib.suppress(BlockingIOError):
            sent += os.write(far_fd, bytes(4096))
        feeder.pump()
    os.close(far_fd)
    assert len(feed_all(feeder, reader)) == sent
    os.close(reader)
    os.close(source)


@pytest.mark.parametrize("kind", ["closed", "write-only", "directory"])
def test_an_input_that_cannot_be_read_is_refused(kind: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    source = os.open(tmp_path, os.O_RDONLY)
    if kind == "closed":
        os.close(source)
    elif kind == "write-only":
        os.close(source)
        source = os.open(os.devnull, os.O_WRONLY)
    with pytest.raises(ConfigError, match=f"input descriptor {source} is"):
        InputFeeder(writer, source)
    assert os.read(reader, 1) == b""
    os.close(reader)
    if kind != "closed":
        os.close(source)


def test_a_source_that_fails_is_an_error_and_ends_the_input() -> None:
    # mem(4): reading /proc/self/mem at address 0 fails with EIO.
    source = os.open("/proc/self/mem", os.O_RDONLY)
    reader, writer = os.pipe()
    feeder = InputFeeder(writer, source)
    with pytest.raises(OcisbxError, match=f"cannot read the input descriptor {source}"):
        feeder.pump()
    assert feeder.closed
    assert os.read(reader, 1) == b""
    os.close(reader)
    os.close(source)


def test_an_input_is_bytes_or_a_descriptor(tmp_path: Path) -> None:
    assert check_input(None) is None
    assert check_input(0) == 0
    assert check_input(bytearray(b"ab")) == check_input(memoryview(b"ab")) == b"ab"
    with (tmp_path / "file").open("w+b") as file:
        assert check_input(file) == file.fileno()


@pytest.mark.parametrize("source", ["text", True, 1.5, io.BytesIO(b"x"), ["x"]])
def test_what_is_no_input(source: Any) -> None:
    with pytest.raises(ConfigError, match="is not an input") as caught:
        check_input(source)
    assert caught.value.remedy
