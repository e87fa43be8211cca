"""What a runtime's `features` prints (features.md, features-linux.md; since 1.1.0).

A field that is not set means unknown, never "no".
"""

from typing import Annotated

from pydantic import Field

from ocisbx.oci.base import Opt, SpecModel, StringMap, Strings
from ocisbx.oci.linux import NamespaceType
from ocisbx.oci.seccomp import SeccompAction, SeccompArch, SeccompFlag, SeccompOperator


class CgroupFeatures(SpecModel):
    """Cgroup versions and managers that the runtime can use."""

    v1: Opt[bool] = None
    v2: Opt[bool] = None
    systemd: Opt[bool] = None
    systemd_user: Opt[bool] = None
    rdma: Opt[bool] = None


class SeccompFeatures(SpecModel):
    """What the runtime knows of seccomp; `supported_flags` is what the kernel has, too."""

    enabled: Opt[bool] = None
    actions: Opt[tuple[SeccompAction, ...]] = None
    operators: Opt[tuple[SeccompOperator, ...]] = None
    archs: Opt[tuple[SeccompArch, ...]] = None
    known_flags: Opt[tuple[SeccompFlag, ...]] = None
    supported_flags: Opt[tuple[SeccompFlag, ...]] = None


class FeatureSwitch(SpecModel):
    """Whether support is compiled in, whatever the host has."""

    enabled: Opt[bool] = None


class IntelRdtFeatures(FeatureSwitch):
    """`schemata` and `monitoring` stand in 1.3.0's text, not in its schema."""

    schemata: Opt[bool] = None
    monitoring: Opt[bool] = None


class MountExtensions(SpecModel):
    """Extensions of mounts."""

    idmap: Opt[FeatureSwitch] = None


class LinuxFeatures(SpecModel):
    """The Linux section of the features."""

    namespaces: Opt[tuple[NamespaceType, ...]] = None
    capabilities: Opt[tuple[Annotated[str, Field(pattern=r"^CAP_[A-Z_]+$")], ...]] = None
    cgroup: Opt[CgroupFeatures] = None
    seccomp: Opt[SeccompFeatures] = None
    apparmor: Opt[FeatureSwitch] = None
    selinux: Opt[FeatureSwitch] = None
    intel_rdt: Opt[IntelRdtFeatures] = None
    mount_extensions: Opt[MountExtensions] = None
    net_devices: Opt[FeatureSwitch] = None


class Features(SpecModel):
    """A runtime's features; `hooks` and `mount_options` are the names that it knows."""

    oci_version_min: str
    oci_version_max: str
    hooks: Opt[Strings] = None
    mount_options: Opt[Strings] = None
    linux: Opt[LinuxFeatures] = None
    annotations: Opt[StringMap] = None
    potentially_unsafe_config_annotations: Opt[Strings] = None
