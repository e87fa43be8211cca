"""Limits that the container's cgroup holds: checked against the host, then held, refused or
declared.

A demand that this host can never hold (more processors than there are) is a ConfigError; one for
which the cgroup is missing is Unsupported, unless `allow_degraded` names it. Wishes of a preset are
never refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.container.limits import Asked, refuse_or_declare
from ocisbx.container.model import EnforcementEntry, IoLimit, Limits
from ocisbx.container.scenes import find_scene
from ocisbx.errors import ConfigError
from ocisbx.quantities import UNLIMITED, expand_cpuset, show_cpuset
from ocisbx.result import EnforcementState
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ocisbx.config import IoLimit as IoTable
    from ocisbx.config import Limits as LimitsTable
    from ocisbx.host import Host
    from ocisbx.quirks import Quirks

MIB = 1 << 20


class Kind(NamedTuple):
    """One limit: the name of `enforcement` that it counts to, and the controller it needs."""

    name: str
    controller: str


# By field of [limits]; `io_weight` is what [limits.io] says of weights, `io` the rest of it.
KINDS: dict[str, Kind] = {
    "memory_bytes": Kind("memory", "memory"),
    "memory_high_bytes": Kind("memory", "memory"),
    "swap_bytes": Kind("swap", "memory"),
    "cpus": Kind("cpus", "cpu"),
    "cpu_weight": Kind("cpus", "cpu"),
    "cpuset": Kind("cpus", "cpuset"),
    "pids": Kind("pids", "pids"),
    "io": Kind("io", "io"),
    "io_weight": Kind("io", "io"),
}

# cpu.max: the kernel's own period. Its smallest quota is 1 ms, which is 0.01 processors.
CPU_PERIOD_USEC = 100_000

# block/bfq-iosched.h: BFQ_MAX_WEIGHT. Its default is 100 too.
BFQ_FILE = "io.bfq.weight"
MAX_BFQ_WEIGHT = 1000

RATES: dict[str, str] = {
    "read_bps": "rbps",
    "write_bps": "wbps",
    "read_iops": "riops",
    "write_iops": "wiops",
}


@dataclass(frozen=True, slots=True)
class Held:
    """A limit that the cgroup holds: what was asked for, and the files that say so."""

    asked: Asked
    files: tuple[str, ...]
    more: str = ""


@dataclass(frozen=True, slots=True)
class Lacking:
    """A limit that nothing here holds: why, and what to type."""

    asked: Asked
    why: str
    remedy: str


def cpu_quota(cpus: float) -> int:
    """Microseconds of each CPU_PERIOD_USEC."""
    return max(1000, round(cpus * CPU_PERIOD_USEC))


def cgroup_limits(
    mine: LimitsTable, merged: LimitsTable, host: Host, quirks: Quirks, degraded: Collection[str]
) -> tuple[Limits, dict[str, EnforcementEntry]]:
    """What the cgroup will hold, and what is said of it; `mine` is what the caller asked for.

    Raises:
        ConfigError: a demand does not fit this host or the runtime.
        Unsupported: nothing here holds a demand, and `degraded` does not name it.
    """
    _check_order(mine)
    asked = _asked(mine, merged)
    found: dict[str, Held | Lacking] = {}
    for field, wish in asked.items():
        lacking = _lacking(field, wish, host)
        trouble = _trouble(field, wish, merged, host, quirks, held=lacking is None)
        if trouble is not None and wish.demanded:
            raise trouble
        if trouble is not None:
            lacking = Lacking(wish, str(trouble), trouble.remedy)
        found[field] = lacking or Held(wish, tuple(_files(field, wish.value, merged, host)))
    _hold_swap(found, merged, host)
    _hold_group(found, merged)
    held = {field for field, one in found.items() if isinstance(one, Held)}
    return _limits(held, asked, merged, host), _entries(found, quirks, degraded)


def _check_order(mine: LimitsTable) -> None:
    """Here and not in the table: one of the two may be a preset's."""
    high, limit = mine.memory_high_bytes, mine.memory_bytes
    if mine.oom_group and limit == UNLIMITED:
        raise ConfigError(
            "limits.oom_group: there is no limit of memory to run into",
            remedy="give memory_bytes too, or leave it out",
        )
    if high is not None and limit not in (None, UNLIMITED) and high > (limit or 0):
        raise ConfigError(
            f"limits.memory_high_bytes: {high} is above memory_bytes",
            why="it would never be reached",
            remedy="ask for less than memory_bytes, or leave one of the two out",
        )


def _asked(mine: LimitsTable, merged: LimitsTable) -> dict[str, Asked]:
    """By field: what is to be limited."""
    asked = {}
    for field in KINDS:
        value, own = (_value(field, table) for table in (merged, mine))
        if value is not None and value not in ({}, UNLIMITED):
            asked[field] = Asked(value, demanded=own is not None and own != {})
    return asked


