"""Taking away what dead owners left: bundles, containers, names; and nothing else.

A container whose driver died ends by itself (its init hears the hang-up); what remains are a
runtime that may still be cleaning up, its state, and our directories.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from itertools import pairwise
from typing import NamedTuple

from ocisbx.backends.names import forget_names
from ocisbx.backends.placeholders import forget_placeholders
from ocisbx.bundle.directory import is_ours, remove_tree
from ocisbx.bundle.owner import OWNER_FILE, Owner, draft_alive, read_owner
from ocisbx.cgroup.box import cgroup_name
from ocisbx.cgroup.kill import kill_cgroup, remove_cgroup, wait_empty
from ocisbx.errors import BundleError, OcisbxError
from ocisbx.places import bundle_names, find_places, trusted
from ocisbx.probe.cgroups import look
from ocisbx.probe.processes import command_line, processes
from ocisbx.quirks import find_quirks
from ocisbx.runtime.client import RuntimeClient
from ocisbx.runtime.kept_state import forget_kept_state

# A record that cannot be read may be of a live driver, unless it is older than its writing takes.
UNOWNED_S = 60.0
# How many bundles of others a start looks at in passing.
SWEEP_LIMIT = 16
# How long a container may take to end by itself after its driver has died.
SETTLE_S = 3.0
# And how long those may take that were killed, when nobody waits for it.
SWEEP_S = 0.05

_live: dict[str, float] = {}
LIVE_S = 5.0


class Leftover(NamedTuple):
    """A bundle whose owner is dead; `owner` None: it died before it wrote its record."""

    id: str
    path: str
    owner: Owner | None


def sweep() -> None:
    """In passing, at a start: remove a few leftovers; never fails, never waits for long."""
    now = time.monotonic()
    try:
        names = [name for name in bundle_names() if not is_ours(name)]
    except OSError:
        return
    unknown = [name for name in names if _live.get(name, -LIVE_S) + LIVE_S <= now]
    for name in unknown[:SWEEP_LIMIT]:
        # A record may hold anything, and descriptors may be short.
        with contextlib.suppress(OcisbxError, OSError, ValueError):
            if (found := examine(name)) is not None:
                remove(found, settle_s=0.0)
                continue
            if len(_live) > 4 * SWEEP_LIMIT:
                _live.clear()
            _live[name] = now


def collect() -> list[Leftover]:
    """Remove every leftover of this user; returns what was removed.

    Raises:
        BundleError: something cannot be deleted.
    """
    if not trusted(find_places().runtime):
        return []
    removed = [found for found in leftovers() if remove(found)]
    forget_names()
    forget_placeholders()
    forget_kept_state()
    return removed


def leftovers() -> list[Leftover]:
    try:
        names = sorted(bundle_names())
    except OSError:
        return []
    return [found for name in names if (found := examine(name)) is not None]


def examine(name: str) -> Leftover | None:
    """The leftover by this id; None when its owner lives, or may still be writing its record."""
    path = f"{find_places().bundles}/{name}"
    if (alive := draft_alive(name)) is not None:
        return None if alive else Leftover(name, path, None)
    try:
        owner = read_owner(path)
    except BundleError:
        if not os.path.lexists(f"{path}/{OWNER_FILE}"):
            # A bundle has its name when the record is in it: who took that away did not come to
            # the end.
            return Leftover(name, path, None)
        try:
            age_s = time.time() - os.lstat(path).st_mtime
        except OSError:
            return None
        return Leftover(name, path, None) if age_s > UNOWNED_S else None
    return None if owner.alive() else Leftover(name, path, owner)


def remove(found: Leftover, settle_s: float = SETTLE_S) -> bool:
    """End what still runs of it, let the runtime forget it, delete its directory; True: it is gone.

    A runtime that still cleans up has `settle_s` to end by itself, and is then killed; with 0 it
    is left alone, and all that it needs with it.

    Raises:
        BundleError: it cannot be deleted.
    """
    if found.owner is not None and _has_box(found.owner):
        kill_cgroup(found.owner.cgroup)
    if not _end_processes(found, settle_s):
        return False
    if found.owner is not None and not _forget(found.owner, found.path, settle_s or SWEEP_S):
        # Who still runs there can only be found by this record.
        return False
    remove_tree(found.path)
    return True


def _forget(owner: Owner, path: str, settle_s: float) -> bool:
    """Let the runtime kill and forget the container; without it, its cgroup is all there is.
    Whether nothing of it runs any more."""
    with contextlib.suppress(OcisbxError, KeyError):
        client = RuntimeClient(
            path=owner.runtime_path,
            quirks=find_quirks(owner.runtime_name, owner.runtime_version),
            root=path,
            log=f"{path}/gc.log",
            cell=owner.cell,
            args=tuple(owner.runtime_args),
        )
        if client.knows(owner.id):
            client.delete(owner.id, force=True)
    return (
        not _has_box(owner)
        or remove_cgroup(owner.cgroup, settle_s)
        or wait_empty(owner.cgroup, 0.0)
    )


def _has_box(owner: Owner) -> bool:
    """Whether it names a cgroup as we make them: somebody else may have written the record."""
    mount = look().mount
    return (
        os.path.basename(owner.cgroup) == cgroup_name(owner.id)
        and os.path.normpath(owner.cgroup) == owner.cgroup
        and bool(mount)
        and owner.cgroup.startswith(f"{mount}/")
    )


def _end_processes(found: Leftover, settle_s: float) -> bool:
    """Whether no runtime of this bundle runs any more."""
    deadline = time.monotonic() + settle_s
    while running := [pid for pid in processes() if _serves(pid, found.path.encode())]:
        late_s = time.monotonic() - deadline
        if not settle_s or late_s > settle_s:
            # Somebody else's, or one that the kernel cannot end now: the next call tries again.
            return False
        if late_s > 0:
            for pid in running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return True


def _serves(pid: int, bundle: bytes) -> bool:
    """A runtime that we started for this bundle: its state directory is the bundle. Whoever only
    looks at a file of the bundle is none."""
    if pid == os.getpid():
        return False
    words = command_line(pid)
    return (b"--root", bundle) in pairwise(words)
