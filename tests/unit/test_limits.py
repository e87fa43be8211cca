"""Limits on described hosts: held, refused, declared; and values that no host can hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ocisbx.quirks
from ocisbx.config import SandboxConfig
from ocisbx.container.cgroup_limits import KINDS
from ocisbx.container.model import ContainerConfig, IoLimit, Limits
from ocisbx.container.resolve import resolve
from ocisbx.container.scenes import find_scene
from ocisbx.errors import ConfigError, Unsupported
from ocisbx.host import Cgroups, Disk, Host
from ocisbx.presets import PRESETS
from ocisbx.quirks import TABLE
from ocisbx.result import EnforcementState
from tests.unit.hosts import CRUN, NEW_CRUN, NEW_RUNC, RUNSC, make_host

ALL = ("cpu", "cpuset", "io", "memory", "pids")
GIB = 1 << 30
DISKS = {
    "/srv": Disk(number="8:0"),
    "8:0": Disk(number="8:0"),
    "253:0": Disk(number="253:0", weight_file="io.bfq.weight"),
    "/nowhere": Disk(trouble="no such file or directory"),
}


def delegated(*controllers: str, **changes: Any) -> Host:
    """A host with cgroup v2, of which we have these controllers."""
    site = Cgroups(hierarchy="unified", way="sibling", controllers=controllers or ALL)
    facts = {"cgroups": site, "cpus": "0-3", "disks": DISKS, "runtimes": (NEW_CRUN, RUNSC)}
    return make_host(**{**facts, **changes})


def resolved(host: Host, allow: tuple[str, ...] = (), **limits: Any) -> ContainerConfig:
    config = SandboxConfig(workspace="/srv/work", limits=limits, allow_degraded=allow)
    return resolve(config, host)


WISHED = {"memory_bytes": 4 * GIB, "swap_bytes": 4 * GIB, "pids": 1024}
HELD: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {}, "memory", "memory.max=4294967296, memory.swap.max=0"),
    ({}, {}, "pids", "pids.max=1024"),
    ({"memory_bytes": "1g"}, {"memory_bytes": GIB, "swap_bytes": GIB}, "memory",
     "memory.max=1073741824, memory.swap.max=0"),
    ({"memory_bytes": "1g", "swap_bytes": "3g"}, {"memory_bytes": GIB, "swap_bytes": 3 * GIB},
     "swap", "memory.swap.max=2147483648"),
    ({"swap_bytes": -1}, {"swap_bytes": -1}, "memory", "memory.max=4294967296"),
    ({"memory_high_bytes": "1g"}, {"memory_high_bytes": GIB}, "memory",
     "memory.max=4294967296, memory.swap.max=0, memory.high=1073741824"),
    ({"memory_bytes": -1, "memory_high_bytes": "1g"},
     {"memory_bytes": None, "swap_bytes": None, "memory_high_bytes": GIB}, "memory",
     "memory.high=1073741824"),
    ({"cpus": 0.5}, {"cpus": 0.5}, "cpus", "cpu.max=50000 100000"),
    ({"cpus": 4}, {"cpus": 4.0}, "cpus", "cpu.max=400000 100000"),
    ({"cpu_weight": 7}, {"cpu_weight": 7}, "cpus", "cpu.weight=7"),
    ({"cpuset": "3,0-1"}, {"cpuset": "0-1,3"}, "cpus", "cpuset.cpus=0-1,3"),
    ({"cpus": 1, "cpuset": "2"}, {"cpus": 1.0, "cpuset": "2"}, "cpus",
     "cpu.max=100000 100000, cpuset.cpus=2"),
    ({"pids": 5}, {"pids": 5}, "pids", "pids.max=5"),
    ({"io": {"/srv": {"read_bps": "1M"}}}, {"io": (IoLimit(device="8:0", read_bps=1 << 20),)},
     "io", "io.max=8:0 rbps=1048576"),
    # Two names of one disk: the stricter counts.
    ({"io": {"/srv": {"read_bps": 9, "write_iops": 4}, "8:0": {"read_bps": 5}}},
     {"io": (IoLimit(device="8:0", read_bps=5, write_iops=4),)}, "io", "io.max=8:0 rbps=5 wiops=4"),
    ({"io": {"253:0": {"weight": 50}}},
     {"io": (IoLimit(device="253:0", weight=50, weight_file="io.bfq.weight"),)}, "io",
     "io.bfq.weight=253:0 50"),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "held", "name", "files"), HELD)
def test_held(limits: dict[str, Any], held: dict[str, Any], name: str, files: str) -> None:
    container = resolved(delegated(), **limits)
    assert container.limits == Limits.model_validate({**WISHED, **held})
    entry = container.enforcement[name]
    assert (entry.state, entry.how) == (
        EnforcementState.ENFORCED,
        f"{files} of the container's cgroup",
    )
    assert entry.requested == entry.actual


def test_numbers_stay_numbers() -> None:
    entries = resolved(delegated(), memory_bytes="1g", pids=5, cpus=0.5).enforcement
    assert [entries[name].requested for name in ("memory", "pids", "cpus")] == [GIB, 5, 0.5]
    both = resolved(delegated(), cpus=0.5, cpu_weight=9).enforcement["cpus"]
    assert both.requested == "cpus=0.5, cpu_weight=9"


def test_processes_are_bounded_once() -> None:
    """RLIMIT_NPROC below pids.max would answer first, and no verdict could tell why."""
    nproc = "RLIMIT_NPROC"
    assert nproc not in resolved(delegated()).confinement.rlimits
    assert resolved(delegated("memory")).confinement.rlimits[nproc] == (1024, 1024)
    asked = resolved(delegated(), rlimits={"nproc": 7}).confinement.rlimits
    assert asked[nproc] == (7, 7)


CONTROLLERS: list[tuple[dict[str, Any], str, str]] = [
    ({"memory_bytes": "1g"}, "memory", "memory"),
    ({"memory_high_bytes": "1g"}, "memory", "memory"),
    ({"cpus": 1}, "cpu", "cpus"),
    ({"cpu_weight": 9}, "cpu", "cpus"),
    ({"cpuset": "0"}, "cpuset", "cpus"),
    ({"pids": 99}, "pids", "pids"),
    ({"io": {"8:0": {"read_bps": 1}}}, "io", "io"),
]


@pytest.mark.parametrize(("limits", "controller", "name"), CONTROLLERS)
def test_a_controller_that_is_missing(limits: dict[str, Any], controller: str, name: str) -> None:
    host = delegated(*(one for one in ALL if one != controller))
    with pytest.raises(Unsupported, match=f"{name} cannot be enforced here") as raised:
        resolved(host, **limits)
    assert raised.value.remedy.endswith(f"\n# or go on without it: --allow-degraded {name}")
    assert find_scene(host, [controller]).remedy in raised.value.remedy
    container = resolved(host, (name,), **limits)
    (field,) = limits
    assert not getattr(container.limits, field)
    assert container.enforcement[name].state is EnforcementState.UNSUPPORTED
    assert container.enforcement[name].actual is None


def test_one_of_two_is_held() -> None:
    host = delegated("cpu", "memory", "pids")
    with pytest.raises(Unsupported):
        resolved(host, cpus=1, cpuset="0")
    container = resolved(host, ("cpus",), cpus=1, cpuset="0")
    assert (container.limits.cpus, container.limits.cpuset) == (1.0, None)
    entry = container.enforcement["cpus"]
    assert entry.state is EnforcementState.PARTIAL
    assert (entry.requested, entry.actual) == ("cpus=1.0, cpuset=0", 1.0)
    assert "cpu.max=100000 100000 of the container's cgroup; not cpuset: " in entry.how


def test_weights_need_somebody_who_shares() -> None:
    limits: dict[str, Any] = {"io": {"8:0": {"weight": 50, "read_bps": 9}}}
    with pytest.raises(Unsupported, match="neither iocost nor bfq") as raised:
        resolved(delegated(), **limits)
    assert "/sys/dev/block/8:0/queue/scheduler" in raised.value.remedy
    container = resolved(delegated(), ("io",), **limits)
    assert container.limits.io == (IoLimit(device="8:0", read_bps=9),)
    assert container.enforcement["io"].state is EnforcementState.PARTIAL


def test_a_kernel_that_counts_no_swap() -> None:
    host = delegated(swap_accounting=False)
    alone = resolved(host, memory_bytes="1g")
    assert alone.limits.swap_bytes is None
    assert "swap is not limited" in alone.enforcement["memory"].how
    with pytest.raises(Unsupported, match="swap cannot be enforced here"):
        resolved(host, memory_bytes="1g", swap_bytes="1g")


NEVER: list[tuple[dict[str, Any], str]] = [
    ({"cpus": 4.5}, "limits.cpus: 4.5 is more processors than there are"),
    ({"cpuset": "2-5"}, "limits.cpuset: there is no processor 4-5"),
    ({"io": {"/nowhere": {"read_bps": 1}}}, "limits.io.'/nowhere' is no disk: no such file"),
    ({"memory_bytes": 2 << 20, "memory_high_bytes": 3 << 20}, "it would never be reached"),
]


@pytest.mark.parametrize("allow", [(), ("all",)])
@pytest.mark.parametrize(("limits", "words"), NEVER)
def test_what_no_host_holds(limits: dict[str, Any], words: str, allow: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as raised:
        resolved(delegated(), allow, **limits)
    assert words in str(raised.value)
    assert raised.value.remedy


@pytest.mark.parametrize("runtime", [CRUN, NEW_CRUN, NEW_RUNC, RUNSC], ids=lambda one: one.name)
@pytest.mark.parametrize("field", ["memory_bytes", "memory_high_bytes", "pids"])
def test_too_little_for_the_runtime(runtime: Any, field: str) -> None:
    row = next(row for row in TABLE if row.name == runtime.name)
    floor = row.pids_floor if field == "pids" else row.memory_floor_bytes
    host = delegated(runtimes=(runtime,))
    names = (runtime.name,)

    def asking(value: int) -> SandboxConfig:
        limits = {"memory_bytes": -1, field: value}
        return SandboxConfig(workspace="none", limits=limits, runtime={"names": names})

    resolve(asking(floor), host)
    if floor - 1 < (1 if field == "pids" else 1 << 20):
        return
    with pytest.raises(ConfigError, match=f"too little for {runtime.name}") as raised:
        resolve(asking(floor - 1), host)
    assert raised.value.remedy.startswith("ask for at least ")


def test_presets_have_room_for_every_runtime() -> None:
    for preset in PRESETS.values():
        limits = preset.fields.get("limits", {})
        for row in TABLE:
            assert limits.get("memory_bytes", GIB) > 2 * row.memory_floor_bytes
            assert limits.get("pids", 999) > 2 * row.pids_floor


PAGE = (Path(ocisbx.quirks.__file__).parent / "man" / "ocisbx-limits.7.md").read_text()
FLOORS = re.findall(r"^\| (\w+)[^|]*\| (\d+) MiB \| (\d+) \|$", PAGE, re.MULTILINE)


def test_the_manual_tells_the_floors() -> None:
    told = [(name, int(memory) << 20, int(pids)) for name, memory, pids in FLOORS]
    assert set(told) == {(row.name, row.memory_floor_bytes, row.pids_floor) for row in TABLE}


def test_the_manual_tells_each_limit() -> None:
    section = PAGE.partition("## Each limit")[2].partition("\n\n**Swap")[0]
    for field, kind in KINDS.items():
        name = "weight" if field == "io_weight" else field
        assert re.search(rf"^\|[^|]*`{name}`[^|]*\|.*\| {kind.name} \|", section, re.MULTILINE), (
            field
        )
