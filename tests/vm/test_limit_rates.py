"""Limits in a guest with every controller: the files say them, and the kernel keeps to them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.errors import ConfigError
from ocisbx.quirks import find_quirks
from ocisbx.result import EnforcementState
from tests.vm.boxes import FOUND, box, cache, cgroup_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.host import RuntimeBinary
    from tests.box import Box

__all__ = ["box", "cache"]

pytestmark = [pytest.mark.vm, pytest.mark.slow]

MIB = 1 << 20
CRUN_AND_RUNC = [found for (name, _), found in FOUND.items() if name in ("crun", "runc")]
# Debian's gVisor is of 2022, takes longer than all others together, and is no other in this.
EVERY = [found for key, found in FOUND.items() if key != ("runsc", True)]


def label(found: RuntimeBinary) -> str:
    return f"{found.name}-{found.version}"


@pytest.fixture(params=CRUN_AND_RUNC, ids=label)
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory that lies on a disk, which a temporary one need not."""
    with tempfile.TemporaryDirectory(dir=Path.home()) as path:
        yield Path(path)


def disk_of(path: Path) -> str:
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def test_every_limit_is_in_its_file(box: Box, on_disk: Path) -> None:
    disk = disk_of(on_disk)
    limits: dict[str, Any] = {
        "memory_bytes": "256M", "memory_high_bytes": "200M", "swap_bytes": "300M",
        "oom_group": True, "cpus": 0.75, "cpu_weight": 50, "cpuset": "1", "pids": 64,
        "io": {str(on_disk): {"read_bps": "10M", "write_iops": 500}, disk: {"read_bps": "9M"}},
    }  # fmt: skip
    expected = {
        "memory.max": f"{256 * MIB}", "memory.high": f"{200 * MIB}",
        "memory.swap.max": f"{44 * MIB}", "memory.oom.group": "1", "cpu.max": "75000 100000",
        "cpu.weight": "50", "cpuset.cpus": "1", "cpuset.cpus.effective": "1", "pids.max": "64",
        "io.max": f"{disk} rbps={9 * MIB} wbps=max riops=max wiops=500",
    }  # fmt: skip
    with box.sandbox(limits=limits).start(["sleep", "100"]) as execution:
        place = cgroup_of(execution.id)
        assert {name: (place / name).read_text().strip() for name in expected} == expected
        # Nothing looser below, where the payload is.
        assert (place / "c" / "cpuset.cpus.effective").read_text() == "1\n"
        execution.kill()
        result = execution.wait()
    assert result is not None
    for name in ("memory", "swap", "cpus", "pids", "io"):
        assert result.enforcement[name].state is EnforcementState.ENFORCED, name


BUSY = """
import os, time
end = time.monotonic() + 4
while time.monotonic() < end:
    pass
print(sum(os.times()[:2]) / 4, *os.sched_getaffinity(0))
"""


def test_half_a_processor_is_half_the_time(box: Box) -> None:
    share, *processors = box.python(BUSY, limits={"cpus": 0.5, "cpuset": "1"}).stdout.split()
    assert 0.45 < float(share) < 0.55
    assert processors == [b"1"]


def test_a_disk_is_written_at_its_rate(box: Box, on_disk: Path) -> None:
    script = (
        "import subprocess, time; started = time.monotonic()\n"
        "subprocess.run(['dd', 'if=/dev/zero', 'of=out', 'bs=256k', 'count=32', 'oflag=direct'],"
        " check=True)\n"
        "print(time.monotonic() - started)\n"
    )
    io = {str(on_disk): {"write_bps": 2 * MIB}}
    result = box.python(script, workspace=str(on_disk), limits={"io": io})
    assert result.exit_code == 0, result.stderr
    # 8 MiB; the kernel lets some pass before it counts.
    assert 3.2 < float(result.stdout) < 6
    assert (result.usage.io_write_bytes or 0) >= 8 * MIB


@pytest.mark.parametrize("runtime", EVERY, ids=label)
def test_the_least_is_enough_to_start(box: Box) -> None:
    quirks = find_quirks(box.runtime.name, box.runtime.version)
    least = {"memory_bytes": quirks.memory_floor_bytes, "pids": quirks.pids_floor}
    for _ in range(3):
        result = box.run(["true"], limits=least)
        assert (result.termination, result.exit_code) == ("exited", 0), result
    with pytest.raises(ConfigError, match="too little for"):
        box.run(["true"], limits=least | {"pids": quirks.pids_floor - 1})
