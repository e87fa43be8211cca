"""`linux.resources` of a config.json as the files of a cgroup v2 directory. Pure, no models.

Of what the runtime-spec took over from cgroup v1 that is said which version 2 can hold; the rest is
refused, because a limit that is left out in silence is none. The conversions are those of runc and
crun (opencontainers/cgroups, crun's cgroup-resources.c).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ocisbx.errors import BundleError
from ocisbx.quantities import expand_cpuset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# By file: the lines to be written, each with a write(2) of its own (io.max takes one disk a write).
Files = dict[str, tuple[str, ...]]

UNLIMITED = -1
NO_LIMIT = "max"
CPU_PERIOD_USEC = 100_000
REMEDY = "change linux.resources of config.json, or take it out"

# linux.resources.blockIO: the key of io.max (cgroup-v2.rst).
THROTTLES: dict[str, str] = {
    "throttleReadBpsDevice": "rbps",
    "throttleWriteBpsDevice": "wbps",
    "throttleReadIOPSDevice": "riops",
    "throttleWriteIOPSDevice": "wiops",
}
# What has no file in version 2, and the values with which nothing is lost by that.
WITHOUT_FILE: dict[str, tuple[object, ...]] = {
    "memory.useHierarchy": (True,),
    "memory.disableOOMKiller": (False,),
    "memory.checkBeforeUpdate": (True, False),
}
KNOWN: dict[str, frozenset[str]] = {
    "memory": frozenset({"limit", "reservation", "swap"}),
    "cpu": frozenset({"shares", "quota", "burst", "period", "cpus", "mems", "idle"}),
    "pids": frozenset({"limit"}),
    "blockIO": frozenset({"weight", "weightDevice", *THROTTLES}),
}
# Rules for devices are a program of the runtime's, and no file.
TABLES = frozenset({*KNOWN, "devices", "hugepageLimits", "rdma", "unified"})
# FILE of a controller; `cgroup.procs`, `cgroup.kill` and their kin are no limits.
UNIFIED_NAME = re.compile(r"(?!cgroup\.)[a-z][a-z0-9_]*(\.[A-Za-z0-9_-]+)+")


def cgroup_files(resources: Mapping[str, Any]) -> Files:
    """The files and what to write, in the order in which they have to be written.

    Raises:
        BundleError: something is limited that no file of cgroup v2 holds, or no value of it is.
    """
    for name in resources:
        if name not in TABLES and resources[name]:
            raise _no_file(name)
    for name, known in KNOWN.items():
        for key, value in _table(resources, name).items():
            if key not in known and value not in WITHOUT_FILE.get(f"{name}.{key}", ()):
                raise _no_file(f"{name}.{key}")
    found = {
        **_memory(_table(resources, "memory")),
        **_cpu(_table(resources, "cpu")),
        **_pids(_table(resources, "pids")),
        **_block_io(_table(resources, "blockIO")),
        **_hugepages(_rows(resources, "hugepageLimits")),
        **_rdma(_table(resources, "rdma")),
    }
    return found | _unified(_table(resources, "unified"))


def controllers_of(files: Iterable[str]) -> frozenset[str]:
    """The controllers that a cgroup needs to have these files: the names before the dot."""
    return frozenset(file.partition(".")[0] for file in files)


def holds(file: str, lines: Iterable[str], seen: str) -> bool:
    """Whether what a file reads (`seen`) limits at least as much as the `lines` that were written.

    The kernel rounds bytes down to pages, and shows io.max with all of its keys.
    """
    if file == "io.max":
        rows = {row.split()[0]: row.split()[1:] for row in seen.splitlines() if row.strip()}
        written = (line.split() for line in lines)
        return all(set(keys) <= set(rows.get(device, ())) for device, *keys in written)
    if file.startswith("cpuset."):
        return all(expand_cpuset(line) == expand_cpuset(seen.strip()) for line in lines)
    there = [" ".join(row.split()) for row in seen.splitlines()]
    return all(line == NO_LIMIT or line in there or _is_less(there, line) for line in lines)


def _is_less(seen: list[str], line: str) -> bool:
    return len(seen) == 1 and seen[0].isdigit() and line.isdigit() and int(seen[0]) < int(line)


# ---------------------------------------------------------------------------------- by controller
def _memory(table: Mapping[str, Any]) -> Files:
    limit, swap, low = (
        _integer(table, "memory", name) for name in ("limit", "swap", "reservation")
    )
    found: Files = {}
    # 0 is "not set" in the runtimes' own structures.
    if limit:
        found["memory.max"] = (_bytes("memory.limit", limit),)
    if low:
        found["memory.low"] = (_bytes("memory.reservation", low),)
    # The spec counts memory and swap together, version 2 swap alone.
    if swap == UNLIMITED:
        found["memory.swap.max"] = (NO_LIMIT,)
    elif swap:
        if limit is None or limit <= 0:
            raise _refusal("memory.swap", swap, "memory counts in it: it takes memory.limit too")
        if swap < limit:
            raise _refusal("memory.swap", swap, f"memory counts in it, and has {limit} alone")
        found["memory.swap.max"] = (str(swap - limit),)
    return found


def _cpu(table: Mapping[str, Any]) -> Files:
    number = {
        name: _integer(table, "cpu", name)
        for name in ("shares", "quota", "period", "burst", "idle")
    }
    found: Files = {}
    if number["shares"]:
        found["cpu.weight"] = (str(weight_of_shares(number["shares"])),)
    if number["idle"] is not None:
        found["cpu.idle"] = (str(number["idle"]),)
    if number["quota"] or number["period"]:
        quota = number["quota"] or UNLIMITED
        text = NO_LIMIT if quota < 0 else str(quota)
        found["cpu.max"] = (f"{text} {number['period'] or CPU_PERIOD_USEC}",)
    if number["burst"] is not None:
        found["cpu.max.burst"] = (str(number["burst"]),)
    for name in ("cpus", "mems"):
        if table.get(name):
            found[f"cpuset.{name}"] = (_line(f"cpu.{name}", table[name]),)
    return found


def weight_of_shares(shares: int) -> int:
    """cpu.shares (2 to 262144, usually 1024) as cpu.weight (1 to 10000, usually 100).

    The curve goes through both ends and both defaults; runc since 1.3.2 and crun since 1.24 have
    it, those before a straight line on which 1024 is 39.
    """
    shares = min(max(shares, 2), 262_144)
    power = math.log2(shares)
    return min(10_000, math.ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34)))


def _pids(table: Mapping[str, Any]) -> Files:
    limit = _integer(table, "pids", "limit")
    if limit is None:
        return {}
    if limit == 0:
        raise _refusal(
            "pids.limit", 0, "to some runtimes it is no limit, to others it is none left"
        )
    return {"pids.max": (_bytes("pids.limit", limit),)}


def _block_io(table: Mapping[str, Any]) -> Files:
    weights = []
    if table.get("weight"):
        weights.append(f"default {_io_weight(table, 'blockIO')}")
    where = "blockIO.weightDevice"
    for row in _rows(table, where):
        _only(row, where, {"major", "minor", "weight"})
        weights.append(f"{_device(row, where)} {_io_weight(row, where)}")
    limits: dict[str, dict[str, int]] = {}
    for name, key in THROTTLES.items():
        where = f"blockIO.{name}"
        for row in _rows(table, where):
            _only(row, where, {"major", "minor", "rate"})
            rate = _integer(row, where, "rate")
            if not rate or rate < 0:
                raise _refusal(f"{where}.rate", rate, "a limit is above 0")
            limits.setdefault(_device(row, where), {})[key] = rate
    found: Files = {}
    if weights:
        found["io.weight"] = tuple(weights)
    if limits:
        found["io.max"] = tuple(
            f"{device} {' '.join(f'{key}={rate}' for key, rate in row.items())}"
            for device, row in limits.items()
        )
    return found


def _io_weight(table: Mapping[str, Any], where: str) -> int:
    """A weight of version 1 (10 to 1000) as one of version 2 (1 to 10000)."""
    weight = _integer(table, where, "weight")
    if weight is None or not 10 <= weight <= 1000:
        raise _refusal(f"{where}.weight", weight, "expected 10 to 1000")
    return 1 + (weight - 10) * 9999 // 990


def _hugepages(rows: Iterable[Mapping[str, Any]]) -> Files:
    found: Files = {}
    for row in rows:
        _only(row, "hugepageLimits", {"pageSize", "limit"})
        size, limit = row.get("pageSize"), _integer(row, "hugepageLimits", "limit")
        if not re.fullmatch(r"[1-9][0-9]*[KMG]B", str(size)) or limit is None:
            raise _refusal("hugepageLimits", dict(row), "expected pageSize, such as 2MB, and limit")
        found[f"hugetlb.{size}.max"] = (str(limit),)
    return found


def _rdma(table: Mapping[str, Any]) -> Files:
    lines = []
    for device, row in table.items():
        words = {"hcaHandles": "hca_handle", "hcaObjects": "hca_object"}
        _only(row, "rdma", set(words))
        pairs = [f"{words[key]}={_integer(row, 'rdma', key)}" for key in words if key in row]
        if pairs:
            lines.append(f"{_line('rdma', device)} {' '.join(pairs)}")
    return {"rdma.max": tuple(lines)} if lines else {}


def _unified(table: Mapping[str, Any]) -> Files:
    found: Files = {}
    for name, text in table.items():
        if not UNIFIED_NAME.fullmatch(name):
            raise _refusal("unified", name, "expected a controller's file, such as memory.high")
        if not isinstance(text, str) or not text.strip():
            raise _refusal(f"unified.{name}", text, "expected what is written to the file, as text")
        found[name] = tuple(line for line in text.splitlines() if line.strip())
    return found


# ------------------------------------------------------------------------------------------ values
def _table(resources: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = resources.get(name)
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise _refusal(name, table, "expected an object")
    return table


def _rows(table: Mapping[str, Any], where: str) -> Sequence[Any]:
    """The list that the table has under the last name of `where`."""
    rows = table.get(where.rpartition(".")[2])
    if rows is None:
        return ()
    if not isinstance(rows, list):
        raise _refusal(where, rows, "expected a list")
    return rows


def _integer(table: Mapping[str, Any], where: str, name: str) -> int | None:
    value = table.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(f"{where}.{name}", value, "expected an integer")
    return value


def _bytes(where: str, value: int) -> str:
    if value < UNLIMITED:
        raise _refusal(where, value, "expected -1, which is no limit, or more")
    return NO_LIMIT if value == UNLIMITED else str(value)


def _line(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise _refusal(where, value, "expected one line of text")
    return value


def _device(row: Mapping[str, Any], where: str) -> str:
    numbers = [_integer(row, where, name) for name in ("major", "minor")]
    if None in numbers:
        raise _refusal(where, dict(row), "expected major and minor")
    return ":".join(map(str, numbers))


def _only(row: object, where: str, known: set[str]) -> None:
    if not isinstance(row, dict):
        raise _refusal(where, row, "expected an object")
    for key in row:
        if key not in known:
            raise _no_file(f"{where}.{key}")


def _refusal(where: str, value: object, why: str) -> BundleError:
    what = f"linux.resources.{where}: {str(value)[:80]!r} cannot be enforced"
    return BundleError(what, why=why, remedy=REMEDY)


def _no_file(where: str) -> BundleError:
    return BundleError(
        f"linux.resources.{where} cannot be enforced",
        why="cgroup v2 has no file for it",
        remedy=REMEDY,
    )
