"""`ocisbx stats` of containers that run, and for a reader that leaves."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.probe.cgroups import look
from ocisbx.probe.processes import command_line
from tests.box import PYTHON, eventually, nap, running
from tests.cgroups import delegated_parent
from tests.command_line import ocisbx, start

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.box import Box

pytestmark = pytest.mark.runtime

BUSY = (PYTHON, "-I", "-S", "-c", "while True: pass")


@contextlib.contextmanager
def started(box: Box, *argv: str, name: str) -> Iterator[subprocess.Popen[str]]:
    process = start(box, "run", "--name", name, "--", *argv)
    try:
        assert eventually(lambda: name in ocisbx(box, "ps").stdout.split())
        # The record is there before the payload runs.
        assert eventually(box.serving)
        yield process
    finally:
        process.terminate()
        process.communicate()


def has_cgroup(box: Box) -> bool:
    """Whether the containers of this box get one here: on hybrid hosts runc's do not."""
    delegated_parent()
    return look().hierarchy == "unified" or box.runtime.name != "runc"


def seconds_between(first: dict[str, Any], second: dict[str, Any]) -> float:
    at = (datetime.fromisoformat(line["at"]) for line in (first, second))
    return -(next(at) - next(at)).total_seconds()


def test_a_busy_loop_in_json_lines(box: Box) -> None:
    with started(box, *BUSY, name="busy") as busy:
        stats = start(box, "stats", "--json", "--interval", "0.5", "busy")
        assert stats.stdout is not None
        lines = [json.loads(stats.stdout.readline()) for _ in range(4)]
        busy.terminate()
        # It ends with what it watches.
        assert stats.communicate(timeout=30)[1] == ""
        assert stats.returncode == 0
    for line in lines:
        assert (line["name"], line["command"]) == ("busy", list(BUSY))
    if not has_cgroup(box):
        assert all(line["cpu_percent"] is line["cpu_user_s"] is None for line in lines)
        return
    for before, now in pairwise(lines):
        assert now["cpu_percent"] > 0
        spent_s = sum(now[key] - before[key] for key in ("cpu_user_s", "cpu_system_s"))
        elapsed_s = seconds_between(before, now)
        assert now["cpu_percent"] == pytest.approx(spent_s / elapsed_s * 100, rel=0.05)


def sleeps(mark: str) -> bool:
    """Whether the payload runs: until then its container uses the processor."""
    return any(command_line(pid)[:1] == [b"sleep"] for pid in running(mark))


def test_two_containers_once_as_a_table(box: Box) -> None:
    naps = (("sleep", nap()), ("sleep", nap()))
    with started(box, *naps[0], name="first"), started(box, *naps[1], name="second"):
        assert eventually(lambda: all(sleeps(mark) for _, mark in naps))
        done = ocisbx(box, "stats", "--no-stream", "--interval", "0.2")
        only = ocisbx(box, "stats", "--no-stream", "--interval", "0.2", "second")
    assert (done.returncode, done.stderr) == (0, "")
    titles, first, second = done.stdout.splitlines()
    assert titles.startswith("ID  ")
    assert [line.split()[1:4] for line in (first, second)] == [
        ["first", *naps[0]],
        ["second", *naps[1]],
    ]
    assert first.split()[4] == ("0.0%" if has_cgroup(box) else "-")
    assert [line.split()[1] for line in only.stdout.splitlines()] == ["NAME", "second"]


def test_it_ends_when_nobody_reads(box: Box) -> None:
    """With no container there is nothing to write, so no write tells."""
    stats = start(box, "stats", "--interval", "0.1")
    assert stats.stdout is not None
    assert stats.stdout.readline().startswith("ID ")
    stats.stdout.close()
    assert stats.wait(30) == 141
    assert stats.stderr is not None
    stats.stderr.close()
