"""Processors, swap and disks, read from files as kernels have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocisbx.host import Disk
from ocisbx.probe.limits import find_disk, swap_accounting, usable_cpus


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def tree(root: Path, files: dict[str, str]) -> str:
    return str(write(root, **files))


CGROUP = "sys/fs/cgroup"
CPUS: list[tuple[dict[str, str], str]] = [
    ({"sys/devices/system/cpu/online": "0-7\n"}, "0-7"),
    ({"sys/devices/system/cpu/online": "0-7\n", f"{CGROUP}/cpuset.cpus.effective": "0-3\n"}, "0-3"),
    (
        {
            f"{CGROUP}/cpuset.cpus.effective": "0-3\n",
            f"{CGROUP}/a/cpuset.cpus.effective": "1,3\n",
        },
        "1,3",
    ),
    ({}, ""),
]


@pytest.mark.parametrize(("files", "cpus"), CPUS)
def test_usable_cpus(tmp_path: Path, files: dict[str, str], cpus: str) -> None:
    root = tree(tmp_path, files)
    assert usable_cpus(f"{root}/{CGROUP}/a/b", root) == cpus


SWAP: list[tuple[dict[str, str], bool]] = [
    ({}, True),
    ({f"{CGROUP}/a/memory.max": "max\n"}, False),
    ({f"{CGROUP}/a/memory.max": "max\n", f"{CGROUP}/a/memory.swap.max": "max\n"}, True),
]


@pytest.mark.parametrize(("files", "counted"), SWAP)
def test_swap_accounting(tmp_path: Path, files: dict[str, str], *, counted: bool) -> None:
    root = tree(tmp_path, files)
    assert swap_accounting(f"{root}/{CGROUP}/a/b", root) is counted


@pytest.fixture
def disks(tmp_path: Path) -> str:
    """A disk 8:0 with a partition 8:1, and a device 254:0 with the scheduler bfq."""
    sda = "sys/devices/pci/block/sda"
    root = write(
        tmp_path,
        **{
            f"{sda}/dev": "8:0\n",
            f"{sda}/queue/scheduler": "none [mq-deadline] bfq\n",
            f"{sda}/sda1/dev": "8:1\n",
            f"{sda}/sda1/partition": "1\n",
            "sys/devices/virtual/block/dm-0/dev": "254:0\n",
            "sys/devices/virtual/block/dm-0/queue/scheduler": "mq-deadline [bfq]\n",
        },
    )
    numbers = root / "sys/dev/block"
    numbers.mkdir(parents=True)
    (numbers / "8:0").symlink_to("../../devices/pci/block/sda")
    (numbers / "8:1").symlink_to("../../devices/pci/block/sda/sda1")
    (numbers / "254:0").symlink_to("../../devices/virtual/block/dm-0")
    return str(root)


def test_a_partition_is_its_disk(disks: str) -> None:
    assert find_disk("8:0", disks) == find_disk("8:1", disks) == Disk(number="8:0")


def test_who_shares_by_weight(disks: str) -> None:
    assert find_disk("254:0", disks) == Disk(number="254:0", weight_file="io.bfq.weight")
    write(Path(disks), **{f"{CGROUP}/io.cost.qos": "8:0 enable=0\n254:0 enable=1 ctrl=auto\n"})
    assert find_disk("254:0", disks).weight_file == "io.weight"
    assert not find_disk("8:0", disks).weight_file


TROUBLES = {
    "8:99": "there is no block device 8:99",
    "/dev/null": "it is a character device",
    "/nowhere/at/all": "no such file or directory",
    "/proc": "it lies on proc",
    "/dev/shm": "it lies on",
}


@pytest.mark.parametrize(("key", "words"), TROUBLES.items())
def test_no_disk(disks: str, key: str, words: str) -> None:
    mounts = Path(disks) / "proc/self/mountinfo"
    mounts.parent.mkdir(parents=True)
    mounts.write_text(Path("/proc/self/mountinfo").read_text())
    found = find_disk(key, disks)
    assert not found.number
    assert found.trouble.startswith(words)
