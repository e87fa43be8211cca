"""What a container sees: its root, the caller's workspace and volumes, scratch memory."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocisbx.container import paths, view
from ocisbx.container.layout import Layout
from ocisbx.container.model import (
    Bind,
    EnforcementEntry,
    HostSide,
    Identity,
    Node,
    Root,
    Tmpfs,
)
from ocisbx.container.paths import is_below
from ocisbx.container.policy import FREE, apply_rules, declare
from ocisbx.container.rules import collect_rules, given_paths, led_to
from ocisbx.errors import ConfigError
from ocisbx.host import Host, Link, PathFact, PathKind
from ocisbx.mounts import PER_CALL_PLACE, directory_wanted, is_per_call, parse_workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ocisbx.config import SandboxConfig, Volume
    from ocisbx.container.paths import Given
    from ocisbx.container.rules import Rule

MIB = 1 << 20
GIB = 1 << 30
DEFAULT_TMPFS_BYTES = 1 * GIB
# One inode for each 4 KiB: enough for any tree of small files that the bytes can hold.
BYTES_PER_INODE = 4096

OWN_DIRECTORIES = ("/proc", "/.ocisbx")
DEV_BYTES = 64 << 10
# Real directories in every sound root; a symlink there sends the runtime's own mounts elsewhere
# (CVE-2026-41579, CVE-2023-27561, crun's CVE-2026-47766).
REAL_IN_ROOT = ("dev", "proc", "sys", "etc")


@dataclass(frozen=True, slots=True)
class Files:
    """The part of a ContainerConfig that has to do with files."""

    root: Root
    binds: tuple[Bind, ...]
    tmpfs: tuple[Tmpfs, ...]
    workdir: str
    host_side: HostSide
    enforcement: dict[str, EnforcementEntry]
    # Beneath these something writable may come to be mounted.
    later: tuple[str, ...] = ()


def choose_files(
    merged: SandboxConfig,
    host: Host,
    who: Identity,
    names: view.Names,
    *,
    read_only_root: bool,
    place: str | None = None,
) -> Files:
    """Lay the container's files out. `place`: where the workspace is, when not at its own
    place.

    Raises:
        ConfigError: a path is missing, not a sandbox's to have, or cannot be where it should.
        Unsupported: a rule of [filesystem] does not hold here.
    """
    direct = None
    if merged.rootfs in (None, "host"):
        layout = Layout(host, *view.host_view(host))
        generated = [*view.account_files(names), *view.host_files(names)]
    else:
        directory = _root_directory(host, merged.rootfs or "")
        direct = None if read_only_root else directory
        start = ([], []) if direct else view.directory_view(host, directory)
        layout = Layout(host, *start)
        generated = [] if direct else view.host_files(names)
    for node in [*generated, *(Node(kind="directory", path=path) for path in OWN_DIRECTORIES)]:
        layout.add_node(node)
    layout.add_node(Node(kind="file", path="/.ocisbx/init", mode=0o755))
    for tmpfs in _scratch(who):
        layout.add_tmpfs(tmpfs)
    if merged.network == "host":
        _add_resolver(layout, host)
    given = given_paths(merged, host.paths, host.cwd)
    rules = collect_rules(merged, given, host.home, host.own_code)
    workdir = _add_requested(layout, host, merged, rules, place)
    _check_workdir(layout, host, workdir, direct)
    layout.add_workdir(workdir)
    writable = [bind.source for bind in layout.binds if not bind.read_only]
    paths.check_links(_named(host, merged), writable if direct is None else [*writable, direct])
    root = Root(directory=direct, read_only=read_only_root, nodes=() if direct else layout.nodes)
    policy = apply_rules(rules, host, root, (layout.binds, layout.tmpfs), given.sources)
    return Files(
        root=root,
        binds=policy.binds,
        tmpfs=layout.tmpfs,
        workdir=workdir,
        host_side=policy.host_side,
        enforcement=declare(rules, merged.preset, policy, merged.allow_degraded),
        later=_later(merged),
    )


def _scratch(who: Identity) -> list[Tmpfs]:
    return [
        Tmpfs(target="/dev", size_bytes=DEV_BYTES, inodes=64, mode=0o755, no_exec=True),
        _tmpfs("/tmp", 1 * GIB),
        # Of another user's, uid 0 is the owner where a range is mapped: nobody else is in here.
        _tmpfs(who.home, 1 * GIB, mode=0o700 if who.uid == 0 else 0o1777),
        _tmpfs("/dev/shm", 256 * MIB),
    ]


def _tmpfs(target: str, size_bytes: int, mode: int = 0o1777) -> Tmpfs:
    inodes = max(64, size_bytes // BYTES_PER_INODE)
    return Tmpfs(target=target, size_bytes=size_bytes, inodes=inodes, mode=mode)


def _root_directory(host: Host, written: str) -> str:
    fact = host.fact(written)
    if fact.kind is not PathKind.DIRECTORY:
        state = "does not exist" if fact.kind is PathKind.MISSING else "is not a directory"
        raise ConfigError(
            f"rootfs {written} {state}",
            remedy="give an unpacked root (tools/build-rootfs makes some), or --rootfs host",
        )
    for entry in host.listings[fact.real]:
        if entry.name in REAL_IN_ROOT and entry.kind != "directory":
            raise ConfigError(
                f"rootfs {written}: /{entry.name} is a {entry.kind}, not a directory",
                why="the runtime mounts there, and would follow it out of the root",
                remedy=f"replace it by an empty directory: mkdir {fact.real}/{entry.name}",
            )
    if fact.real in (*paths.KERNEL_TREES, "/"):
        raise ConfigError(
            f"rootfs {written} is the host's own root", remedy="--rootfs host shows its programs"
        )
    return fact.real


def _add_resolver(layout: Layout, host: Host) -> None:
    """resolv.conf as the host has it: only a container on the host's network can use it."""
    fact = host.paths.get("/etc/resolv.conf")
    if fact is None or fact.kind is not PathKind.FILE:
        return
    bind = Bind(source=fact.real, target="/etc/resolv.conf", read_only=True, directory=False)
    layout.add_node(Node(kind="file", path=bind.target))
    layout.add_bind(bind)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A mount of the caller's; `links`: the symlinks through which the caller named it."""

    mount: Bind | Tmpfs
    links: tuple[Link, ...] = ()


