"""Facts from what /proc said about a running container."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from ocisbx.container.paths import is_below
from ocisbx.posture.facts import (
    INIT_DIRECTORY,
    KERNEL_PLACES,
    KERNEL_TYPES,
    USUAL_DEVICES,
    Facts,
    Identity,
    Scratch,
    Shown,
    ground,
    size_option,
)
from ocisbx.posture.spec import SYSTEM_TYPES, known_capability
from ocisbx.presets import MASKED_PATHS_RESTRICTED, READONLY_PATHS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ocisbx.probe.container import Evidence, IdRow, Mount

SECCOMP_FILTERS = 2
# The kernel's own trees, and what runtimes lay over their entries.
KERNEL_TREES = ("/proc", "/sys")
# mount_namespaces(7): in a peer group with others, or below one.
PEERS = ("shared:", "master:")
# Files of the host's /dev that runtimes bind, /dev/null also over what is masked.
DEVICE_FILES = frozenset(
    f"/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero")
)
DEVICE_TYPES = frozenset({"devtmpfs", "tmpfs"})


def live_facts(seen: Evidence, spec: Facts, own: tuple[str, ...]) -> Facts:
    """`spec` says which paths were to be masked; `own`: directories whose content is ocisbx's."""
    status = seen.status
    assert status is not None
    facts = Facts(
        identity=_identity(seen),
        namespaces=seen.namespaces or None,
        groups=len(set(status.groups) - set(status.gids)),
        capabilities=frozenset(
            known_capability(bit)
            for bit in range(status.capabilities.bit_length())
            if status.capabilities >> bit & 1
        ),
        no_new_privileges=status.no_new_privileges,
        seccomp=status.seccomp == SECCOMP_FILTERS,
        rlimits=seen.rlimits,
        interfaces=seen.interfaces,
        limits=seen.cgroup_limits,
        label=seen.security_label,
        oom_score_adj=seen.oom_score_adj,
        descriptors=seen.foreign_files,
    )
    mounts = _topmost(seen.mounts or ())
    return _with_mounts(facts, mounts, seen, spec, own) if "/" in mounts else facts


def _with_mounts(
    facts: Facts, mounts: dict[str, Mount], seen: Evidence, spec: Facts, own: tuple[str, ...]
) -> Facts:
    def where(test: Callable[[Mount], object]) -> frozenset[str]:
        return frozenset(point for point, mount in mounts.items() if test(mount))

    hidden = _hidden(mounts, spec)
    fixed = where(lambda mount: _read_only(mount) and _in_kernel_tree(mount.point))
    shown, scratch = _files(mounts, seen.host_mounts, hidden, own)
    return facts._replace(
        read_only_root=_read_only(mounts["/"]),
        shown=shown,
        scratch=scratch,
        hidden=hidden | _not_there(MASKED_PATHS_RESTRICTED, spec.hidden, seen, mounts),
        read_only_paths=fixed | _not_there(READONLY_PATHS, spec.read_only_paths, seen, mounts),
        loose=where(lambda mount: _loose(mount, hidden)),
        propagating=where(_propagating),
        system=where(lambda mount: mount.type in SYSTEM_TYPES and not _read_only(mount)),
        devices=where(
            lambda mount: (
                mount.point.startswith("/dev/")
                and mount.point not in USUAL_DEVICES
                and mount.point not in hidden
            )
        ),
    )


def _read_only(mount: Mount) -> bool:
    return "ro" in mount.options


def _in_kernel_tree(point: str) -> bool:
    return any(is_below(point, tree) for tree in KERNEL_TREES)


def _topmost(mounts: Iterable[Mount]) -> dict[str, Mount]:
    """By mount point; where several lie on one, the last is what is seen."""
    return {mount.point: mount for mount in mounts}


def _identity(seen: Evidence) -> Identity | None:
    assert seen.status is not None
    uid, gid = seen.status.uids[1], seen.status.gids[1]
    if seen.uid_map is None or seen.gid_map is None:
        return None
    return Identity(
        uid=_inside(uid, seen.uid_map),
        gid=_inside(gid, seen.gid_map),
        outside=uid,
        others=max(0, sum(row.size for row in seen.uid_map) - 1)
        if seen.namespaces.get("user")
        else 0,
    )