def _value(field: str, table: LimitsTable) -> object:
    if field == "io":
        return {k: rates for k, one in table.io.items() if (rates := _rates(one))}
    if field == "io_weight":
        return {key: one.weight for key, one in table.io.items() if one.weight is not None}
    return getattr(table, field)


def _rates(one: IoTable) -> dict[str, int]:
    return {name: value for name in RATES if (value := getattr(one, name)) is not None}


# ------------------------------------------------------------------------- what cannot be at all
def _trouble(
    field: str, wish: Asked, merged: LimitsTable, host: Host, quirks: Quirks, *, held: bool
) -> ConfigError | None:
    """Why this value cannot be, on this host and with this runtime."""
    value = wish.value
    if field in ("memory_bytes", "memory_high_bytes", "pids") and held:
        return _below_floor(field, int(str(value)), quirks)
    if field in ("cpus", "cpuset") and host.cpus:
        return _absent_cpus(field, value, host.cpus)
    if field in ("io", "io_weight"):
        return _absent_disk(merged, host)
    return None


def _below_floor(field: str, value: int, quirks: Quirks) -> ConfigError | None:
    """Below it the runtime itself is killed, or cannot fork, and says so in its own words."""
    floor = quirks.pids_floor if field == "pids" else quirks.memory_floor_bytes
    if value >= floor:
        return None
    least = str(floor) if field == "pids" else f"{floor // MIB} MiB"
    return ConfigError(
        f"limits.{field}: {value} is too little for {quirks.name}",
        why=f"it takes {least} to start a container in it",
        remedy=f"ask for at least {least.replace(' MiB', 'M')}",
    )


def _absent_cpus(field: str, value: object, usable: str) -> ConfigError | None:
    there = expand_cpuset(usable)
    if isinstance(value, str):
        absent = expand_cpuset(value) - there
        if not absent:
            return None
        what, remedy = f"there is no processor {show_cpuset(absent)}", f"ask for some of {usable}"
    else:
        if not isinstance(value, float) or value <= len(there):
            return None
        what = f"{value:g} is more processors than there are, which is {len(there)}"
        remedy = f"ask for 0.01 to {len(there)}"
    return ConfigError(f"limits.{field}: {what}", remedy=remedy)


def _absent_disk(merged: LimitsTable, host: Host) -> ConfigError | None:
    for key in merged.io:
        if trouble := host.disks[key].trouble:
            return ConfigError(
                f"limits.io.{show(key)} is no disk",
                why=trouble,
                remedy="give MAJOR:MINOR of a disk: `lsblk --nodeps` lists them",
            )
    return None


# -------------------------------------------------------------------------- what is not held here
def _lacking(field: str, wish: Asked, host: Host) -> Lacking | None:
    """Why no cgroup of ours holds this kind of limit here."""
    kind = KINDS[field]
    if host.cgroups.way == "none" or kind.controller not in host.cgroups.controllers:
        scene = find_scene(host, [kind.controller])
        return Lacking(wish, scene.seen, scene.remedy)
    if field == "swap_bytes" and not host.swap_accounting:
        return Lacking(
            wish, "this kernel counts no swap for cgroups", "# boot without swapaccount=0"
        )
    if field == "io_weight" and isinstance(wish.value, dict):
        blind = [key for key in wish.value if not host.disks[key].weight_file]
        if blind:
            number = host.disks[blind[0]].number
            return Lacking(
                wish,
                f"nothing shares the disk {number} by weight: neither iocost nor bfq is on",
                f"echo bfq | sudo tee /sys/dev/block/{number}/queue/scheduler",
            )
    return None


# ---------------------------------------------------------------------------------- what is held
def _files(field: str, value: object, merged: LimitsTable, host: Host) -> Iterator[str]:
    """`FILE=VALUE` for each file of the cgroup that this limit becomes."""
    match field:
        case "memory_bytes":
            yield f"memory.max={value}"
        case "memory_high_bytes":
            yield f"memory.high={value}"
        case "swap_bytes" if merged.memory_bytes is not None and isinstance(value, int):
            yield f"memory.swap.max={value - merged.memory_bytes}"
        case "cpus" if isinstance(value, float):
            yield f"cpu.max={cpu_quota(value)} {CPU_PERIOD_USEC}"
        case "cpu_weight":
            yield f"cpu.weight={value}"
        case "cpuset":
            yield f"cpuset.cpus={value}"
        case "pids":
            yield f"pids.max={value}"
        case _:
            for one in _disks(merged, host):
                if field == "io_weight" and one.weight is not None:
                    yield f"{one.weight_file}={one.device} {one.weight}"
                if field == "io" and (rates := _rate_words(one)):
                    yield f"io.max={one.device} {rates}"


def _rate_words(one: IoLimit) -> str:
    pairs = ((word, getattr(one, name)) for name, word in RATES.items())
    return " ".join(f"{word}={value}" for word, value in pairs if value is not None)


