"""The relay with real processes: speed, memory, full disks, hostile and stalled neighbours.

No container: to the relay a payload is whatever holds the other end of its pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.capture import FileSink, ForwardSink, InputFeeder, NullSink, OutputStream, read_at
from tests.box import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
BENCHMARK = ROOT / "benchmarks" / "relay.py"
NO_CAP = 1 << 40
TIMEOUT_S = 20.0
DRIVER_LIMIT_BYTES = 64 << 20


@pytest.fixture(autouse=True)
def no_leaked_descriptors() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def start(script: str, stdin: int = subprocess.DEVNULL) -> tuple[subprocess.Popen[bytes], int]:
    """A shell as the payload, and the read end of its stdout."""
    reader, writer = os.pipe()
    payload = subprocess.Popen(["/bin/sh", "-c", script], stdin=stdin, stdout=writer)
    os.close(writer)
    return payload, reader


def drive(*members: OutputStream | InputFeeder, timeout_s: float = TIMEOUT_S) -> bool:
    """The driver's loop; whether all were closed in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        waiting = {watched[0]: (one, watched[1]) for one in members if (watched := one.watch())}
        left_s = deadline - time.monotonic()
        if not waiting or left_s <= 0:
            return not waiting
        poller = select.poll()
        for fd, (_, events) in waiting.items():
            poller.register(fd, events)
        for fd, _ in poller.poll(left_s * 1000):
            waiting[fd][0].pump()


