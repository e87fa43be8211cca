"""Pools where cgroups are ours: limits of one call, and members that somebody has frozen."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx.errors import ConfigError
from ocisbx.result import Termination as T
from tests.box import PYTHON, Box, eventually
from tests.vm.rig import MIB, PATIENCE_S, box, cache, fast, runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["box", "cache", "fast", "runtime"]

pytestmark = pytest.mark.vm

EAT = "x = bytearray(%d); print(len(x))"
FORKS = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait"


@contextlib.contextmanager
def pool_of(box: Box, size: int, **fields: Any) -> Iterator[ocisbx.Pool]:
    with ocisbx.Pool(box.sandbox(**fields).config, size) as pool:
        assert eventually(lambda: pool.counts.waiting == size, PATIENCE_S)
        yield pool


def test_limits_of_one_call(fast: Box) -> None:
    """They hold for this call, and for no other of the pool."""
    with pool_of(fast, 2, limits={"pids": 100}) as pool:
        limited = pool.run(["sh", "-c", FORKS], limits={"pids": 5})
        assert limited.termination is T.PIDS_LIMIT
        assert limited.exit_code != 0
        assert pool.run(["sh", "-c", FORKS]).exit_code == 0
        with pytest.raises(ConfigError, match="rlimits"):
            pool.run(["true"], limits={"rlimits": {"nofile": 10}})
        with pytest.raises(ConfigError):
            pool.run(["true"], limits={"pids": -5})


def test_memory_of_one_call(fast: Box) -> None:
    with pool_of(fast, 2, limits={"pids": 100}) as pool:
        eaten = pool.run([PYTHON, "-I", "-c", EAT % (200 * MIB)], limits={"memory_bytes": 64 * MIB})
        assert eaten.termination is T.OOM_KILLED
        free = pool.run([PYTHON, "-I", "-c", EAT % (20 * MIB)])
        assert free.exit_code == 0
        assert free.usage.memory_peak_bytes
        assert free.enforcement["pids"].state == "enforced"


def test_a_frozen_member_is_not_handed_out(fast: Box) -> None:
    with pool_of(fast, 2, limits={"pids": 100}) as pool:
        first, second = list(pool._store._waiting)
        assert first.execution.box is not None
        freezer = Path(first.execution.box.path, "cgroup.freeze")
        freezer.write_text("1", encoding="ascii")
        events = freezer.with_name("cgroup.events")
        assert eventually(lambda: "frozen 1" in events.read_text(encoding="ascii"))
        assert pool.run(["true"]).id == second.execution.id
        # And can be ended all the same.
