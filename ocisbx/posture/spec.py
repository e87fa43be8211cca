"""Facts from a config.json, whoever wrote it: what a runtime is told to do."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from ocisbx.capabilities import CAPABILITIES
from ocisbx.container.paths import is_below
from ocisbx.posture.facts import (
    INIT_DIRECTORY,
    KERNEL_PLACES,
    USUAL_DEVICES,
    Facts,
    Identity,
    Scratch,
    Shown,
    size_option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    Document = Mapping[str, Any]

# getrlimit(2): RLIM_INFINITY in 64 bits.
RLIM_INFINITY = (1 << 64) - 1
# mount(8): what the last of these says about writing stands.
WRITABLE = {"rw": True, "ro": False, "rro": False, "rrw": True}
PROPAGATING = frozenset({"shared", "rshared", "slave", "rslave"})
SYSTEM_TYPES = frozenset({"sysfs", "cgroup", "cgroup2"})


def spec_facts(
    document: Document, *, caller: int, cell_maps_root: bool, own: tuple[str, ...], base: str
) -> Facts:
    """`caller`: whose containers these are; `cell_maps_root`: uid 0 of the mappings is that one
    (ocisbx-init(7), the cell). `own`: directories whose content is ocisbx's, not the host's.
    `base`: the bundle, from which relative sources are reckoned.
    """
    process = document.get("process") or {}
    linux = document.get("linux") or {}
    mounts = document.get("mounts") or ()
    types = [row["type"] for row in linux.get("namespaces") or ()]
    capabilities = process.get("capabilities") or {}
    shown, scratch = _files(document, base, own)
    return Facts(
        identity=_identity(process, linux, caller, own_user="user" in types, cell=cell_maps_root),
        namespaces={
            name: name in types
            for name in ("user", "mount", "pid", "network", "ipc", "uts", "cgroup")
        },
        groups=len(process["user"]["additionalGids"])
        if (process.get("user") or {}).get("additionalGids")
        else None,
        capabilities=frozenset(name for names in capabilities.values() for name in names or ()),
        no_new_privileges=bool(process.get("noNewPrivileges")),
        seccomp=linux.get("seccomp") is not None,
        read_only_root=bool((document.get("root") or {}).get("readonly")),
        shown=shown,
        scratch=scratch,
        hidden=frozenset(linux.get("maskedPaths") or ()),
        read_only_paths=frozenset(linux.get("readonlyPaths") or ()),
        loose=frozenset(mount["destination"] for mount in mounts if _loose(mount)),
        propagating=_propagating(linux, mounts),
        system=frozenset(
            mount["destination"]
            for mount in mounts
            if mount.get("type") in SYSTEM_TYPES and writable(mount)
        ),
        devices=_devices(linux, mounts),
        rlimits={
            row["type"]: (_signed(row["soft"]), _signed(row["hard"]))
            for row in process.get("rlimits") or ()
        },
        limits=_limits(linux.get("resources") or {}),
        label=process.get("apparmorProfile") or process.get("selinuxLabel") or None,
        oom_score_adj=process.get("oomScoreAdj"),
    )


def writable(mount: Document) -> bool:
    words = [WRITABLE[option] for option in mount.get("options") or () if option in WRITABLE]
    return words[-1] if words else True


def is_bind(mount: Document) -> bool:
    return mount.get("type") == "bind" or bool({"bind", "rbind"} & set(mount.get("options") or ()))


def known_capability(bit: int) -> str:
    """The name of a capability's number; newer kernels have more than we have names for."""
    return CAPABILITIES[bit] if bit < len(CAPABILITIES) else f"CAP_{bit}"


def _identity(
    process: Document, linux: Document, caller: int, *, own_user: bool, cell: bool
) -> Identity:
    user = process.get("user") or {}
    uid, gid = user.get("uid", 0), user.get("gid", 0)
    if not own_user:
        return Identity(uid, gid, outside=caller if cell and uid == 0 else uid, others=0)
    rows = linux.get("uidMappings") or ()
    outside = next(
        (
            row["hostID"] + uid - row["containerID"]
            for row in rows
            if 0 <= uid - row["containerID"] < row["size"]
        ),
        None,
    )
    if cell and outside == 0:
        outside = caller
    return Identity(uid, gid, outside, others=max(0, sum(row["size"] for row in rows) - 1))


def _files(
    document: Document, base: str, own: tuple[str, ...]
) -> tuple[tuple[Shown, ...], tuple[Scratch, ...]]:
    shown: list[Shown] = []
    scratch: list[Scratch] = []
    root = document.get("root") or {}
    if not root.get("readonly"):
        source = posixpath.join(base, root.get("path", ""))
        if any(is_below(source, place) for place in own):
            scratch.append(Scratch("/", None))
        else:
            shown.append(Shown("/", source, writable=True))
    for mount in document.get("mounts") or ():
        target = posixpath.normpath(mount["destination"])
        if is_below(target, INIT_DIRECTORY) or target in KERNEL_PLACES:
            continue
        if is_bind(mount):
            source = posixpath.join(base, mount.get("source", ""))
            shown.append(Shown(target, source, writable(mount)))
        elif mount.get("type") == "tmpfs" and writable(mount):
            scratch.append(Scratch(target, size_option(mount.get("options") or ())))
    return tuple(shown), tuple(scratch)


def _loose(mount: Document) -> bool:
    """Files of somebody's on it may be setuid or devices; only /dev has a use for devices."""
    options = set(mount.get("options") or ())
    if not (is_bind(mount) or mount.get("type") == "tmpfs"):
        return False
    devices = is_below(mount["destination"], "/dev") or options & {"nodev", "rnodev"}
    return not (options & {"nosuid", "rnosuid"} and devices)


def _propagating(linux: Document, mounts: tuple[Document, ...]) -> frozenset[str]:
    found = {m["destination"] for m in mounts if PROPAGATING & set(m.get("options") or ())}
    return frozenset(found | ({"/"} if linux.get("rootfsPropagation") in PROPAGATING else set()))


def _devices(linux: Document, mounts: tuple[Document, ...]) -> frozenset[str]:
    named = {device["path"] for device in linux.get("devices") or ()}
    named |= {m["destination"] for m in mounts if m["destination"].startswith("/dev/")}
    return frozenset(named - USUAL_DEVICES)


def _limits(resources: Document) -> dict[str, float | None]:
    memory, cpu = resources.get("memory") or {}, resources.get("cpu") or {}
    limit, both = memory.get("limit"), memory.get("swap")
    quota, period = cpu.get("quota"), cpu.get("period") or 100_000
    found = {
        "memory": limit,
        # runtime-spec, "Memory": swap is memory and swap together.
        "swap": None if limit is None or both is None or both < 0 else both - limit,
        "cpus": None if quota is None or quota < 0 else quota / period,
        "pids": (resources.get("pids") or {}).get("limit"),
    }
    return {name: value for name, value in found.items() if value is not None and value >= 0}


def _signed(limit: int) -> int:
    return -1 if limit == RLIM_INFINITY else limit