def _add_requested(
    layout: Layout,
    host: Host,
    merged: SandboxConfig,
    rules: Sequence[Rule],
    at: str | None,
) -> str:
    """Workspace, volumes and tmpfs of the caller, parents first; returns the working directory."""
    wanted = [_wanted_volume(host, volume) for volume in merged.volumes]
    for target, size in merged.tmpfs.items():
        place = paths.check_target(target, "tmpfs")
        wanted.append(Wanted(_tmpfs(place, size or DEFAULT_TMPFS_BYTES)))
    workdir = _add_workspace(wanted, host, merged, at)
    wanted += _allowed(host, rules, [want.mount for want in wanted], at)
    for want in sorted(wanted, key=lambda want: want.mount.target.split("/")):
        if isinstance(want.mount, Tmpfs):
            layout.add_tmpfs(want.mount)
        else:
            layout.add_bind(want.mount)
            for link in want.links:
                layout.add_link(link, want.mount)
    return workdir


def _add_workspace(wanted: list[Wanted], host: Host, merged: SandboxConfig, at: str | None) -> str:
    """The workspace, or the empty place for one; returns the working directory."""
    own = None if merged.workdir is None else posixpath.normpath(merged.workdir)
    if is_per_call(merged.workspace):
        _check_room(wanted)
        empty = Bind(source=FREE[""], target=PER_CALL_PLACE, read_only=True)
        wanted.append(Wanted(empty))
        # Below it there is nothing yet.
        return PER_CALL_PLACE if own is None or is_below(own, PER_CALL_PLACE) else own
    workspace = _workspace(host, merged)
    if workspace is None:
        return own or "/"
    given, read_only = workspace
    if at is not None:
        _check_room(wanted)
        wanted.append(Wanted(_bind(host, given, at, read_only=read_only)))
        return own or at
    target = paths.check_target(given.real, "workspace")
    wanted.append(Wanted(_bind(host, given, target, read_only=read_only), given.fact.links))
    return own or given.written