def _inside(number: int, rows: tuple[IdRow, ...]) -> int:
    """What the container calls the reader's id."""
    for row in rows:
        if 0 <= number - row.outside < row.size:
            return row.inside + number - row.outside
    return number


def _hidden(mounts: dict[str, Mount], spec: Facts) -> frozenset[str]:
    """Something that shows nothing is mounted there: /dev/null, or a directory of the runtime's."""
    found = set()
    for point, mount in mounts.items():
        empty = posixpath.basename(mount.root) == "null" or (
            mount.type == "tmpfs" and _read_only(mount)
        )
        asked = point in (spec.hidden or ())
        if mount.type != "proc" and (asked or empty) and not is_below(point, "/dev"):
            found.add(point)
    return frozenset(found)


def _not_there(
    usual: tuple[str, ...], asked: frozenset[str] | None, seen: Evidence, mounts: dict[str, Mount]
) -> frozenset[str]:
    """Those of both that this kernel does not have, or whose tree is not mounted."""
    trees = [tree for tree in KERNEL_TREES if tree in mounts]
    return frozenset(
        path
        for path in {*usual, *(asked or ())}
        if (is_below(path, "/proc") and path not in seen.existing)
        or (is_below(path, "/sys") and not any(is_below(path, tree) for tree in trees))
    )


def _files(
    mounts: dict[str, Mount],
    host: tuple[Mount, ...],
    hidden: frozenset[str],
    own: tuple[str, ...],
) -> tuple[tuple[Shown, ...], tuple[Scratch, ...]]:
    shown: list[Shown] = []
    scratch: list[Scratch] = []
    for point, mount in sorted(mounts.items()):
        if point in hidden or point in KERNEL_PLACES or mount.type in KERNEL_TYPES:
            continue
        if _in_kernel_tree(point) or is_below(point, INIT_DIRECTORY):
            continue
        writable = not _read_only(mount)
        source = host_path(mount, host)
        if source is None or any(is_below(source, place) for place in own):
            if writable:
                scratch.append(Scratch(point, size_option(mount.super_options)))
        elif point != "/" or writable:
            shown.append(Shown(point, source, writable))
    return tuple(one for one in shown if not _implied(one, shown)), tuple(scratch)


def _implied(one: Shown, shown: list[Shown]) -> bool:
    """A mount of the host's own below another that is shown: it came with that one."""
    over = ground(posixpath.dirname(one.target), shown)
    if over is None or over is one or over.source is None or over.writable != one.writable:
        return False
    return one.source == posixpath.normpath(
        over.source + one.target[len(over.target.rstrip("/")) :]
    )


def host_path(mount: Mount, host: Iterable[Mount]) -> str | None:
    """Where the reader finds what is mounted; None: it is mounted nowhere else."""
    over = [one for one in host if one.device == mount.device and is_below(mount.root, one.root)]
    if not over:
        return None
    best = max(over, key=lambda one: len(one.root))
    rest = mount.root[len(best.root.rstrip("/")) :].lstrip("/")
    return posixpath.join(best.point, rest).rstrip("/") or "/"


def _propagating(mount: Mount) -> bool:
    peers = {peer for peer in PEERS for word in mount.propagation if word.startswith(peer)}
    # runc binds these from a tree that it made a slave (its `private` is not recursive). Nothing
    # can be mounted below a file, and out of a slave nothing gets.
    device = mount.type in DEVICE_TYPES and mount.root in DEVICE_FILES
    return bool(peers) and not (device and peers == {"master:"})


def _loose(mount: Mount, hidden: frozenset[str]) -> bool:
    if mount.type in KERNEL_TYPES or mount.point in hidden or mount.point in USUAL_DEVICES:
        return False
    if mount.point == "/" or is_below(mount.point, INIT_DIRECTORY):
        # The root takes no mount options from config.json; its row speaks of it.
        return False
    devices = is_below(mount.point, "/dev") or "nodev" in mount.options
    return not ("nosuid" in mount.options and devices)
