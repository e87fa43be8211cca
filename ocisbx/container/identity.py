"""Who the payload is: the id maps of its user namespace, and the cell that a runtime needs.

runtimes.md and linux.md 2.6 hold the measured matrix: every runtime maps the caller's single id to
uid 0; crun maps it to any id; other ids need subordinate ones and newuidmap on runc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ocisbx.container.model import EnforcementEntry, Identity, IdMap
from ocisbx.errors import Unsupported
from ocisbx.host import Host, IdRange
from ocisbx.result import EnforcementState
from ocisbx.values import parse_user

if TYPE_CHECKING:
    from ocisbx.quirks import Quirks

Cell = Literal["none", "mount", "user"]

# When root has no line in /etc/subuid: systemd's UIDS-GIDS.md leaves this range unused.
FALLBACK_RANGE = IdRange(start=0x7000_0000, count=65536)
RANGE_SIZE = 65536

NO_ROOT = "no id inside is root outside"
REAL_ROOT = "uid 0 inside is the host's root, without capabilities"
# user_namespaces(7), "Interaction with system calls that change process UIDs or GIDs": a map that
# an unprivileged process writes itself needs setgroups(2) denied, since dropping a group could open
# what its absence opens (CVE-2014-8989). For root, every runtime calls setgroups(2).
KEPT_GROUPS = (
    "; your supplementary groups stay with the payload (as nogroup), on what it can see: Linux "
    "lets no ordinary user drop them"
)
# runc: "cannot set any additional groups in a rootless container", whatever newgidmap allows.
KEPT_GROUP = (
    "; all of your groups (your own as gid 0) stay with the payload, on what it can see: this "
    "runtime drops none for an ordinary user; --runtime crun leaves your own out"
)

ROOT_WARNING = (
    "file owners cannot be shifted here: the payload runs as root outside too, without "
    "capabilities; run ocisbx as an ordinary user, or with runc >= 1.2 or crun >= 1.10 and a "
    "root that is not the caller's own"
)


def choose_cell(host: Host, quirks: Quirks) -> Cell:
    """The namespaces to start the runtime in, so that the host's cgroups are left alone."""
    if host.cgroups.hierarchy not in ("hybrid", "v1"):
        return "none"
    if host.uid == 0:
        return "mount"
    return "user" if quirks.refuses_hybrid else "none"


def choose_identity(
    user: str | None, host: Host, quirks: Quirks, cell: Cell, *, own_root: bool
) -> tuple[Identity, EnforcementEntry, tuple[str, ...]]:
    """The payload's ids and the maps that make them the caller's; `user` is UID[:GID].

    `own_root`: the container's root is one of ours. The caller's own directory as a writable root
    cannot be shifted (mounts can, root.path cannot), so root's ids then stay what they are.

    Raises:
        Unsupported: `--user` names an id that this runtime and host cannot map.
    """
    uid, named_gid = parse_user(user or "0:0")
    gid = uid if named_gid is None else named_gid
    warnings: tuple[str, ...] = ()
    if host.uid == 0:
        uid_map, gid_map, shifted = _root_maps(host, quirks, own_root=own_root)
        if not shifted:
            warnings = (ROOT_WARNING,)
    else:
        uid_map = (_user_map(quirks, cell, uid, host.uid),)
        gid_map = (_user_map(quirks, cell, gid, host.gid),)
        if not quirks.maps_any_id and (uid, gid) != (0, 0):
            _check_cell(cell, quirks, uid)
            uid_map = _with_subordinates(host.uid, host.subordinate_uids, uid, host.newuidmap)
            gid_map = _with_subordinates(host.gid, host.subordinate_gids, gid, host.newgidmap)
    check_mapped(uid, uid_map, "uid")
    check_mapped(gid, gid_map, "gid")
    identity = Identity(
        uid=uid,
        gid=gid,
        uid_map=uid_map,
        gid_map=gid_map,
        home="/root" if uid == 0 else "/home/user",
        name="root" if uid == 0 else "user",
    )
    # A kernel of the payload's own knows nothing of the caller's groups.
    keeps_groups = host.uid != 0 and not quirks.user_kernel
    return identity, _enforcement(identity, host, cell, keeps_groups=keeps_groups), warnings


