"""build_resources(): what the container's cgroup holds, as `linux.resources`; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.container.cgroup_limits import CPU_PERIOD_USEC, RATES, cpu_quota
from ocisbx.oci.resources import BlockIo, Cpu, Memory, Pids, Resources, ThrottleDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.container.model import IoLimit, Limits


def build_resources(limits: Limits) -> Resources | None:
    """The limits in the runtime-spec's own fields, and in `unified` what it has none for; None:
    nothing is limited."""
    unified = dict(_unified(limits))
    found = Resources(
        memory=_memory(limits),
        cpu=_cpu(limits),
        pids=None if limits.pids is None else Pids(limit=limits.pids),
        block_io=_block_io(limits.io),
        unified=unified or None,
    )
    return None if found == Resources() else found


def _memory(limits: Limits) -> Memory | None:
    if limits.memory_bytes is None:
        return None
    return Memory(limit=limits.memory_bytes, swap=limits.swap_bytes)


def _cpu(limits: Limits) -> Cpu | None:
    if limits.cpus is None and limits.cpuset is None:
        return None
    return Cpu(
        quota=None if limits.cpus is None else cpu_quota(limits.cpus),
        period=None if limits.cpus is None else CPU_PERIOD_USEC,
        cpus=limits.cpuset,
    )


def _block_io(disks: tuple[IoLimit, ...]) -> BlockIo | None:
    lists = {f"throttle_{name}_device": _throttle(disks, name) for name in RATES}
    return BlockIo.model_validate(lists) if any(lists.values()) else None


def _throttle(disks: tuple[IoLimit, ...], name: str) -> tuple[ThrottleDevice, ...] | None:
    rows = []
    for one in disks:
        rate = getattr(one, name)
        if rate is not None:
            major, minor = map(int, one.device.split(":"))
            rows.append(ThrottleDevice(major=major, minor=minor, rate=rate))
    return tuple(rows) or None


def _unified(limits: Limits) -> Iterator[tuple[str, str]]:
    if limits.oom_group:
        yield "memory.oom.group", "1"
    if limits.memory_high_bytes is not None:
        yield "memory.high", str(limits.memory_high_bytes)
    if limits.cpu_weight is not None:
        # `shares` would be converted, by each runtime in its own way.
        yield "cpu.weight", str(limits.cpu_weight)
    for file in sorted({one.weight_file for one in limits.io} - {""}):
        rows = [f"{one.device} {one.weight}" for one in limits.io if one.weight_file == file]
        yield file, "\n".join(rows)
