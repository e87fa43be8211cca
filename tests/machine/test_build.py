"""tools/vm builds a guest once, whatever came in between."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.machine.conftest import Vm
from tools import vm_cache
from tools.vm_build import plan
from tools.vm_recipe import GUESTS

if TYPE_CHECKING:
    import subprocess

SUITE = next(iter(GUESTS))

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def fresh(vm: Vm, tmp_path: Path) -> Vm:
    """One with a cache of its own, in which only what was downloaded is there."""
    assert vm("build", "-g", SUITE).returncode == 0
    made = plan(GUESTS[SUITE])
    fresh = Vm(vm.out, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    cache(fresh).mkdir(parents=True)
    for one in (made.packages, made.site):
        (cache(fresh) / one.name).symlink_to(one)
    return fresh


def wait_for(process: subprocess.Popen[str], step: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"vm: {SUITE}: {step}"):
            return
    pytest.fail(f"ended before {step}")


def cache(vm: Vm) -> Path:
    return Path(vm.environment["XDG_CACHE_HOME"]) / "ocisbx-dev" / "vm"


def names(vm: Vm) -> list[str]:
    return sorted(path.name for path in cache(vm).iterdir())


def half_made(vm: Vm) -> None:
    while not list(cache(vm).glob("new-*/vmlinuz")):
        time.sleep(0.01)


def test_interrupted_builds_leave_nothing_behind_and_two_at_once_build_once(fresh: Vm) -> None:
    seeded = names(fresh)
    with fresh.start("build", "-g", SUITE) as killed:
        wait_for(killed, "making the disk")
        half_made(fresh)
        killed.kill()
    with fresh.start("build", "-g", SUITE) as interrupted:
        wait_for(interrupted, "booting")
        interrupted.send_signal(signal.SIGINT)
        # What it still says has to have a reader, or its exit code tells of that.
        interrupted.communicate()
    assert interrupted.returncode == 130
    assert names(fresh) == sorted([*seeded, "lock"])

    with fresh.start("run", "--", "echo", "one") as one:
        wait_for(one, "making the disk")
        with fresh.start("run", "--", "echo", "other") as other:
            said = [process.communicate() for process in (one, other)]
    assert [out for out, _ in said] == ["one\n", "other\n"], said
    assert said[1][1] == "vm: waiting for another build\n"
    assert names(fresh) == sorted([*seeded, "lock", plan(GUESTS[SUITE]).place.name])

    with fresh.start("run", "--", "cat") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("begun\n")
        running.stdin.flush()
        assert running.stdout.readline() == "begun\n"
        cleaned = fresh("clean")
        running.communicate()
    assert "is in use, and stays" in cleaned.stderr
    assert running.returncode == 0


def test_a_cache_knows_a_thing_that_is_in_use(tmp_path: Path) -> None:
    place = tmp_path / "guest-x"
    with vm_cache.in_use(place) as there:
        assert not there
    place.mkdir()
    with vm_cache.in_use(place) as there:
        assert there
        assert not vm_cache.remove_unused(place)
    assert vm_cache.remove_unused(place)
    assert list(tmp_path.iterdir()) == []
