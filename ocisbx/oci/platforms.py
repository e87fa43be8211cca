"""The sections of config.json that are not Linux's (config-vm.md, config-windows.md ...).

We neither build nor run these; they are modelled so that a foreign document is judged and kept
as a whole.
"""

from typing import Annotated, Literal

from pydantic import Field

from ocisbx.oci.base import (
    FileMode,
    Json,
    Opt,
    SpecModel,
    Strings,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
)

SharingMode = Literal["disable", "new", "inherit"]
SharingModeNoDisable = Literal["new", "inherit"]


class Hypervisor(SpecModel):
    path: str
    parameters: Opt[Strings] = None


class Kernel(SpecModel):
    path: str
    parameters: Opt[Strings] = None
    initrd: Opt[str] = None


class Image(SpecModel):
    path: str
    format: Literal["raw", "qcow2", "vdi", "vmdk", "vhd"]


class IoMem(SpecModel):
    first_gfn: Opt[Uint64] = None
    first_mfn: Uint64
    nr_mfns: Uint64


class HwConfig(SpecModel):
    """`memory` in bytes."""

    device_tree: Opt[str] = None
    vcpus: Opt[Uint32] = None
    memory: Opt[Uint64] = None
    dtdevs: Opt[Strings] = None
    iomems: Opt[tuple[IoMem, ...]] = None
    irqs: Opt[tuple[Uint32, ...]] = None


class Vm(SpecModel):
    hypervisor: Opt[Hypervisor] = None
    kernel: Kernel
    image: Opt[Image] = None
    hw_config: Opt[HwConfig] = None


class WindowsDevice(SpecModel):
    id: str
    id_type: Literal["class"]


class WindowsMemory(SpecModel):
    """`limit` in bytes."""

    limit: Opt[Uint64] = None


class WindowsAffinity(SpecModel):
    mask: Opt[Uint64] = None
    group: Opt[Uint32] = None


class WindowsCpu(SpecModel):
    """`maximum` in ten-thousandths of all processors."""

    count: Opt[Uint64] = None
    shares: Opt[Uint16] = None
    maximum: Opt[Uint16] = None
    affinity: Opt[WindowsAffinity] = None


class WindowsStorage(SpecModel):
    """`bps` in bytes a second, `sandbox_size` in bytes."""

    iops: Opt[Uint64] = None
    bps: Opt[Uint64] = None
    sandbox_size: Opt[Uint64] = None


class WindowsResources(SpecModel):
    memory: Opt[WindowsMemory] = None
    cpu: Opt[WindowsCpu] = None
    storage: Opt[WindowsStorage] = None


class WindowsNetwork(SpecModel):
    endpoint_list: Opt[Strings] = None
    allow_unqualified_dns_query: Opt[bool] = None
    dns_search_list: Opt[Strings] = None
    network_shared_container_name: Opt[str] = None
    network_namespace: Opt[str] = None


class HyperV(SpecModel):
    utility_vm_path: Opt[str] = None


class Windows(SpecModel):
    layer_folders: Annotated[Strings, Field(min_length=1)]
    devices: Opt[tuple[WindowsDevice, ...]] = None
    resources: Opt[WindowsResources] = None
    network: Opt[WindowsNetwork] = None
    credential_spec: Opt[dict[str, Json]] = None
    servicing: Opt[bool] = None
    ignore_flushes_during_boot: Opt[bool] = None
    hyperv: Opt[HyperV] = None


class CappedCpu(SpecModel):
    ncpus: Opt[str] = None


class CappedMemory(SpecModel):
    physical: Opt[str] = None
    swap: Opt[str] = None


class Anet(SpecModel):
    linkname: Opt[str] = None
    lower_link: Opt[str] = None
    allowed_address: Opt[str] = None
    configure_allowed_address: Opt[str] = None
    defrouter: Opt[str] = None
    mac_address: Opt[str] = None
    link_protection: Opt[str] = None


class Solaris(SpecModel):
    milestone: Opt[str] = None
    limitpriv: Opt[str] = None
    max_shm_memory: Opt[str] = None
    capped_cpu: Opt[CappedCpu] = None
    capped_memory: Opt[CappedMemory] = None
    anet: Opt[tuple[Anet, ...]] = None


class ZosNamespace(SpecModel):
    type: Literal["mount", "pid", "uts", "ipc"]
    path: Opt[str] = None


class Zos(SpecModel):
    namespaces: Opt[tuple[ZosNamespace, ...]] = None


class FreebsdDevice(SpecModel):
    path: Opt[str] = None
    mode: Opt[FileMode] = None


class JailAllow(SpecModel):
    set_hostname: Opt[bool] = None
    raw_sockets: Opt[bool] = None
    chflags: Opt[bool] = None
    mount: Opt[Strings] = None
    quotas: Opt[bool] = None
    socket_af: Opt[bool] = None
    mlock: Opt[bool] = None
    reserved_ports: Opt[bool] = None
    suser: Opt[bool] = None


class Jail(SpecModel):
    parent: Opt[str] = None
    host: Opt[SharingModeNoDisable] = None
    ip4: Opt[SharingMode] = None
    ip4_addr: Opt[Strings] = None
    ip6: Opt[SharingMode] = None
    ip6_addr: Opt[Strings] = None
    vnet: Opt[SharingModeNoDisable] = None
    interface: Opt[str] = None
    vnet_interfaces: Opt[Strings] = None
    sysvmsg: Opt[SharingMode] = None
    sysvsem: Opt[SharingMode] = None
    sysvshm: Opt[SharingMode] = None
    enforce_statfs: Opt[Uint8] = None
    allow: Opt[JailAllow] = None


class Freebsd(SpecModel):
    devices: Opt[tuple[FreebsdDevice, ...]] = None
    jail: Opt[Jail] = None
