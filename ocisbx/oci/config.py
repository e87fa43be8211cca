"""config.json (config.md): `Spec` and what stands directly in it."""

from typing import Annotated

from pydantic import Field

from ocisbx.oci.base import Opt, SpecModel, StringMap, Strings
from ocisbx.oci.linux import IdMapping, Linux
from ocisbx.oci.platforms import Freebsd, Solaris, Vm, Windows, Zos
from ocisbx.oci.process import Process


class Root(SpecModel):
    """The root file system; a relative `path` counts from the bundle's directory."""

    path: str
    readonly: Opt[bool] = None


class Mount(SpecModel):
    """One mount, made in the order of the list; without `type` a bind needs `bind` or `rbind`."""

    destination: str
    type: Opt[str] = None
    source: Opt[str] = None
    options: Opt[Strings] = None
    uid_mappings: Opt[tuple[IdMapping, ...]] = None
    gid_mappings: Opt[tuple[IdMapping, ...]] = None


class Hook(SpecModel):
    """A program that the runtime starts; `args` begins with argv[0], `timeout` is in seconds."""

    path: str
    args: Opt[Strings] = None
    env: Opt[Strings] = None
    timeout: Opt[Annotated[int, Field(ge=1)]] = None


class Hooks(SpecModel):
    """Hooks by the step of the lifecycle at which they are called (runtime.md, "Lifecycle")."""

    prestart: Opt[tuple[Hook, ...]] = None
    create_runtime: Opt[tuple[Hook, ...]] = None
    create_container: Opt[tuple[Hook, ...]] = None
    start_container: Opt[tuple[Hook, ...]] = None
    poststart: Opt[tuple[Hook, ...]] = None
    poststop: Opt[tuple[Hook, ...]] = None


class Spec(SpecModel):
    """A whole config.json. Which `oci_version` it needs, `lowest_version` tells."""

    oci_version: str
    process: Opt[Process] = None
    root: Opt[Root] = None
    hostname: Opt[str] = None
    domainname: Opt[str] = None
    mounts: Opt[tuple[Mount, ...]] = None
    hooks: Opt[Hooks] = None
    annotations: Opt[StringMap] = None
    linux: Opt[Linux] = None
    solaris: Opt[Solaris] = None
    windows: Opt[Windows] = None
    vm: Opt[Vm] = None
    zos: Opt[Zos] = None
    freebsd: Opt[Freebsd] = None
