"""`linux.resources` of config.json (config-linux.md, "Control groups")."""

from typing import Annotated

from pydantic import Field

from ocisbx.oci.base import Int64, Opt, SpecModel, StringMap, Uint16, Uint32, Uint64


class DeviceCgroup(SpecModel):
    """A rule of the device controller; a major or minor that is not given matches all."""

    allow: bool
    type: Opt[str] = None
    major: Opt[Int64] = None
    minor: Opt[Int64] = None
    access: Opt[str] = None


class Memory(SpecModel):
    """Limits in bytes, -1 for none; `swap` is memory and swap together, as in cgroup v1."""

    limit: Opt[Int64] = None
    reservation: Opt[Int64] = None
    swap: Opt[Int64] = None
    kernel: Opt[Int64] = None
    kernel_tcp: Opt[Int64] = None
    swappiness: Opt[Uint64] = None
    disable_oom_killer: Opt[bool] = None
    use_hierarchy: Opt[bool] = None
    check_before_update: Opt[bool] = None


class Cpu(SpecModel):
    """`quota`, `burst`, `period` and the realtime ones in microseconds; `cpus`, `mems` as lists."""

    shares: Opt[Uint64] = None
    quota: Opt[Int64] = None
    burst: Opt[Uint64] = None
    period: Opt[Uint64] = None
    realtime_runtime: Opt[Int64] = None
    realtime_period: Opt[Uint64] = None
    cpus: Opt[str] = None
    mems: Opt[str] = None
    idle: Opt[Int64] = None


class Pids(SpecModel):
    """The greatest number of tasks; what 0 and -1 mean differs between runtimes before 1.3.0."""

    limit: Int64


class WeightDevice(SpecModel):
    """Weight of one block device, 10 to 1000."""

    major: Int64
    minor: Int64
    weight: Opt[Uint16] = None
    leaf_weight: Opt[Uint16] = None


class ThrottleDevice(SpecModel):
    """Limit of one block device: bytes or operations per second, by the list that it is in."""

    major: Int64
    minor: Int64
    rate: Opt[Uint64] = None


class BlockIo(SpecModel):
    """The io (blkio) controller."""

    weight: Opt[Uint16] = None
    leaf_weight: Opt[Uint16] = None
    weight_device: Opt[tuple[WeightDevice, ...]] = None
    throttle_read_bps_device: Opt[tuple[ThrottleDevice, ...]] = None
    throttle_write_bps_device: Opt[tuple[ThrottleDevice, ...]] = None
    throttle_read_iops_device: Opt[tuple[ThrottleDevice, ...]] = None
    throttle_write_iops_device: Opt[tuple[ThrottleDevice, ...]] = None


class HugepageLimit(SpecModel):
    """Limit in bytes for pages of one size, which is named like the kernel does: 64KB, 2MB, 1GB."""

    page_size: Annotated[str, Field(pattern=r"^[1-9][0-9]*[KMG]B$")]
    limit: Uint64


class InterfacePriority(SpecModel):
    """Priority of what is sent through one network interface."""

    name: str
    priority: Uint32


class Network(SpecModel):
    """The net_cls and net_prio controllers of cgroup v1."""

    class_id: Opt[Uint32] = None
    priorities: Opt[tuple[InterfacePriority, ...]] = None


class Rdma(SpecModel):
    """Limits of one RDMA device."""

    hca_handles: Opt[Uint32] = None
    hca_objects: Opt[Uint32] = None


class Resources(SpecModel):
    """The limits; `unified` holds files of cgroup v2 by name, `rdma` limits by device."""

    devices: Opt[tuple[DeviceCgroup, ...]] = None
    memory: Opt[Memory] = None
    cpu: Opt[Cpu] = None
    pids: Opt[Pids] = None
    block_io: Opt[BlockIo] = None
    hugepage_limits: Opt[tuple[HugepageLimit, ...]] = None
    network: Opt[Network] = None
    rdma: Opt[dict[str, Rdma]] = None
    unified: Opt[StringMap] = None
