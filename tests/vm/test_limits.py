"""Every limit of [limits]: it stands in the files of the sandbox's cgroup, and it holds."""

from __future__ import annotations

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.backends.observe import observe_bundle
from ocisbx.errors import ConfigError, Unsupported
from ocisbx.result import EnforcementState as S
from ocisbx.result import Termination as T
from tests.box import PYTHON, Box, eventually
from tests.vm.rig import (
    HIERARCHY,
    MIB,
    PATIENCE_S,
    box,
    box_of,
    cache,
    fast,
    lines_of,
    runtime,
    sandboxes,
    sudo,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["box", "cache", "fast", "runtime"]

pytestmark = pytest.mark.vm

DISK = "254:0"

ALL: dict[str, Any] = {
    "memory_bytes": 64 * MIB,
    "memory_high_bytes": 48 * MIB,
    "swap_bytes": 96 * MIB,
    "oom_group": True,
    "pids": 40,
    "cpus": 0.5,
    "cpu_weight": 50,
    "cpuset": "0",
    "io": {"/home": {"write_bps": 8 * MIB}, DISK: {"read_iops": 100}},
    "rlimits": {"nofile": 77, "core": 0},
}
FILES = {
    "memory.max": str(64 * MIB),
    "memory.high": str(48 * MIB),
    "memory.swap.max": str(32 * MIB),
    "memory.oom.group": "1",
    "pids.max": "40",
    "cpu.max": "50000 100000",
    "cpu.weight": "50",
    "cpuset.cpus": "0",
    "cpuset.cpus.effective": "0",
    "io.max": f"{DISK} rbps=max wbps={8 * MIB} riops=100 wiops=max",
}
# The name in a report of posture, and how the limit is told there.
POSTURE = {
    "memory": "64 MiB",
    "swap": "32 MiB",
    "cpus": "0.5 processors",
    "pids": "40 processes",
}
LOOK_AROUND = (
    "cat /proc/self/cgroup; grep Cpus_allowed_list /proc/self/status; ulimit -n; ulimit -c; "
    "ls /sys/fs/cgroup 2>&1; echo up; exec sleep 1000"
)


@pytest.mark.every_guest
def test_every_limit_is_in_its_file(box: Box) -> None:
    """And told live; and the payload is inside from its first instruction, as all before it."""
    sandbox = box.sandbox(limits=ALL)
    with sandbox.start(["sh", "-c", LOOK_AROUND]) as running:
        assert eventually(lambda: b"up\n" in running.logs(), PATIENCE_S)
        cgroup = box_of(running.id)
        assert {name: value(cgroup, name) for name in FILES} == FILES
        inside = cgroup / "c"
        pids = value(inside, "cgroup.procs").split()
        assert len(pids) == 2, "the init and the payload"
        assert value(cgroup, "cgroup.procs") == ""
        for pid in pids:
            text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").strip()
            assert str(HIERARCHY) + text.removeprefix("0::") == str(inside.resolve())
        posture = observe_bundle(f"{box.bundles}/{running.id}").posture()
        told = {row.name: row for row in posture.rows}
        for name, words in POSTURE.items():
            assert words in told[name].holds, told[name]
            assert (told[name].state, told[name].source) == ("enforced", "live"), told[name]
        assert told["io"].state == "enforced", told["io"]
        assert not posture.mismatches
        running.kill()
        result = running.wait(PATIENCE_S)
    assert result is not None
    lines = lines_of(result)
    assert lines[0] == "0::/"
    assert lines[1:4] == ["Cpus_allowed_list:\t0", "77", "0"]
    held = ("memory", "swap", "cpus", "pids", "io", "rlimits")
    assert {result.enforcement[name].state for name in held} == {S.ENFORCED}


# ------------------------------------------------------------------------------ that they hold
def test_a_hog_is_killed_and_its_parent_lives_or_not(box: Box) -> None:
    """Without `oom_group` a descendant's death is the payload's own business; with it all die."""
    script = "tail /dev/zero; echo still here; exit 3"
    limits = {"memory_bytes": 24 * MIB}
    result = box.sh(script, limits=limits)
    assert (result.termination, result.exit_code) == (T.EXITED, 3)
    assert (result.stdout, result.usage.oom_kills) == (b"still here\n", 1)
    assert 23 * MIB <= (result.usage.memory_peak_bytes or 0) <= 24 * MIB
    result = box.sh(script, limits=limits | {"oom_group": True})
    assert (result.termination, result.signal, result.stdout) == (T.OOM_KILLED, 9, b"")


def test_memory_high_slows_down_and_kills_nobody(fast: Box) -> None:
    """What can be written back is, so that it stays below."""
    fill = "dd if=/dev/zero of=file bs=1M count=40 2>/dev/null; rm file"
    limits = {"memory_bytes": 64 * MIB}
    free = fast.sh(fill, limits=limits).usage.memory_peak_bytes or 0
    result = fast.sh(fill, limits=limits | {"memory_high_bytes": 12 * MIB})
    assert (result.exit_code, result.usage.oom_kills) == (0, 0)
    assert (result.usage.memory_peak_bytes or 0) < 16 * MIB < 32 * MIB < free


@pytest.fixture
def swap() -> Iterator[None]:
    file = "/var/ocisbx-swap"
    sudo(
        "sh", "-c", f"fallocate -l 96M {file} && chmod 600 {file} && mkswap {file} && swapon {file}"
    )
    yield
    sudo("sh", "-c", f"swapoff {file} && rm {file}")


TOUCH = "dd if=/dev/zero of=/dev/null bs=40M count=1"


@pytest.mark.usefixtures("swap")
@pytest.mark.parametrize(
    ("swap_bytes", "end"),
    [
        (None, T.OOM_KILLED),
        (24 * MIB, T.OOM_KILLED),
        (34 * MIB, T.OOM_KILLED),
        (80 * MIB, T.EXITED),
    ],
)
def test_swap_is_bounded(fast: Box, swap_bytes: int | None, end: T) -> None:
    """A limit of memory alone is one without swap, where there is some."""
    limits = {"memory_bytes": 24 * MIB}
    more = {} if swap_bytes is None else {"swap_bytes": swap_bytes}
    result = fast.sh(f"exec {TOUCH}", limits=limits | more)
    assert result.termination is end, result.stderr


@pytest.mark.every_guest
def test_forks_are_refused_beyond_the_limit(box: Box) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 100 & done; echo all"
    limits = {"pids": 8}
    result = box.sh(script, limits=limits)
    assert (result.termination, result.stdout) == (T.PIDS_LIMIT, b"")
    assert result.usage.pids_peak == 8


def busy(seconds: float) -> list[str]:
    """A loop of its own, so that the time is a program's alone; it tells how far it came."""
    code = (
        f"import time; n = 0; e = time.monotonic() + {seconds}\nwhile time.monotonic() < e: n += 1"
    )
    return [PYTHON, "-I", "-S", "-c", f"{code}\nprint(n)"]


def test_processor_time_is_bounded(box: Box) -> None:
    result = box.run(busy(2), limits={"cpus": 0.25})
    used = (result.usage.cpu_user_s or 0) + (result.usage.cpu_system_s or 0)
    assert result.usage.wall_s is not None
    # A period more or less, and what the quota of the first gave to the init.
    assert used <= 0.25 * result.usage.wall_s + 0.1
    assert (result.usage.cpu_throttled_s or 0) > 0.5


# Both begin when both are there: one start takes longer than the other.
TOGETHER = """
import os, sys, time
open(sys.argv[1], "w").close()
while not all(map(os.path.exists, ("20", "2000"))):
    time.sleep(0.01)
n, end = 0, time.monotonic() + 5
while time.monotonic() < end:
    n += 1
print(n)
"""


def test_the_weight_divides_a_processor_that_two_want(fast: Box) -> None:
    def run(weight: int) -> int:
        limits = {"cpu_weight": weight, "cpuset": "1"}
        argv = [PYTHON, "-I", "-S", "-c", TOGETHER, str(weight)]
        return int(fast.run(argv, limits=limits).stdout)

    with ThreadPoolExecutor(2) as pool:
        light, heavy = pool.map(run, (20, 2000))
    assert heavy > 3 * light


@pytest.mark.parametrize("key", [DISK, "/home"])
def test_a_disk_is_written_and_read_at_the_rate(fast: Box, key: str) -> None:
    """By its numbers, and by a path on it."""
    copy = (
        "dd if=/dev/zero of=file bs=512k count=8 oflag=direct; "
        "dd if=file of=/dev/null bs=512k iflag=direct"
    )
    limits = {"io": {key: {"write_bps": 2 * MIB, "read_bps": 4 * MIB}}}
    result = fast.sh(copy, limits=limits)
    written, read = (float(found) for found in re.findall(rb", ([0-9.]+) s,", result.stderr))
    assert 1.5 < written < 4
    assert 0.7 < read < 3
    used = (result.usage.io_read_bytes, result.usage.io_write_bytes)
    assert used[0] is not None
    assert used[0] >= 4 * MIB
    assert used[1] is not None
    assert used[1] >= 4 * MIB


@pytest.fixture
def loop() -> Iterator[str]:
    """A disk with a partition, `p1` at its end."""
    made = sudo("sh", "-c", "truncate -s 16M /var/loop && losetup --find --show /var/loop")
    sudo("addpart", made, "1", "2048", "8192")
    yield made
    sudo("losetup", "--detach", made)


def number_of(device: str) -> str:
    return Path("/sys/class/block", Path(device).name, "dev").read_text(encoding="ascii").strip()


def test_a_partition_counts_to_its_disk(fast: Box, loop: str) -> None:
    """io.max takes whole disks only."""
    sandbox = fast.sandbox(limits={"io": {f"{loop}p1": {"read_bps": MIB}}})
    with sandbox.start(["sleep", "1000"]) as running:
        cgroup = box_of(running.id)
        assert value(cgroup, "io.max").startswith(f"{number_of(loop)} rbps={MIB} ")


@contextlib.contextmanager
def shared(loop: str) -> Iterator[None]:
    """Our disk by the kernel's model of costs, the other one by its scheduler."""
    queue = f"/sys/class/block/{Path(loop).name}/queue/scheduler"
    costs = f"{HIERARCHY}/io.cost.qos"
    switches = (queue, "bfq", "none"), (costs, f"{DISK} enable=1", f"{DISK} enable=0")
    for file, on, _ in switches:
        sudo("sh", "-c", f"echo {on} >{file}")
    try:
        yield
    finally:
        for file, _, off in switches:
            sudo("sh", "-c", f"echo {off} >{file}")


def test_a_disks_weight_is_in_the_file_of_who_shares_it(fast: Box, loop: str) -> None:
    """By a path on it and by its device; refused while nobody shares it."""
    sandbox = fast.sandbox(limits={"io": {"/home": {"weight": 300}, loop: {"weight": 50}}})
    with pytest.raises(Unsupported, match="neither iocost nor bfq"):
        sandbox.run(["true"])
    with shared(loop), sandbox.start(["sleep", "1000"]) as running:
        cgroup = box_of(running.id)
        assert value(cgroup, "io.weight").splitlines() == ["default 100", f"{DISK} 300"]
        rows = value(cgroup, "io.bfq.weight").splitlines()
        assert rows == ["default 100", f"{number_of(loop)} 50"]
        running.kill()
        result = running.wait(PATIENCE_S)
    assert result is not None
    assert result.enforcement["io"].state is S.ENFORCED


# ------------------------------------------------------------------- what they were checked against
@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    switch = "/sys/devices/system/cpu/cpu1/online"
    sudo("sh", "-c", f"echo 0 >{switch}")
    try:
        yield
    finally:
        sudo("sh", "-c", f"echo 1 >{switch}")


def test_a_plan_is_made_anew_where_a_processor_is_gone(fast: Box) -> None:
    two, half = (fast.sandbox(limits={"cpus": cpus}) for cpus in (2, 0.5))
    plan = two.resolve()
    assert half.resolve().holds()
    assert plan.holds()
    with one_processor():
        assert not plan.holds()
        with pytest.raises(ConfigError, match="more processors than there are, which is 1"):
            two.run(["true"])
        assert half.run(["true"]).exit_code == 0
    assert two.run(["true"]).exit_code == 0


def test_a_plan_is_made_anew_where_another_disk_is_mounted(fast: Box) -> None:
    place = fast.base / "place"
    place.mkdir()
    sandbox = fast.sandbox(limits={"io": {str(place): {"read_bps": MIB}}})
    assert sandbox.resolve().holds()
    sudo("mount", "-t", "tmpfs", "none", str(place))
    try:
        with pytest.raises(ConfigError, match="no disk"):
            sandbox.run(["true"])
    finally:
        sudo("umount", str(place))
    assert sandbox.run(["true"]).exit_code == 0


def test_a_plan_is_made_anew_where_a_disk_is_gone(fast: Box, loop: str) -> None:
    sandbox = fast.sandbox(limits={"io": {number_of(f"{loop}p1"): {"read_bps": MIB}}})
    assert sandbox.resolve().holds()
    sudo("delpart", loop, "1")
    with pytest.raises(ConfigError, match="no disk"):
        sandbox.run(["true"])


# --------------------------------------------------------------------------------- what cannot be
ABSURD: list[tuple[dict[str, Any], str]] = [
    ({"memory_bytes": 0}, "memory_bytes"),
    ({"memory_bytes": -5}, "memory_bytes"),
    ({"memory_bytes": 4096}, "memory_bytes"),
    ({"memory_bytes": "64 parsecs"}, "memory_bytes"),
    ({"memory_bytes": 1 << 80}, "memory_bytes"),
    ({"memory_bytes": "64M", "memory_high_bytes": "65M"}, "memory_high_bytes"),
    ({"memory_bytes": "64M", "swap_bytes": "63M"}, "swap_bytes"),
    ({"swap_bytes": "64M"}, "memory_bytes"),
    ({"memory_bytes": -1, "oom_group": True}, "oom_group"),
    ({"pids": 0}, "pids"),
    ({"pids": -2}, "pids"),
    ({"pids": 1.5}, "pids"),
    ({"pids": 1 << 80}, "pids"),
    ({"cpus": 0}, "cpus"),
    ({"cpus": -1.5}, "cpus"),
    ({"cpus": 0.001}, "cpus"),
    ({"cpus": "two"}, "cpus"),
    ({"cpus": float("nan")}, "cpus"),
    ({"cpus": 2.5}, "than there are, which is 2"),
    ({"cpu_weight": 0}, "cpu_weight"),
    ({"cpu_weight": 10001}, "cpu_weight"),
    ({"cpuset": "1-0"}, "cpuset"),
    ({"cpuset": ""}, "cpuset"),
    ({"cpuset": "1,7"}, "no processor 7"),
    ({"io": {DISK: {"read_bps": 0}}}, "read_bps"),
    ({"io": {DISK: {"write_iops": -3}}}, "write_iops"),
    ({"io": {DISK: {"rate": 3}}}, "rate"),
    ({"io": {"999:9": {"read_bps": MIB}}}, "no disk"),
    ({"io": {"/nowhere": {"read_bps": MIB}}}, "no disk"),
    ({"io": {"/run": {"read_bps": MIB}}}, "no disk"),
    ({"rlimits": {"nofile": -7}}, "NOFILE"),
    ({"rlimits": {"bananas": 7}}, "bananas"),
]


def test_what_cannot_be_is_refused_before_anything_is_started(fast: Box) -> None:
    unclear = []
    for limits, words in ABSURD:
        try:
            fast.run(["true"], limits=limits)
        except ConfigError as error:
            if words not in str(error):
                unclear.append((limits, str(error)))
        else:
            unclear.append((limits, "ran"))
    assert unclear == []
    assert sandboxes() == set()


def test_what_is_too_little_for_the_runtime_is_refused(box: Box) -> None:
    """The least that is taken is enough, and what is not is told in our words."""
    refusals = []
    for field, least in (("memory_bytes", MIB), ("pids", 1)):
        for number in (least, least * 2, least * 4):
            try:
                result = box.run(["true"], limits={field: number})
            except ConfigError as error:
                refusals.append((str(error), error.remedy))
            else:
                assert result.termination in (T.EXITED, T.OOM_KILLED, T.PIDS_LIMIT), result
                break
    for said, remedy in refusals:
        assert "too little" in said
        assert re.fullmatch(r"ask for at least \d+M?", remedy)
