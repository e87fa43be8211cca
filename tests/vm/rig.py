"""What the tests of limits, of faults and of death share, in the test machine.

Emulated, a container takes a second to start: each test starts as few as it can.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.box import Box, eventually
from tests.cgroups import members
from tests.command_line import ROOT
from tests.vm.boxes import FOUND, HIERARCHY, box, cache, made_box, ours
from tests.vm.boxes import cgroup_of as box_of
from tests.vm.boxes import cgroups as sandboxes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ocisbx.host import RuntimeBinary
    from ocisbx.result import RunResult
    from ocisbx.running import Running

__all__ = ["FOUND", "HIERARCHY", "box", "box_of", "cache", "ours", "sandboxes"]

MIB = 1 << 20
UID = os.geteuid()
MANAGER = HIERARCHY / f"user.slice/user-{UID}.slice/user@{UID}.service"
PATIENCE_S = 60.0
ATTEMPTS = Path(__file__).with_name("attempts.py")


@pytest.fixture(params=["crun", "runc"])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    """What puts the container into its cgroup is the runtime's; hence each of both."""
    return ours(request.param)


@pytest.fixture
def fast(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """A box on crun alone, for what is the kernel's doing or ours."""
    yield from made_box(ours("crun"), tmp_path, cache, monkeypatch)


def parent() -> Path:
    """Where the cgroups of our sandboxes are made: beside our own scope."""
    return HIERARCHY / own().lstrip("/") / ".."


def own() -> str:
    (line,) = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    return line.removeprefix("0::")


def value(cgroup: Path, name: str) -> str:
    return (cgroup / name).read_text(encoding="ascii").strip()


def write(cgroup: Path, name: str, text: str) -> None:
    (cgroup / name).write_text(text, encoding="ascii")


def vacate(cgroup: Path) -> None:
    """End all that runs in it, as somebody outside may, and remove it."""
    write(cgroup, "cgroup.kill", "1")
    assert eventually(lambda: not members(cgroup), PATIENCE_S)
    for path in (*cgroup.iterdir(), cgroup):
        if path.is_dir():
            path.rmdir()


def sudo(*command: str, check: bool = True, timeout_s: float = 120) -> str:
    """What a command of root's prints."""
    done = subprocess.run(
        ["sudo", *command], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0 or not check, (command, done.stdout, done.stderr)
    return done.stdout.strip()


def attempt(
    prefix: Sequence[str], attempts: Sequence[Any], timeout_s: float = 240
) -> list[dict[str, Any]]:
    """What attempts.py tells, started behind `prefix` (words that start another program)."""
    words = [sys.executable, "-P", str(ATTEMPTS), json.dumps(attempts)]
    place = f"PYTHONPATH={ROOT}"
    done = subprocess.run(
        [*prefix, "env", place, "PYTHONDONTWRITEBYTECODE=1", *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(attempts), (done.returncode, done.stdout, done.stderr)
    return told


LIMITS = {"memory_bytes": 48 * MIB, "pids": 30}
UP = ["sh", "-c", "echo up; exec sleep 1000"]


@contextlib.contextmanager
def up(box: Box, **options: object) -> Iterator[tuple[Running, Path]]:
    """A payload that runs, and its cgroup."""
    with box.sandbox(**({"limits": LIMITS} | options)).start(UP) as running:
        assert eventually(lambda: running.logs() == b"up\n", PATIENCE_S)
        yield running, box_of(running.id)


def end_of(running: Running) -> RunResult:
    result = running.wait(PATIENCE_S)
    assert result is not None
    return result


def killed(running: Running) -> RunResult:
    running.kill()
    return end_of(running)


def lines_of(result: RunResult) -> list[str]:
    return result.stdout.decode().splitlines()
