"""Containers in the background where limits hold, and where the clock can be set back."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import ocisbx
from ocisbx import Container
from ocisbx.background.leftovers import collect
from ocisbx.bundle.record import State
from tests.box import eventually

PATIENCE_S = 120
LIMITS = {"memory_bytes": "64M", "pids": 50}


def cgroups(container_id: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").rglob(f"ocisbx-{container_id}"))


def test_the_supervisor_holds_the_limits_and_knows_the_verdict() -> None:
    sandbox = ocisbx.Sandbox(limits=LIMITS, workspace="none")
    hog = sandbox.create(["/usr/bin/python3", "-c", "x = bytearray(1 << 28)"]).start()
    result = hog.wait(PATIENCE_S)
    assert result is not None
    assert result.termination == "oom_killed"
    assert result.usage.oom_kills
    assert result.enforcement["memory"].state == "enforced"
    assert cgroups(hog.id) == []
    hog.remove()


def test_a_killed_supervisor_leaves_no_cgroup() -> None:
    container = ocisbx.Sandbox(limits=LIMITS, workspace="none").create(["sleep", "600"]).start()
    (cgroup,) = cgroups(container.id)
    assert (cgroup / "memory.max").read_text() == f"{64 << 20}\n"
    os.kill(container.record.supervisor.pid, signal.SIGKILL)
    assert eventually(lambda: container.state is State.LOST, PATIENCE_S)
    collect()
    assert cgroups(container.id) == []
    container.remove()
    assert Container.all() == []


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    """Order, states, time limits and `gc`: none of them asks for the time of day."""
    sandbox = ocisbx.Sandbox(workspace="none", timeout_s=20)
    first = sandbox.create(["sleep", "600"]).start()
    now, began = time.time(), time.monotonic()
    subprocess.run(["sudo", "-n", "date", "-s", "2001-01-01"], check=True, capture_output=True)
    try:
        second = sandbox.create(["true"]).start()
        assert [one.id for one in Container.all()] == [first.id, second.id]
        assert first.state is State.RUNNING
        assert collect() == []
        assert (second.wait(PATIENCE_S) or first).id == second.id
        result = first.wait(PATIENCE_S)
    finally:
        passed = time.monotonic() - began
        argument = f"@{now + passed:.0f}"
        subprocess.run(["sudo", "-n", "date", "-s", argument], check=True, capture_output=True)
    assert result is not None
    assert result.termination == "timed_out"
    assert result.usage.wall_s is not None
    assert 19 < result.usage.wall_s < 60
    for container in Container.all():
        container.remove()
