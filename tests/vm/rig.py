"""What the tests of limits, of faults and of death share, in the test machine.

Emulated, a container takes a second to start: each test starts as few as it can.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.probe.runtimes import find_runtimes
from tests.box import Box, eventually, nothing_leaks
from tests.cgroups import members
from tests.command_line import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ocisbx.host import RuntimeBinary

HIERARCHY = Path("/sys/fs/cgroup")
MIB = 1 << 20
UID = os.geteuid()
MANAGER = HIERARCHY / f"user.slice/user-{UID}.slice/user@{UID}.service"
PATIENCE_S = 60.0
ATTEMPTS = Path(__file__).with_name("attempts.py")

# By name and whether it is the distribution's; of equal ones the first that is found.
FOUND = {(one.name, one.path.startswith("/usr/")): one for one in reversed(find_runtimes())}


def ours(name: str) -> RuntimeBinary:
    return FOUND[name, False]


@pytest.fixture(params=["crun", "runc"])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    """What puts the container into its cgroup is the runtime's; hence each of both."""
    return ours(request.param)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def box(
    runtime: RuntimeBinary, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Box]:
    yield from _made(runtime, tmp_path, cache, monkeypatch)


@pytest.fixture
def fast(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """A box on crun alone, for what is the kernel's doing or ours."""
    yield from _made(ours("crun"), tmp_path, cache, monkeypatch)


def _made(
    runtime: RuntimeBinary, place: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Box]:
    made = Box(place, runtime, cache)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    before = sandboxes()
    yield from (made for _ in nothing_leaks(made))
    assert sandboxes() == before


def sandboxes() -> set[Path]:
    """The cgroups of sandboxes, wherever in the hierarchy."""
    return {
        Path(parent, name)
        for parent, names, _ in os.walk(HIERARCHY)
        for name in names
        if name.startswith("ocisbx-") and not name.endswith(".scope") and name != "ocisbx-driver"
    }


def parent() -> Path:
    """Where the cgroups of our sandboxes are made: beside our own scope."""
    return HIERARCHY / own().lstrip("/") / ".."


def own() -> str:
    (line,) = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    return line.removeprefix("0::")


def box_of(container_id: str) -> Path:
    """The cgroup of a sandbox."""
    (found,) = (path for path in sandboxes() if path.name == f"ocisbx-{container_id}")
    return found


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