def test_the_relay_is_fast_and_small(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            str(BENCHMARK),
            "--size",
            str(128 << 20),
            "--rounds",
            "3",
            "--directory",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        check=False,
    )
    rows = json.loads(ran.stdout)["rows"]
    assert rows
    for row in rows:
        assert row["ratio"] >= 0.5, row
        assert row["grown_bytes"] < DRIVER_LIMIT_BYTES, row
    assert ran.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_gibibyte_costs_the_driver_no_memory(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            str(BENCHMARK),
            "--size",
            str(1 << 30),
            "--directory",
            str(tmp_path),
            "--relay",
            "blocks of 1 MiB",
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    result = json.loads(ran.stdout)
    assert result["total_bytes"] == 1 << 30
    assert result["grown_bytes"] < DRIVER_LIMIT_BYTES
    assert list(tmp_path.iterdir()) == []


def test_the_first_byte_comes_before_the_end(tmp_path: Path) -> None:
    payload, reader = start("printf a; exec sleep 60")
    sink = FileSink(str(tmp_path), "stdout")
    heard: list[bytes] = []
    stream = OutputStream("stdout", reader, NO_CAP, sink, on_data=heard.append)
    assert eventually(lambda: not drive(stream, timeout_s=0.1) and heard == [b"a"])
    assert read_at(sink.path, 0, 10) == b"a"
    payload.kill()
    payload.wait()
    assert drive(stream)
    assert stream.finish().read() == b"a"


def test_the_payload_cannot_reach_its_capture(tmp_path: Path) -> None:
    attack = "echo kept; : > /proc/self/fd/1; truncate -s 0 /proc/self/fd/1; chmod 777 /dev/stdout;"
    payload, reader = start(f"{attack} readlink /proc/self/fd/1 2>&1", stdin=subprocess.DEVNULL)
    sink = FileSink(str(tmp_path), "stdout")
    stream = OutputStream("stdout", reader, NO_CAP, sink)
    assert drive(stream)
    payload.wait()
    assert Path(sink.path).stat().st_mode & 0o777 == 0o600
    kept, place = stream.finish().read().split(b"\n")[:2]
    assert kept == b"kept"
    assert place.startswith(b"pipe:")


def test_a_grandchild_that_holds_the_pipe_does_not_hold_us(tmp_path: Path) -> None:
    payload, reader = start("sleep 60 & echo $!")
    stream = OutputStream("stdout", reader, NO_CAP, FileSink(str(tmp_path), "stdout"))
    payload.wait()
    started = time.monotonic()
    stream.drain()
    assert not stream.closed
    captured = stream.finish()
    assert time.monotonic() - started < 30
    os.kill(int(captured.read()), signal.SIGKILL)


def test_a_reader_that_went_away_gives_the_payload_sigpipe() -> None:
    payload, reader = start("exec yes")
    far_fd, near_fd = os.pipe()
    stream = OutputStream("stdout", reader, NO_CAP, ForwardSink(near_fd))
    assert not drive(stream, timeout_s=0.1)
    os.close(far_fd)
    assert drive(stream)
    assert payload.wait(TIMEOUT_S) == -signal.SIGPIPE
    stream.close()
    os.close(near_fd)


def test_a_reader_that_stalls_does_not_stop_the_clock_or_the_neighbour() -> None:
    stalled_payload, stalled_reader = start("exec yes")
    calm_payload, calm_reader = start("for i in 1 2 3 4 5; do echo $i; sleep 0.05; done")
    far_fd, near_fd = os.pipe()
    stalled = OutputStream("stdout", stalled_reader, NO_CAP, ForwardSink(near_fd))
    calm = OutputStream("stderr", calm_reader, NO_CAP, NullSink())
    cpu_before_s = time.process_time()
    started = time.monotonic()
    assert not drive(stalled, calm, timeout_s=1.0)
    assert 1.0 <= time.monotonic() - started < 10.0
    assert eventually(lambda: not drive(stalled, calm, timeout_s=0.1) and calm.closed)
    # Waiting for the reader, not spinning.
    assert time.process_time() - cpu_before_s < (time.monotonic() - started) / 2
    assert calm.total_bytes == 10
    stalled_payload.kill()
    stalled_payload.wait()
    calm_payload.wait()
    stalled.close()
    calm.close()
    os.close(near_fd)
    os.close(far_fd)


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    data = os.urandom(9 << 20)
    child_stdin, feed_fd = os.pipe()
    feeder = InputFeeder(feed_fd, data)
    payload, reader = start("exec cat", stdin=child_stdin)
    os.close(child_stdin)
    stream = OutputStream("stdout", reader, NO_CAP, FileSink(str(tmp_path), "stdout"))
    assert drive(stream, feeder)
    assert payload.wait() == 0
    assert stream.finish().read() == data


def test_the_payload_never_holds_the_callers_input(tmp_path: Path) -> None:
    source_path = tmp_path / "source"
    source_path.write_bytes(b"line\n" * 100_000)
    child_stdin, feed_fd = os.pipe()
    with source_path.open("rb") as source:
        feeder = InputFeeder(feed_fd, source.fileno())
        payload, reader = start("readlink /proc/self/fd/0; head -n 1", stdin=child_stdin)
        os.close(child_stdin)
        stream = OutputStream("stdout", reader, NO_CAP, FileSink(str(tmp_path), "stdout"))
        # Most of the input is never read: the payload's end is the feeder's (EPIPE).
        assert drive(stream, feeder)
        payload.wait()
    place, line, _ = stream.finish().read().split(b"\n")
    assert place.startswith(b"pipe:")
    assert line == b"line"


FULL_DISK = """
import os, sys
from ocisbx.capture import FileSink, OutputStream
from ocisbx.errors import OcisbxError
reader, writer = os.pipe()
stream = OutputStream("stdout", reader, 1 << 30, FileSink(sys.argv[1], "stdout"))
errors = []
for _ in range(4):
    os.write(writer, bytes(60000))
    try:
        stream.pump()
    except OcisbxError as error:
        errors.append([error.what, error.why, os.listdir(sys.argv[1])])
print(repr((errors, stream.total_bytes)))
"""


def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            "unshare",
            "-Urm",
            "/bin/sh",
            "-c",
            'mount -t tmpfs -o size=128k none "$1" && exec "$2" -c "$3" "$1"',
            "sh",
            str(tmp_path),
            sys.executable,
            FULL_DISK,
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    what = f"cannot write the capture file '{tmp_path}/stdout'"
    assert ran.stdout.decode().strip() == repr(([[what, "No space left on device", []]], 240_000))


def test_the_package_is_cheap_to_import() -> None:
    """Nothing that the fast path of `run` does not have otherwise (performance.md 4)."""
    script = (
        "import sys, ocisbx.errors, ocisbx.result; before = set(sys.modules);"
        "import ocisbx.capture; print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    new = {name for name in ran.stdout.decode().split() if not name.startswith("ocisbx.")}
    assert new <= {"_struct", "contextlib", "errno", "fcntl", "math", "select", "struct", "termios"}


def test_a_killed_driver_leaves_the_payload_a_broken_pipe(tmp_path: Path) -> None:
    payload, reader = start("exec yes")
    stream = OutputStream("stdout", reader, 1000, FileSink(str(tmp_path), "stdout"))
    drive(stream, timeout_s=0.05)
    stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        payload.wait(TIMEOUT_S)
    assert payload.returncode == -signal.SIGPIPE
    assert list(tmp_path.iterdir()) == []
