"""stdin, stdout, stderr: every byte, its order, its totals, and who may hold them."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.box import eventually, nap, running
from tests.contract.conftest import of_each_kind

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

EVERY_BYTE = bytes(range(256)) * 1000


def test_both_streams(box: Box) -> None:
    result = box.sh("echo out; echo err >&2; printf more; printf more >&2")
    assert (result.stdout, result.stderr) == (b"out\nmore", b"err\nmore")
    assert (result.stdout_bytes, result.stderr_bytes) == (8, 8)
    assert (result.stdout_path, result.stderr_path) == (None, None)


def test_combined_keeps_the_order(box: Box) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done"
    result = box.sh(script, capture={"combine": True})
    expected = "".join(f"out{i}\nerr{i}\n" for i in range(1, 10))
    assert (result.stdout.decode(), result.stderr, result.stderr_bytes) == (expected, b"", 0)


def test_bytes_go_through_unchanged(box: Box) -> None:
    result = box.sh("tee /dev/stderr", input=EVERY_BYTE)
    assert result.stdout == EVERY_BYTE
    assert result.stderr == EVERY_BYTE


def test_much_input(box: Box) -> None:
    data = os.urandom(1 << 20) * 8
    result = box.run(["sha256sum"], input=data)
    assert result.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("script", ["exit 0", "head -c 10 >/dev/null", "exec 0<&-; sleep 0.1"])
def test_input_that_nobody_reads(box: Box, script: str) -> None:
    assert box.sh(script, input=bytes(1 << 20)).exit_code == 0


@pytest.mark.parametrize("source", [None, b""])
def test_no_input_is_an_end_at_once(box: Box, source: bytes | None) -> None:
    result = box.sh("cat; test -t 0 || echo no terminal", input=source)
    assert (result.exit_code, result.stdout) == (0, b"no terminal\n")


def test_input_from_a_file_from_where_it_stands(box: Box) -> None:
    path = box.base / "input"
    path.write_bytes(b"skipped" + EVERY_BYTE)
    with path.open("rb") as file:
        os.lseek(file.fileno(), 7, os.SEEK_SET)
        result = box.run(["cat"], input=file.fileno())
    assert result.stdout == EVERY_BYTE


def test_input_from_a_pipe_that_is_written_meanwhile(box: Box) -> None:
    reader, writer = os.pipe()
    try:
        with box.sandbox().start(["cat"], input=reader) as execution:
            os.write(writer, b"one\n")
            assert eventually(lambda: execution.logs() == b"one\n")
            os.write(writer, b"two\n")
            assert eventually(lambda: execution.logs(offset=4) == b"two\n")
            os.close(writer)
            writer = -1
            result = execution.wait()
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    assert result is not None
    assert (result.exit_code, result.stdout) == (0, b"one\ntwo\n")


def test_an_end_does_not_wait_for_input(box: Box) -> None:
    reader, writer = os.pipe()
    try:
        assert box.run(["true"], input=reader).exit_code == 0
    finally:
        os.close(reader)
        os.close(writer)


@of_each_kind
@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 300_000])
def test_caps_and_exact_totals(box: Box, size: int) -> None:
    result = box.sh(
        f"head -c {size} /dev/zero; head -c {size} /dev/zero >&2", capture={"max_bytes": 1000}
    )
    kept = bytes(min(size, 1000))
    assert (result.stdout, result.stderr) == (kept, kept)
    assert (result.stdout_bytes, result.stderr_bytes) == (size, size)
    assert (result.stdout_truncated, result.stderr_truncated) == (size > 1000, size > 1000)


def test_output_is_seen_while_the_payload_runs(box: Box) -> None:
    seen: list[bytes] = []
    errors: list[bytes] = []
    script = "printf first; printf error >&2; while ! test -e go; do sleep 0.01; done; printf last"
    sandbox = box.sandbox()
    command = ["sh", "-c", script]
    with sandbox.start(command, on_stdout=seen.append, on_stderr=errors.append) as execution:
        assert eventually(lambda: execution.logs() == b"first")
        assert eventually(lambda: execution.logs("stderr") == b"error")
        assert eventually(lambda: (seen, errors) == ([b"first"], [b"error"]))
        assert execution.poll() is None
        assert execution.logs(offset=3) == b"st"
        (box.workspace / "go").touch()
        result = execution.wait()
        assert execution.logs(offset=5) == b"last"
    assert result is not None
    assert b"".join(seen) == result.stdout == b"firstlast"


def test_callbacks_get_no_more_than_the_cap(box: Box) -> None:
    seen: list[bytes] = []
    result = box.sh("head -c 5000 /dev/zero", capture={"max_bytes": 99}, on_stdout=seen.append)
    assert b"".join(seen) == result.stdout == bytes(99)


def test_a_grandchild_that_holds_the_pipes_is_not_waited_for(box: Box) -> None:
    mark = nap()
    started = time.monotonic()
    result = box.sh(f"sleep {mark} & echo done")
    assert time.monotonic() - started < 60
    assert (result.exit_code, result.stdout) == (0, b"done\n")
    assert running(mark) == []


def test_daemons_die_with_the_payload(box: Box) -> None:
    mark = nap()
    daemon = f"setsid sh -c 'trap \"\" TERM HUP INT; exec </dev/null >/dev/null 2>&1; sleep {mark}'"
    result = box.sh(f"({daemon} &) ; while ! pgrep -f 'sleep {mark}' >/dev/null; do :; done")
    assert result.exit_code == 0
    assert running(mark) == []


def test_the_payload_holds_pipes_only(box: Box) -> None:
    """It can neither rewrite nor truncate what was captured, nor find another descriptor."""
    script = (
        "import os, stat\n"
        "for n in range(1024):\n"
        "    try: print(n, stat.S_ISFIFO(os.fstat(n).st_mode))\n"
        "    except OSError: pass\n"
    )
    assert box.python(script, input=b"x").stdout == b"0 True\n1 True\n2 True\n"
    assert box.python(script).stdout == b"0 False\n1 True\n2 True\n"
