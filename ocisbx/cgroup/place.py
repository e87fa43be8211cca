"""settle(): take the place that a Site promises, so that cgroups with limits can be made there."""

from __future__ import annotations

import contextlib
import errno
import os
from _thread import allocate_lock
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.errors import CgroupError
from ocisbx.probe.cgroups import (
    DRIVER_LEAF,
    join,
    look,
    own_cgroup,
    read_text,
    user_buses,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ocisbx.probe.cgroups import Site

# Processes that are born while others are moved; each round finds those that the last one missed.
MOVE_ROUNDS = 100

DOCTOR = "`ocisbx doctor` tells what can be done here"
SCOPE = "systemd-run --user --scope -p Delegate=yes -- COMMAND"

# Why the kernel gives a controller to no child of a cgroup (cgroups(7)), and what to do.
REFUSALS: dict[int, tuple[str, str]] = {
    errno.EBUSY: (
        "processes sit in it, and a cgroup that holds some can give its children no controller",
        f"start from a cgroup of your own: {SCOPE}",
    ),
    errno.EACCES: ("it belongs to somebody else", DOCTOR),
    errno.EPERM: ("it is the root of our cgroup namespace, and not handed over", DOCTOR),
    errno.ENOENT: (
        "it has lost the controller (`systemctl daemon-reload` takes back what no unit asks for)",
        f"start from a cgroup of your own: {SCOPE}",
    ),
    errno.ENODEV: ("it was removed meanwhile", "start again"),
    errno.EOPNOTSUPP: ("it is in a threaded part of the hierarchy (cgroups(7))", DOCTOR),
    errno.EROFS: ("the file system is read-only", DOCTOR),
}


class _Settled(NamedTuple):
    """What was done when our own cgroup was `own`."""

    own: str
    site: Site


_lock = allocate_lock()
# One for each root that was looked at: tests have their own.
_settled: dict[str, _Settled] = {}


def _after_fork() -> None:
    # Another thread may have held it; the child is in the same cgroup, so what is settled holds.
    global _lock  # noqa: PLW0603 -- a lock cannot be opened by who does not hold it
    _lock = allocate_lock()


os.register_at_fork(after_in_child=_after_fork)


def settle(site: Site | None = None, needed: Collection[str] = (), root: str = "/") -> Site:
    """Do what `site.way` says, once; the Site to make cgroups in, with what is enabled there.

    Threads may call it at once. What was done stands until we find ourselves in another cgroup;
    without `site` it is looked for only then.

    Raises:
        CgroupError: there is no place, or a controller of `needed` cannot be had in it.
    """
    with _lock:
        done = _settled.get(root)
        if site is None:
            site = look(root) if done is None else done.site
        own = own_cgroup(site.mount, root)
        if done is None or done.own != own:
            done = _take_place(site if site.own == own else look(root), root)
            _settled[root] = done
        enabled, refused = enable_controllers(join(done.site.mount, done.site.parent), done.site)
    for name in needed:
        if name not in enabled:
            raise _refusal(name, done.site, refused.get(name))
    return done.site._replace(controllers=enabled)


def _take_place(site: Site, root: str) -> _Settled:
    if site.way == "none" or not site.own:
        raise CgroupError(
            "no cgroup can be made here",
            why=f"{site.own or 'our own cgroup'} is not ours to divide, "
            "and no systemd user manager can be asked for another",
            remedy=DOCTOR,
        )
    if site.way == "scope":
        from ocisbx.cgroup.scope import enter_scope  # noqa: PLC0415 -- for those who need one only

        enter_scope(user_buses(os.geteuid(), root))
        site = look(root)
        if site.way not in ("sibling", "below"):
            raise CgroupError(
                "the cgroup that the systemd user manager gave us cannot be divided",
                why=f"{site.own or 'it'} is not ours",
                remedy=DOCTOR,
            )
    if site.way == "below":
        leave_for_leaf(join(site.mount, site.own))
        site = site._replace(own=own_cgroup(site.mount, root))
    return _Settled(site.own, site)


def enable_controllers(path: str, site: Site) -> tuple[tuple[str, ...], dict[str, int]]:
    """Enable what `site` promises for the children of `path`.

    Returns what is enabled, and for the rest the error numbers.
    """
    switch = f"{path}/cgroup.subtree_control"
    refused: dict[str, int] = {}
    enabled = read_text(switch).split()
    for name in site.controllers:
        if name not in enabled:
            try:
                _write(switch, f"+{name}")
            except OSError as error:
                refused[name] = error.errno or errno.EIO
    if set(site.controllers) <= set(enabled):
        return site.controllers, refused
    enabled = read_text(switch).split()
    return tuple(name for name in site.controllers if name in enabled), refused


def _refusal(name: str, site: Site, number: int | None) -> CgroupError:
    if number is None:
        why, remedy = f"{site.parent} does not have it", DOCTOR
    else:
        why, remedy = REFUSALS.get(number, (os.strerror(number).lower(), DOCTOR))
        why = f"{site.parent}: {why}"
    return CgroupError(f"the {name} controller cannot be enabled", why=why, remedy=remedy)


def leave_for_leaf(path: str) -> None:
    """Move all processes of the cgroup into a leaf of it: only an empty one can be divided.

    Raises:
        CgroupError: one cannot be moved, or new ones come faster than they are moved.
    """
    leaf = f"{path}/{DRIVER_LEAF}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(leaf)
        for _ in range(MOVE_ROUNDS):
            pids = read_text(f"{path}/cgroup.procs").split()
            if not pids:
                return
            for pid in pids:
                _move(pid, leaf)
    except OSError as error:
        why = f"{error.filename or leaf}: {(error.strerror or str(error)).lower()}"
        raise CgroupError(f"{path} cannot be left for a cgroup below it", why=why) from error
    raise CgroupError(
        f"{path} cannot be left for a cgroup below it",
        why="processes appear in it faster than they can be moved",
        remedy=f"start from a cgroup of your own: {SCOPE}",
    )


def _move(pid: str, leaf: str) -> None:
    if pid == "0":
        raise CgroupError(
            f"{os.path.dirname(leaf)} cannot be left for a cgroup below it",
            why="a process of another pid namespace is in it, which cannot be moved from here",
            remedy=DOCTOR,
        )
    with contextlib.suppress(ProcessLookupError):
        _write(f"{leaf}/cgroup.procs", pid)


def _write(path: str, text: str) -> None:
    # Without O_CREAT, for which cgroupfs answers EACCES where a file is missing.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)
