"""`mounts` of config.json: in the order in which they have to be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.oci import Mount
from ocisbx.oci.linux import IdMapping
from ocisbx.quirks import find_quirks

if TYPE_CHECKING:
    from ocisbx.container.model import Bind, ContainerConfig, IdMap, Tmpfs

# linux.md 3.4: nosuid and nodev on everything; `rro` because `ro` on a recursive bind covers the
# top mount only, and so for the others.
BIND_OPTIONS = ("rprivate", "nosuid", "nodev")
# By "has something below it" and "read-only". A file takes no recursive option: crun opens the
# target of one as a directory.
EXTENT_OPTIONS: dict[tuple[bool, bool], tuple[str, ...]] = {
    (True, True): ("rbind", "rnosuid", "rnodev", "ro", "rro"),
    (True, False): ("rbind", "rnosuid", "rnodev", "rw"),
    (False, True): ("bind", "ro"),
    (False, False): ("bind", "rw"),
}
RECURSIVE_OPTIONS = frozenset({"rnosuid", "rnodev", "rro"})
INIT_OPTIONS = ("bind", "rprivate", "nosuid", "nodev", "ro")

INIT_TARGET = "/.ocisbx/init"
# Relative to the bundle (config.md, "Mounts": source): a kept bundle works wherever it is put.
INIT_SOURCE = "init"

PROC = Mount(destination="/proc", type="proc", source="proc", options=("nosuid", "noexec", "nodev"))
DEVPTS = Mount(
    destination="/dev/pts",
    type="devpts",
    source="devpts",
    options=("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
)


def build_mounts(container: ContainerConfig) -> tuple[Mount, ...]:
    """Parents before what lies in them; /proc first, since runtimes look into it."""
    placed: list[tuple[str, Mount]] = [("/dev/pts", DEVPTS)]
    if container.root.directory is not None:
        # In a root of ours the init is a file of the root.
        placed.append((INIT_TARGET, _init()))
    placed += [(tmpfs.target, _tmpfs(tmpfs)) for tmpfs in container.tmpfs]
    placed += [(bind.target, _bind(bind, container)) for bind in container.binds]
    placed.sort(key=lambda item: item[0].split("/"))
    return (PROC, *(mount for _, mount in placed))


def _init() -> Mount:
    return Mount(destination=INIT_TARGET, type="bind", source=INIT_SOURCE, options=INIT_OPTIONS)


def _tmpfs(tmpfs: Tmpfs) -> Mount:
    # /dev alone must not be nodev: the runtime puts its devices there.
    kind = ("noexec",) if tmpfs.target == "/dev" else ("nodev",)
    size = (f"mode={tmpfs.mode:o}", f"size={tmpfs.size_bytes}", f"nr_inodes={tmpfs.inodes}")
    return Mount(
        destination=tmpfs.target,
        type="tmpfs",
        source="tmpfs",
        options=("nosuid", *kind, *size),
    )


def _bind(bind: Bind, container: ContainerConfig) -> Mount:
    quirks = find_quirks(container.runtime.name, container.runtime.version)
    options = BIND_OPTIONS + EXTENT_OPTIONS[bind.directory, bind.read_only]
    if not quirks.recursive_options:
        # gVisor's gofer serves the whole tree as one mount.
        options = tuple(option for option in options if option not in RECURSIVE_OPTIONS)
    mapped = bind.idmap and container.identity.uid_map[0].host != 0
    return Mount(
        destination=bind.target,
        type="bind",
        source=bind.source,
        options=options,
        uid_mappings=id_mappings(container.identity.uid_map) if mapped else None,
        gid_mappings=id_mappings(container.identity.gid_map) if mapped else None,
    )


def id_mappings(rows: tuple[IdMap, ...]) -> tuple[IdMapping, ...]:
    """The spec's words for rows of uid_map or gid_map."""
    return tuple(
        IdMapping(container_id=row.container, host_id=row.host, size=row.size) for row in rows
    )