def check_mapped(number: int, rows: tuple[IdMap, ...], what: str) -> None:
    """Refuse an id that no row of the map covers: the kernel would answer EINVAL much later."""
    if not any(row.container <= number < row.container + row.size for row in rows):
        covered = ", ".join(f"{row.container}-{row.container + row.size - 1}" for row in rows)
        raise Unsupported(
            f"user: {what} {number} is not mapped into the container",
            why=f"mapped are {covered}",
            remedy="choose one of those, or leave --user out",
        )


def _user_map(quirks: Quirks, cell: Cell, inside: int, own: int) -> IdMap:
    # In the cell, the caller is already uid 0 of a namespace of its own.
    outside = 0 if cell == "user" else own
    return IdMap(container=inside if quirks.maps_any_id else 0, host=outside, size=1)


def _check_cell(cell: Cell, quirks: Quirks, wanted: int) -> None:
    """Refuse another id where the runtime is in a namespace that has the caller's alone."""
    if cell == "user":
        raise Unsupported(
            f"user: {quirks.name} cannot run as id {wanted} here",
            why="with cgroup v1 or hybrid cgroups it runs in namespaces in which you are the only "
            "user (ocisbx-cell)",
            remedy="use crun, which maps you to any id, or runc; or leave --user out",
        )


def _with_subordinates(
    own: int, ranges: tuple[IdRange, ...], wanted: int, helper: str | None
) -> tuple[IdMap, ...]:
    if helper is None or not ranges:
        missing = "newuidmap is not installed" if helper is None else "you have no subordinate ids"
        raise Unsupported(
            f"user: this runtime cannot run as id {wanted} here",
            why=f"{missing}, and it maps a single caller to uid 0 only",
            remedy="use crun, which maps you to any id; or let an administrator run: "
            "apt-get install uidmap && usermod --add-subuids 100000-165535 "
            "--add-subgids 100000-165535 $USER",
        )
    first = ranges[0]
    return (
        IdMap(container=0, host=own, size=1),
        IdMap(container=1, host=first.start, size=first.count),
    )


def _root_maps(
    host: Host, quirks: Quirks, *, own_root: bool
) -> tuple[tuple[IdMap, ...], tuple[IdMap, ...], bool]:
    uids = next(iter(host.subordinate_uids), FALLBACK_RANGE)
    gids = next(iter(host.subordinate_gids), FALLBACK_RANGE)
    shifts = quirks.idmapped_mounts and host.kernel_at_least(5, 12) and host.idmap_ready
    shifts = shifts and own_root
    if not (shifts and _exists(uids, host.own_uids) and _exists(gids, host.own_gids)):
        return _same(host.own_uids), _same(host.own_gids), False
    size = min(uids.count, gids.count, RANGE_SIZE)
    return (
        (IdMap(container=0, host=uids.start, size=size),),
        (IdMap(container=0, host=gids.start, size=size),),
        True,
    )


def _exists(wanted: IdRange, own: tuple[IdRange, ...]) -> bool:
    end = wanted.start + min(wanted.count, RANGE_SIZE)
    return any(row.start <= wanted.start and end <= row.start + row.count for row in own)


def _same(own: tuple[IdRange, ...]) -> tuple[IdMap, ...]:
    """Ids from 0 on as they are, as many as there are in our own namespace."""
    count = next((row.count for row in own if row.start == 0), 1)
    return (IdMap(container=0, host=0, size=min(count, RANGE_SIZE)),)


def _enforcement(
    identity: Identity, host: Host, cell: Cell, *, keeps_groups: bool
) -> EnforcementEntry:
    # The cell's id 0 is the caller.
    shift = host.uid if cell == "user" else 0
    rows = ", ".join(f"{row.container}->{row.host + shift}+{row.size}" for row in identity.uid_map)
    real_root = host.uid == 0 and identity.uid_map[0].host == 0
    # runc and its kin call newgidmap then, and drop nothing.
    own_too = keeps_groups and len(identity.gid_map) > 1
    kept = KEPT_GROUP if own_too else KEPT_GROUPS if keeps_groups and host.groups else ""
    return EnforcementEntry(
        requested="a user namespace of its own",
        actual=f"uid map {rows}",
        state=EnforcementState.PARTIAL if real_root or own_too else EnforcementState.ENFORCED,
        how=f"user namespace; {REAL_ROOT if real_root else NO_ROOT}{kept}",
    )