def _check_room(wanted: Sequence[Wanted]) -> None:
    for want in wanted:
        if is_below(want.mount.target, PER_CALL_PLACE):
            raise ConfigError(
                f"nothing can be mounted at {want.mount.target}",
                why="the workspace of each call will be there",
                remedy="choose another target",
            )


def _later(merged: SandboxConfig) -> tuple[str, ...]:
    value = parse_workspace(merged.workspace or ":rw")
    if value is None or not value.per_call:
        return ()
    if value.read_only and not merged.filesystem.allow_write:
        return ()
    return (posixpath.dirname(PER_CALL_PLACE),)


def _check_workdir(layout: Layout, host: Host, workdir: str, direct: str | None) -> None:
    """Also where links lead: those of our root, and those in what the caller shows.

    Raises:
        ConfigError: to a tree of the kernel's.
    """
    inside = layout.follow(workdir)
    paths.check_workdir(workdir, inside)
    source = layout.source_of(inside)
    if source is None and direct is not None:
        source = f"{direct}{inside}".rstrip("/")
    if source is not None and (fact := host.paths.get(source)) is not None:
        for place in paths.places_along(fact):
            paths.check_workdir(workdir, place)


def _allowed(
    host: Host, rules: Sequence[Rule], mounts: Sequence[Bind | Tmpfs], at: str | None
) -> list[Wanted]:
    """What `allow_write` gives that no other mount shows at its own place (container/policy.py
    makes writable what one shows)."""
    found = []
    for rule in rules:
        places = led_to(host, rule).places if rule.verb == "allow_write" else ()
        for place in places:
            fact = PathFact(kind=place.kind, real=place.real, links=place.links)
            given = paths.check_volume(host, rule.written, fact, "filesystem.allow_write:")
            if not any(
                isinstance(one, Bind)
                and one.target in (one.source, at)
                and is_below(given.real, one.source)
                for one in mounts
            ):
                target = paths.check_target(given.real, "filesystem.allow_write")
                found.append(Wanted(_bind(host, given, target, read_only=False), fact.links))
    return found


def _wanted_volume(host: Host, volume: Volume) -> Wanted:
    """A volume whose target is its source stands at its real place, with the links to it."""
    given = paths.check_volume(host, volume.source, host.fact(volume.source))
    plain = paths.clean(volume.target) == paths.clean(volume.source)
    target = paths.check_target(given.real if plain else volume.target, "volume")
    bind = _bind(host, given, target, read_only=volume.read_only)
    return Wanted(bind, given.fact.links if plain else ())


def _bind(host: Host, given: Given, target: str, *, read_only: bool) -> Bind:
    return Bind(
        source=given.real,
        target=target,
        read_only=read_only,
        directory=given.fact.kind is PathKind.DIRECTORY,
        idmap=host.uid == 0,
    )


def _workspace(host: Host, merged: SandboxConfig) -> tuple[Given, bool] | None:
    value = directory_wanted(merged.workspace)
    if value is None:
        return None
    written = host.cwd if value.path is None else paths.clean(value.path)
    return paths.check_workspace(host, written), bool(value.read_only)


def _named(host: Host, merged: SandboxConfig) -> dict[str, PathFact]:
    """What the caller named of the host, by the name."""
    names = [volume.source for volume in merged.volumes]
    if merged.rootfs not in (None, "host"):
        names.append(merged.rootfs or "")
    if (workspace := _workspace(host, merged)) is not None:
        names.append(workspace[0].written)
    return {name: host.fact(name) for name in names}