def _hold_swap(found: dict[str, Held | Lacking], merged: LimitsTable, host: Host) -> None:
    """A limit of memory alone is one without swap, where the kernel counts swap."""
    memory = found.get("memory_bytes")
    if not isinstance(memory, Held) or merged.swap_bytes is not None:
        return
    if host.swap_accounting:
        found["memory_bytes"] = Held(memory.asked, (*memory.files, "memory.swap.max=0"))
    else:
        more = "swap is not limited: this kernel does not count it"
        found["memory_bytes"] = Held(memory.asked, memory.files, more)


def _hold_group(found: dict[str, Held | Lacking], merged: LimitsTable) -> None:
    memory = found.get("memory_bytes")
    if isinstance(memory, Held) and merged.oom_group:
        files = (*memory.files, "memory.oom.group=1")
        found["memory_bytes"] = Held(memory.asked, files, memory.more)


def _limits(
    held: Collection[str], asked: Mapping[str, Asked], merged: LimitsTable, host: Host
) -> Limits:
    plain = {field: asked[field].value for field in held if not field.startswith("io")}
    memory = plain.get("memory_bytes")
    if memory is not None and host.swap_accounting:
        plain["swap_bytes"] = memory if merged.swap_bytes is None else merged.swap_bytes
    disks = tuple(
        one.model_copy(
            update={
                **({} if "io" in held else dict.fromkeys(RATES)),
                **({} if "io_weight" in held else {"weight": None, "weight_file": ""}),
            }
        )
        for one in _disks(merged, host)
        if {"io", "io_weight"} & set(held)
    )
    group = bool(merged.oom_group) and memory is not None
    return Limits.model_validate({**plain, "io": disks, "oom_group": group})


def _disks(merged: LimitsTable, host: Host) -> tuple[IoLimit, ...]:
    """A row for each disk: of several keys that lead to it, the strictest of each limit."""
    rows: dict[str, dict[str, int]] = {}
    for key, one in merged.io.items():
        row = rows.setdefault(host.disks[key].number, {})
        for name in (*RATES, "weight"):
            value = getattr(one, name)
            if value is not None:
                row[name] = min(value, row.get(name, value))
    files = {disk.number: disk.weight_file for disk in host.disks.values()}
    for device, row in rows.items():
        if "weight" in row and files[device] == BFQ_FILE:
            row["weight"] = min(row["weight"], MAX_BFQ_WEIGHT)
    return tuple(
        IoLimit(device=device, **row, weight_file=files[device] if "weight" in row else "")
        for device, row in rows.items()
    )


# ------------------------------------------------------------------------------------ what is said
def _entries(
    found: Mapping[str, Held | Lacking], quirks: Quirks, degraded: Collection[str]
) -> dict[str, EnforcementEntry]:
    by_name: dict[str, dict[str, Held | Lacking]] = {}
    for field, one in found.items():
        by_name.setdefault(KINDS[field].name, {})[field] = one
    return {name: _entry(name, parts, quirks, degraded) for name, parts in by_name.items()}


def _entry(
    name: str, parts: Mapping[str, Held | Lacking], quirks: Quirks, degraded: Collection[str]
) -> EnforcementEntry:
    """One line for all the limits of a name. Raises Unsupported: a demand that is not held."""
    missing = {field: one for field, one in parts.items() if isinstance(one, Lacking)}
    held = {field: one for field, one in parts.items() if isinstance(one, Held)}
    declared = [
        refuse_or_declare(
            name,
            one.asked,
            one.why,
            f"{one.remedy}\n# or go on without it: --allow-degraded {name}",
            degraded,
        )
        for one in missing.values()
    ]
    requested = _told({field: one.asked for field, one in parts.items()})
    if not held:
        return declared[0].model_copy(update={"requested": requested})
    files = ", ".join(text for one in held.values() for text in one.files)
    words = [f"{files} of the container's cgroup"]
    if quirks.user_kernel:
        words.append(f"{quirks.name}'s own processes count too")
    words += [one.more for one in held.values() if one.more]
    words += [f"not {field}: {one.why}" for field, one in missing.items()]
    return EnforcementEntry(
        requested=requested,
        actual=_told({field: one.asked for field, one in held.items()}),
        state=EnforcementState.PARTIAL if missing else EnforcementState.ENFORCED,
        how="; ".join(words),
    )


def _told(asked: Mapping[str, Asked]) -> str | int | float:
    """One value as it is; several with their names."""
    if len(asked) == 1:
        (only,) = asked.values()
        if isinstance(only.value, (str, int, float)):
            return only.value
    return ", ".join(_words(field, one.value) for field, one in asked.items())


def _words(field: str, value: object) -> str:
    if not isinstance(value, dict):
        return f"{field}={value}"
    rows = []
    for key, one in value.items():
        limits = one if isinstance(one, dict) else {"weight": one}
        rows.append(f"{key}: " + " ".join(f"{name}={rate}" for name, rate in limits.items()))
    return "; ".join(rows)
