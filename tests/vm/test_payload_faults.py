"""Payloads that take all they can get: the right verdict, and nothing left."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import pytest

from ocisbx.result import EnforcementState as S
from ocisbx.result import Termination as T
from tests.vm.rig import (
    LIMITS,
    MIB,
    box,
    cache,
    end_of,
    fast,
    killed,
    ours,
    parent,
    runtime,
    up,
    value,
)

if TYPE_CHECKING:
    from tests.box import Box

__all__ = ["box", "cache", "fast", "runtime"]

pytestmark = pytest.mark.vm


def test_a_fork_bomb_that_outlives_its_time(box: Box) -> None:
    """Deaf to TERM, in sessions of their own, and replaced as fast as they die."""
    bomb = "trap '' TERM; b() { while :; do setsid sh -c 'trap \"\" TERM; sleep 100' & done; }; b"
    with up(box) as (sibling, cgroup):
        usage = value(cgroup, "pids.events")
        result = box.sh(bomb, limits=LIMITS, timeout_s=6, grace_s=0.3)
        assert value(cgroup, "pids.events") == usage
        assert killed(sibling).usage.oom_kills == 0
    assert result.termination in (T.TIMED_OUT, T.PIDS_LIMIT)
    assert (result.usage.pids_peak, result.enforcement["pids"].state) == (30, S.ENFORCED)


SHARED_HOG = """
import mmap, os
for _ in range(8):
    if os.fork() == 0:
        shared = mmap.mmap(-1, 12 << 20)
        for page in range(0, len(shared), 4096): shared[page] = 1
        os.kill(os.getppid(), 0)
        __import__("signal").pause()
__import__("time").sleep(30)
"""


def test_a_hog_of_shared_memory(fast: Box) -> None:
    """Many map a little each; what dies is a child, and the payload's own end stands."""
    result = fast.python(SHARED_HOG, limits={"memory_bytes": 48 * MIB}, timeout_s=6, grace_s=0)
    assert (result.usage.oom_kills or 0) >= 1
    assert result.termination in (T.TIMED_OUT, T.OOM_KILLED)
    assert (result.usage.memory_peak_bytes or 0) <= 48 * MIB


FILL = (
    "for d in /tmp /dev/shm $HOME /scratch; do dd if=/dev/zero of=$d/f bs=1M; rm $d/f; done; exit 7"
)


def test_a_filler_of_every_tmpfs(box: Box) -> None:
    """Each is full before memory is: it is told so, and lives on."""
    sizes = {"/tmp": "20M", "/root": "20M", "/scratch": "20M"}
    # That of /dev/shm is fixed: 256 MiB.
    result = box.sh(FILL, limits={"memory_bytes": 320 * MIB}, tmpfs=sizes)
    assert (result.termination, result.exit_code) == (T.EXITED, 7)
    assert result.stderr.count(b"No space left on device") == 4, result.stderr
    assert result.usage.oom_kills == 0


def test_a_filler_of_what_is_larger_than_memory(fast: Box) -> None:
    """A tmpfs is memory: the limit ends it, and it is the payload's verdict."""
    result = fast.sh("exec dd if=/dev/zero of=/dev/shm/f bs=1M", limits={"memory_bytes": 48 * MIB})
    assert result.termination is T.OOM_KILLED


@pytest.mark.parametrize(("name", "count"), [("crun", 64), ("runc", 24)])
def test_many_at_once(fast: Box, name: str, count: int) -> None:
    """In one process, all of them there at the same time."""
    fast.runtime = ours(name)
    # Who reads a pipe that has a name waits for somebody to write (fifo(7)), at no cost.
    gate = fast.workspace / "gate"
    os.mkfifo(gate)
    sandbox = fast.sandbox(limits=LIMITS, timeout_s=600)
    beside = parent()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        all_of_them = [
            stack.enter_context(sandbox.start(["sh", "-c", f"exec 3<{gate}; exit {number}"]))
            for number in range(count)
        ]
        while sum((beside / f"ocisbx-{one.id}/c").exists() for one in all_of_them) < count:
            assert time.monotonic() - started < 300
            time.sleep(1)
        writer = os.open(gate, os.O_RDWR)
        try:
            results = [end_of(one) for one in all_of_them]
        finally:
            os.close(writer)
    assert [result.exit_code for result in results] == list(range(count))
    assert {result.enforcement["memory"].state for result in results} == {S.ENFORCED}
    assert time.monotonic() - started < 300
