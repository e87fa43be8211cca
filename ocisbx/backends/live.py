"""What this user's sandboxes use now, those of other processes too: by their owners' records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.bundle.owner import Owner, read_owner
from ocisbx.cgroup.stats import LIVE, Counters, read_counters, read_limit
from ocisbx.errors import BundleError, ConfigError
from ocisbx.places import bundle_names, find_places
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Container


class Rates(NamedTuple):
    """Seconds a second between two samples: 1.0 of `cpu` is one processor at full; `stalled_*` is
    the share of the time in which some process waited for it (PSI, "some")."""

    cpu: float | None = None
    stalled_cpu: float | None = None
    stalled_memory: float | None = None
    stalled_io: float | None = None


class LiveUsage(NamedTuple):
    """One sandbox at one moment: totals of its whole cgroup, with what its runtime used there.

    `at_s` is the time of day (time(2)); `rates` are unknown for a sandbox that the sample before
    did not have.
    """

    at_s: float
    owner: Owner
    counters: Counters
    memory_limit_bytes: int | None
    pids_limit: int | None
    rates: Rates


class Meter:
    """Takes samples, and knows the one before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, Counters]] = {}

    def sample(self, wanted: Container[str] | None = None) -> list[LiveUsage]:
        """The sandboxes that live, the oldest first; only those of the ids `wanted`."""
        samples: dict[str, tuple[float, Counters]] = {}
        usages = []
        for owner in live_owners():
            if wanted is not None and owner.id not in wanted:
                continue
            at_s, monotonic_s = time.time(), time.monotonic()
            counters = read_counters(owner.cgroup, LIVE) if owner.cgroup else Counters()
            samples[owner.id] = monotonic_s, counters
            usages.append(
                LiveUsage(
                    at_s,
                    owner,
                    counters,
                    read_limit(owner.cgroup, "memory.max") if owner.cgroup else None,
                    read_limit(owner.cgroup, "pids.max") if owner.cgroup else None,
                    rates(self._before.get(owner.id), samples[owner.id]),
                )
            )
        self._before = samples
        return usages


def live_owners() -> list[Owner]:
    """The records of the containers whose driver lives, the oldest first."""
    try:
        names = bundle_names()
    except OSError:
        return []
    found = []
    for name in names:
        try:
            owner = read_owner(f"{find_places().bundles}/{name}")
        except BundleError:
            continue
        if owner.alive():
            found.append(owner)
    return sorted(found, key=lambda owner: owner.created_at)


def find_live(given: str) -> str:
    """The id of the live container with this id or name. Raises ConfigError."""
    for owner in live_owners():
        if given in (owner.id, owner.name):
            return owner.id
    raise ConfigError(
        f"{show(given)} is not a container that runs", remedy="ocisbx ps lists containers"
    )


def rates(before: tuple[float, Counters] | None, now: tuple[float, Counters]) -> Rates:
    """What happened between two samples, by their monotonic times."""
    if before is None or now[0] <= before[0]:
        return Rates()
    usec = (now[0] - before[0]) * 1e6

    def rate(*names: str) -> float | None:
        grown = 0
        for name in names:
            old: int | None = getattr(before[1], name)
            new: int | None = getattr(now[1], name)
            if old is None or new is None:
                return None
            grown += max(0, new - old)
        return grown / usec

    return Rates(
        rate("cpu_user_usec", "cpu_system_usec"),
        rate("pressure_cpu_usec"),
        rate("pressure_memory_usec"),
        rate("pressure_io_usec"),
    )
