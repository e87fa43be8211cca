"""Limits to linux.resources, and that to the files of a cgroup: exact, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.cgroup.files import cgroup_files, controllers_of, holds, weight_of_shares
from ocisbx.container.model import IoLimit, Limits
from ocisbx.errors import BundleError
from ocisbx.oci.resources import Resources
from ocisbx.specgen.resources import build_resources

MIB = 1 << 20
DISKS = (
    IoLimit(device="8:0", read_bps=5 * MIB, write_iops=9),
    IoLimit(device="253:1", write_bps=7, weight=200, weight_file="io.weight"),
)
LIMITS: list[tuple[Limits, dict[str, tuple[str, ...]]]] = [
    (Limits(), {}),
    (Limits(pids=9), {"pids.max": ("9",)}),
    (Limits(cpus=0.5), {"cpu.max": ("50000 100000",)}),
    (Limits(cpus=0.01), {"cpu.max": ("1000 100000",)}),
    (Limits(cpus=1.005), {"cpu.max": ("100500 100000",)}),
    (Limits(cpu_weight=10_000), {"cpu.weight": ("10000",)}),
    (Limits(cpuset="0-3,6"), {"cpuset.cpus": ("0-3,6",)}),
    (
        Limits(memory_bytes=64 * MIB, swap_bytes=64 * MIB),
        {"memory.max": ("67108864",), "memory.swap.max": ("0",)},
    ),
    (
        Limits(memory_bytes=MIB, swap_bytes=-1, memory_high_bytes=4096),
        {
            "memory.max": ("1048576",),
            "memory.swap.max": ("max",),
            "memory.high": ("4096",),
        },
    ),
    (
        Limits(memory_bytes=MIB, oom_group=True),
        {"memory.max": ("1048576",), "memory.oom.group": ("1",)},
    ),
    (
        Limits(io=DISKS),
        {
            "io.max": ("8:0 rbps=5242880 wiops=9", "253:1 wbps=7"),
            "io.weight": ("253:1 200",),
        },
    ),
]


@pytest.mark.parametrize(("limits", "files"), LIMITS)
def test_limits_become_files(limits: Limits, files: dict[str, tuple[str, ...]]) -> None:
    resources = build_resources(limits)
    assert (resources is None) == (not files)
    document = json.loads((resources or Resources()).to_json())
    # By way of JSON and back, as a plan keeps it.
    assert Resources.from_json(json.dumps(document)) == (resources or Resources())
    assert cgroup_files(document) == files


# What people and other programs write into a config.json.
DOCUMENTS: list[tuple[dict[str, Any], dict[str, tuple[str, ...]]]] = [
    ({"devices": [{"allow": False, "access": "rwm"}]}, {}),
    ({"memory": {}, "cpu": {}, "network": {}, "blockIO": {}, "unified": {}}, {}),
    ({"memory": {"limit": -1}}, {"memory.max": ("max",)}),
    ({"memory": {"limit": -1, "swap": -1}},
     {"memory.max": ("max",), "memory.swap.max": ("max",)}),
    ({"memory": {"limit": 10, "swap": 15, "reservation": 5, "useHierarchy": True,
                 "disableOOMKiller": False, "checkBeforeUpdate": True}},
     {"memory.max": ("10",), "memory.low": ("5",), "memory.swap.max": ("5",)}),
    ({"cpu": {"shares": 1024}}, {"cpu.weight": ("100",)}),
    ({"cpu": {"quota": -1, "period": 50000}}, {"cpu.max": ("max 50000",)}),
    ({"cpu": {"quota": 20000}}, {"cpu.max": ("20000 100000",)}),
    ({"cpu": {"quota": 20000, "burst": 5, "idle": 1, "cpus": "0", "mems": "0-1"}},
     {"cpu.max": ("20000 100000",), "cpu.max.burst": ("5",), "cpu.idle": ("1",),
      "cpuset.cpus": ("0",), "cpuset.mems": ("0-1",)}),
    ({"pids": {"limit": -1}}, {"pids.max": ("max",)}),
    ({"blockIO": {"weight": 10, "weightDevice": [{"major": 8, "minor": 16, "weight": 1000}]}},
     {"io.weight": ("default 1", "8:16 10000")}),
    ({"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}, {"hugetlb.2MB.max": ("0",)}),
    ({"rdma": {"mlx5_1": {"hcaHandles": 3, "hcaObjects": 10000}, "none": {}}},
     {"rdma.max": ("mlx5_1 hca_handle=3 hca_object=10000",)}),
    ({"memory": {"limit": 5}, "unified": {"memory.max": "7", "io.max": "8:0 rbps=1\n\n8:1 wbps=2"}},
     {"memory.max": ("7",), "io.max": ("8:0 rbps=1", "8:1 wbps=2")}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "files"), DOCUMENTS)
def test_documents(document: dict[str, Any], files: dict[str, tuple[str, ...]]) -> None:
    assert cgroup_files(document) == files


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"memory": {"kernel": 5}}, "memory.kernel cannot be enforced: cgroup v2 has no file"),
    ({"memory": {"swappiness": 0}}, "memory.swappiness"),
    ({"memory": {"disableOOMKiller": True}}, "memory.disableOOMKiller"),
    ({"memory": {"limits": 5}}, "memory.limits"),
    ({"memory": {"limit": "5"}}, "memory.limit: '5' cannot be enforced: expected an integer"),
    ({"memory": {"limit": -2}}, "expected -1, which is no limit, or more"),
    ({"memory": {"swap": 5}}, "it takes memory.limit too"),
    ({"memory": {"limit": -1, "swap": 5}}, "it takes memory.limit too"),
    ({"memory": {"limit": 6, "swap": 5}}, "memory counts in it, and has 6 alone"),
    ({"memory": 5}, "expected an object"),
    ({"cpu": {"realtimeRuntime": 5}}, "cpu.realtimeRuntime"),
    ({"cpu": {"cpus": "0\n1"}}, "expected one line"),
    ({"pids": {"limit": 0}}, "to some runtimes it is no limit"),
    ({"pids": {"limit": True}}, "expected an integer"),
    ({"network": {"classID": 5}}, "network cannot be enforced"),
    ({"memories": {"limit": 5}}, "memories cannot be enforced"),
    ({"blockIO": {"leafWeight": 50}}, "blockIO.leafWeight"),
    ({"blockIO": {"weight": 9}}, "expected 10 to 1000"),
    ({"blockIO": {"throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 0}]}}, "above 0"),
    ({"blockIO": {"throttleReadBpsDevice": [{"major": 8, "minor": 0}]}}, "above 0"),
    ({"blockIO": {"throttleReadBpsDevice": [{"major": 8, "rate": 5}]}}, "expected major"),
    ({"blockIO": {"throttleReadBpsDevice": [5]}}, "expected an object"),
    ({"hugepageLimits": [{"pageSize": "../x", "limit": 5}]}, "expected pageSize"),
    ({"rdma": {"a\nb": {"hcaHandles": 3}}}, "expected one line"),
    ({"unified": {"cgroup.kill": "1"}}, "expected a controller's file"),
    ({"unified": {"cgroup.procs": "1"}}, "expected a controller's file"),
    ({"unified": {"../memory.max": "1"}}, "expected a controller's file"),
    ({"unified": {"a/memory.max": "1"}}, "expected a controller's file"),
    ({"unified": {"memory": "1"}}, "expected a controller's file"),
    ({"unified": {"memory.max": ""}}, "expected what is written"),
    ({"unified": {"memory.max": 5}}, "expected what is written"),
]


@pytest.mark.parametrize(("document", "words"), REFUSED)
def test_what_no_file_holds_is_refused(document: dict[str, Any], words: str) -> None:
    with pytest.raises(BundleError) as raised:
        cgroup_files(document)
    assert words in str(raised.value)
    assert str(raised.value).startswith("linux.resources.")
    assert raised.value.remedy


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)
KEYS = {
    "memory": ("limit", "swap", "reservation", "kernel"),
    "cpu": ("shares", "quota", "period", "burst", "idle", "cpus", "mems"),
    "pids": ("limit",),
    "blockIO": ("weight", "weightDevice", "throttleReadBpsDevice", "throttleWriteIOPSDevice"),
    "rdma": ("mlx",),
    "unified": ("memory.high", "io.max", "cgroup.procs"),
}
HOSTILE = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | st.dictionaries(st.sampled_from(keys), JSON, max_size=4)
        for name, keys in KEYS.items()
    }
    | {"hugepageLimits": JSON, "devices": JSON},
)


@given(HOSTILE)
def test_hostile_documents(document: dict[str, Any]) -> None:
    """Plain lines for plain files, or one clear refusal."""
    try:
        files = cgroup_files(document)
    except BundleError:
        return
    for file, lines in files.items():
        assert lines
        assert "/" not in file
        assert not file.startswith(("cgroup.", "."))
        assert not any(set("\n\0") & set(line) for line in lines)
        assert all(line.strip() for line in lines)
    assert all(controllers_of(files))


def test_controllers() -> None:
    names = ("memory.max", "memory.high", "io.max", "io.bfq.weight", "cpuset.cpus", "cpu.max.burst")
    assert controllers_of(names) == {"memory", "io", "cpuset", "cpu"}


@given(st.integers(2, 262_144), st.integers(2, 262_144))
def test_weights_grow_with_shares(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 1 <= weight_of_shares(low) <= weight_of_shares(high) <= 10_000


@pytest.mark.parametrize(("shares", "weight"), {0: 1, 2: 1, 1024: 100, 262_144: 10_000}.items())
def test_weights(shares: int, weight: int) -> None:
    assert weight_of_shares(shares) == weight


READ = [
    ("memory.max", ["1000001"], "999424\n", True),
    ("memory.max", ["4096"], "max\n", False),
    ("memory.max", ["4096"], "8192\n", False),
    ("memory.max", ["max"], "4096\n", True),
    ("memory.swap.max", ["0"], "0\n", True),
    ("memory.oom.group", ["1"], "1\n", True),
    ("memory.max", ["4096"], "", False),
    ("cpu.max", ["50000 100000"], "50000 100000\n", True),
    ("cpu.max", ["50000 100000"], "max 100000\n", False),
    ("cpuset.cpus", ["0,1,3"], "0-1,3\n", True),
    ("cpuset.cpus", ["0-1"], "\n", False),
    ("io.max", ["8:0 rbps=1 wiops=2"], "8:0 rbps=1 wbps=max riops=max wiops=2\n", True),
    ("io.max", ["8:0 rbps=1", "8:1 wbps=3"], "8:0 rbps=1 wbps=max riops=max wiops=max\n", False),
    ("io.max", ["8:0 rbps=1"], "8:0 rbps=2 wbps=max riops=max wiops=max\n", False),
    ("io.max", ["8:0 rbps=1"], "", False),
    ("io.weight", ["8:0 200"], "default 100\n8:0 200\n", True),
    ("io.weight", ["8:0 200"], "default 100\n", False),
]


@pytest.mark.parametrize(("file", "lines", "seen", "held"), READ)
def test_read_back(file: str, lines: list[str], seen: str, *, held: bool) -> None:
    assert holds(file, lines, seen) is held
