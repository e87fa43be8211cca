"""OutputStream with real pipes: exact counters, caps, callbacks, limits, errors, no leaks."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocisbx.capture import PIPE_BYTES, FileSink, NullSink, OutputStream, read_at
from ocisbx.errors import OcisbxError

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_CAP = 1 << 40


@pytest.fixture(autouse=True)
def no_leaked_descriptors() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_bytes_of_every_value_reach_the_file_at_once(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    sink = FileSink(str(tmp_path), "stdout")
    stream = OutputStream("stdout", reader, NO_CAP, sink)
    data = bytes(range(256)) * 3
    os.write(writer, data)
    stream.pump()
    assert read_at(sink.path, 0, 1 << 20) == data
    assert Path(sink.path).stat().st_mode & 0o7777 == 0o600
    os.close(writer)
    assert not stream.closed
    stream.pump()
    assert stream.closed
    assert stream.watch() is None
    captured = stream.finish(keep=True)
    assert captured.read() == data
    assert captured.path == sink.path
    assert (captured.total_bytes, captured.truncated) == (len(data), False)


def test_a_file_that_is_not_kept_is_gone_and_still_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    stream = OutputStream("stdout", reader, NO_CAP, FileSink(str(tmp_path), "stdout"))
    os.write(writer, b"text")
    os.close(writer)
    stream.drain()
    captured = stream.finish()
    assert captured.read() == b"text"
    assert captured.path is None
    assert list(tmp_path.iterdir()) == []


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    chunks=st.lists(st.binary(max_size=3000), max_size=20),
    pumps=st.lists(st.integers(0, 3), min_size=20, max_size=20),
    cap=st.integers(0, 20_000),
)
def test_any_chunking_keeps_exactly_the_cap(
    tmp_path: Path, chunks: list[bytes], pumps: list[int], cap: int
) -> None:
    reader, writer = os.pipe()
    heard: list[bytes] = []
    limits: list[int] = []
    stream = OutputStream(
        "stdout",
        reader,
        cap,
        FileSink(str(tmp_path), "stdout"),
        on_data=heard.append,
        on_limit=lambda: limits.append(stream.total_bytes),
    )
    for chunk, times in zip(chunks, pumps, strict=False):
        os.write(writer, chunk)
        for _ in range(times):
            stream.pump()
    os.close(writer)
    while not stream.closed:
        stream.pump()
    data = b"".join(chunks)
    captured = stream.finish()
    assert captured.read() == data[:cap] == b"".join(heard)
    assert captured.total_bytes == len(data)
    assert captured.truncated == stream.limit_hit == (len(data) > cap)
    assert len(limits) == (len(data) > cap)
    assert stream.kept_bytes == min(len(data), cap)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    chunks=st.lists(st.binary(min_size=1, max_size=500), min_size=1, max_size=20),
    failing=st.sets(st.integers(0, 19)),
)
def test_a_raising_callback_loses_nothing(
    tmp_path: Path, chunks: list[bytes], failing: set[int]
) -> None:
    reader, writer = os.pipe()
    calls: list[bytes] = []

    def on_data(data: bytes) -> None:
        calls.append(data)
        if len(calls) - 1 in failing:
            raise KeyError(len(calls) - 1)

    sink = FileSink(str(tmp_path), "stdout")
    stream = OutputStream("stdout", reader, NO_CAP, sink, on_data=on_data)
    for index, chunk in enumerate(chunks):
        os.write(writer, chunk)
        if index in failing:
            with pytest.raises(KeyError):
                stream.pump()
        else:
            stream.pump()
    os.close(writer)
    stream.pump()
    assert calls == chunks
    assert stream.finish().read() == b"".join(chunks)


def test_the_limit_is_told_although_the_callback_raises() -> None:
    reader, writer = os.pipe()
    told: list[bool] = []

    def on_data(data: bytes) -> None:
        raise KeyError(data)

    stream = OutputStream(
        "stdout", reader, 3, NullSink(), on_data=on_data, on_limit=lambda: told.append(True)
    )
    os.write(writer, b"abcdef")
    with pytest.raises(KeyError, match="abc"):
        stream.pump()
    os.write(writer, b"ghi")
    stream.pump()
    assert told == [True]
    assert (stream.total_bytes, stream.kept_bytes) == (9, 3)
    os.close(writer)
    stream.close()


def test_exactly_the_cap_is_no_limit() -> None:
    reader, writer = os.pipe()
    stream = OutputStream("stdout", reader, 6, NullSink())
    os.write(writer, b"abcdef")
    os.close(writer)
    stream.drain()
    assert stream.closed
    captured = stream.finish()
    assert (captured.total_bytes, captured.truncated, stream.limit_hit) == (6, False, False)
    assert captured.read() == b""


def test_one_pump_does_bounded_work_and_a_busy_pipe_grows() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    stream = OutputStream("stdout", reader, NO_CAP, NullSink())
    small = fill(writer)
    stream.pump()
    assert stream.total_bytes == small
    assert fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) == PIPE_BYTES
    # A payload may enlarge its pipe; one pump still moves one buffer.
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4 * PIPE_BYTES)
    fill(writer)
    stream.pump()
    assert stream.total_bytes == small + PIPE_BYTES
    os.close(writer)
    stream.close()


def fill(writer: int) -> int:
    total = 0
    while True:
        try:
            total += os.write(writer, bytes(4096))
        except BlockingIOError:
            return total


def test_drain_ends_although_somebody_still_holds_the_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    held = os.dup(writer)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4 * PIPE_BYTES)
    os.set_blocking(writer, False)
    size = fill(writer)
    refilled: list[int] = []

    def go_on_writing(data: bytes) -> None:
        refilled.append(fill(writer))

    sink = FileSink(str(tmp_path), "stdout")
    stream = OutputStream("stdout", reader, NO_CAP, sink, on_data=go_on_writing)
    stream.drain()
    assert size <= stream.total_bytes <= size + PIPE_BYTES
    assert not stream.closed
    captured = stream.finish()
    assert captured.total_bytes == len(captured.read()) == stream.total_bytes
    os.close(writer)
    os.close(held)
    del captured


def test_pump_without_anything_to_read_does_nothing() -> None:
    reader, writer = os.pipe()
    stream = OutputStream("stderr", reader, NO_CAP, NullSink())
    assert stream.watch() == (reader, select.POLLIN)
    stream.pump()
    assert (stream.total_bytes, stream.closed, stream.fileno()) == (0, False, reader)
    os.close(writer)
    stream.pump()
    assert (stream.closed, stream.fileno()) == (True, -1)
    stream.pump()
    stream.drain()
    stream.close()


def test_close_removes_the_file_and_is_idempotent(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    stream = OutputStream("stdout", reader, NO_CAP, FileSink(str(tmp_path), "stdout"))
    os.write(writer, b"x")
    stream.pump()
    stream.close()
    stream.close()
    assert stream.closed
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"y")
    os.close(writer)


def test_a_file_that_cannot_grow_is_one_clear_error(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    limits: list[bool] = []
    sink = FileSink(str(tmp_path), "stdout")
    stream = OutputStream("stdout", reader, 8000, sink, on_limit=lambda: limits.append(True))
    os.write(writer, bytes(6000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OcisbxError) as caught:
            stream.pump()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.what == f"cannot write the capture file {sink.path!r}"
    assert caught.value.why == os.strerror(errno.EFBIG)
    assert "--max-output" in caught.value.remedy
    assert caught.value.exit_code == 125
    assert list(tmp_path.iterdir()) == []
    os.write(writer, bytes(6000))
    stream.pump()
    assert (stream.total_bytes, stream.kept_bytes, limits) == (12000, 0, [])
    os.close(writer)
    captured = stream.finish(keep=True)
    assert (captured.read(), captured.path, captured.truncated) == (b"", None, True)


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("obstacle", ["file", "symlink", "directory", "missing"])
def test_a_capture_file_is_always_a_new_one(
    tmp_path: Path, obstacle: str, *, lasting: bool
) -> None:
    """One that lasts is made at once, another with the first byte."""
    place = tmp_path / "captures"
    target = tmp_path / "victim"
    target.write_bytes(b"mine")
    if obstacle != "missing":
        place.mkdir()
    if obstacle == "file":
        (place / "stdout").write_bytes(b"other")
    elif obstacle == "symlink":
        (place / "stdout").symlink_to(target)
    elif obstacle == "directory":
        (place / "stdout").mkdir()
    with pytest.raises(OcisbxError, match="cannot make the capture file") as caught:
        FileSink(str(place), "stdout", lasting=lasting).write(memoryview(b"x"))
    assert caught.value.why
    assert caught.value.remedy
    assert target.read_bytes() == b"mine"


def test_two_streams_share_the_loop_fairly(tmp_path: Path) -> None:
    busy_reader, busy_writer = os.pipe()
    calm_reader, calm_writer = os.pipe()
    os.set_blocking(busy_writer, False)
    order: list[str] = []
    busy = OutputStream(
        "stdout", busy_reader, NO_CAP, NullSink(), on_data=lambda _: order.append("busy")
    )
    calm = OutputStream(
        "stderr", calm_reader, NO_CAP, NullSink(), on_data=lambda _: order.append("calm")
    )
    for _ in range(10):
        fill(busy_writer)
        os.write(calm_writer, b"x")
        busy.pump()
        calm.pump()
    assert order == ["busy", "calm"] * 10
    os.close(busy_writer)
    os.close(calm_writer)
    busy.close()
    calm.close()
