"""The init without a driver: a kept bundle, run by the bare runtime."""

from __future__ import annotations

import os
import pty
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.runtimes.init_container import NATIVE, RUNTIMES, Bundle, Container, Runtime, python

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.runtime
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda one: one.name)
every_native = pytest.mark.parametrize("runtime", NATIVE, ids=lambda one: one.name)


def _run(bundle: Bundle, data: bytes = b"") -> tuple[bytes, bytes, int]:
    files = [bundle.directory / name for name in ("in", "out", "err")]
    files[0].write_bytes(data)
    with files[0].open("rb") as given, files[1].open("wb") as out, files[2].open("wb") as err:
        stdio = (given.fileno(), out.fileno(), err.fileno())
        with Container(bundle, driven=False, stdio=stdio) as container:
            code = container.wait()
    return files[1].read_bytes(), files[2].read_bytes(), code


@every_runtime
@pytest.mark.parametrize(
    ("script", "code"), [("cat; exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_stdio_is_inherited_and_the_end_is_the_exit_code(
    runtime: Runtime, script: str, code: int, tmp_path: Path
) -> None:
    out, err, exit_code = _run(Bundle(tmp_path, runtime, ["sh", "-c", script]), b"given\n")
    assert (out, err, exit_code) == (b"given\n" if code == 7 else b"", b"", code)


@every_runtime
@pytest.mark.parametrize(
    ("name", "line", "code"),
    [
        ("missing", b"ocisbx-init: missing: no such file or directory (errno 2)\n", 127),
        ("/usr", b"ocisbx-init: /usr: permission denied (errno 13)\n", 126),
        ("a\nb\x1b", b"ocisbx-init: a?b?: no such file or directory (errno 2)\n", 127),
        ("y" * 4000, b"ocisbx-init: " + b"y" * 1010 + b"\n", 127),
    ],
)
def test_a_failed_exec_is_one_line(
    runtime: Runtime, name: str, line: bytes, code: int, tmp_path: Path
) -> None:
    out, err, exit_code = _run(Bundle(tmp_path, runtime, [name]))
    assert (out, err, exit_code) == (b"", line, code)


@every_native
def test_the_runtimes_forwarded_signal_reaches_the_payload(
    runtime: Runtime, tmp_path: Path
) -> None:
    source = """
import signal, time, sys
def end(*_): sys.exit(3)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True: time.sleep(1)
"""
    read, write = os.pipe()
    bundle = Bundle(tmp_path, runtime, python(source))
    with os.fdopen(read, "rb", buffering=0) as out, os.fdopen(write, "wb") as err:
        stdio = (read, write, write)
        with Container(bundle, driven=False, stdio=stdio) as container:
            assert out.read(3) == b"up\n"
            os.kill(container.pid, signal.SIGTERM)
            assert container.wait() == 3
        assert err.closed is False


@every_native
def test_a_terminal_becomes_the_payloads(runtime: Runtime, tmp_path: Path) -> None:
    """Job control needs it: Ctrl-C on the terminal reaches the payload, not only process 1."""
    script = "trap 'echo caught; exit 4' INT; echo up; tty; while :; do sleep 0.02; done"
    controller_fd, terminal_fd = pty.openpty()
    bundle = Bundle(tmp_path, runtime, ["sh", "-c", script], terminal=True)
    with (
        os.fdopen(controller_fd, "r+b", buffering=0) as controller,
        Container(bundle, driven=False, stdio=(terminal_fd,) * 3) as container,
    ):
        os.close(terminal_fd)
        seen = _read_until(controller_fd, b"/pts/", b"\n")
        assert b"up" in seen
        controller.write(b"\x03")
        assert b"caught" in _read_until(controller_fd, b"caught")
        assert container.wait() == 4


def _read_until(fd: int, *marks: bytes) -> bytes:
    seen = b""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        seen += os.read(fd, 1000)
        rest = seen
        for mark in marks:
            _, found, rest = rest.partition(mark)
            if not found:
                break
        else:
            return seen
    return seen


@every_native
def test_without_a_driver_a_command_is_needed(runtime: Runtime, tmp_path: Path) -> None:
    err = tmp_path / "err"
    with err.open("wb") as target:
        fds = (target.fileno(),) * 3
        bundle = Bundle(tmp_path / "bundle", runtime, [])
        with Container(bundle, driven=False, stdio=fds) as container:
            assert container.wait() == 125
    assert err.read_text() == "ocisbx-init: a command or a driver is needed\n"
