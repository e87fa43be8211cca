"""What a file of results says: a document for programs, tables for people."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.bench.launchers import REFERENCE
from ocisbx.bench.results import Memory
from ocisbx.bench.statistics import Interval, Ratios, p99, summarize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ocisbx.bench.results import Key, Results

# Below this many rounds an interval is a guess.
FEW_ROUNDS = 20
KIB = 1 << 10


class Table(NamedTuple):
    """`columns`: titles; `rows` hold text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def document(results: Results) -> dict[str, Any]:
    """Everything, as `--json` prints it."""
    header = results.header
    return {
        "host": header.host,
        "at": header.at,
        "ocisbx": header.ocisbx,
        "command": header.command,
        "load": {"least": min(results.loads), "most": max(results.loads)},
        "complete": results.complete,
        "launchers": [one.model_dump() for one in header.launchers],
        "absent": [one.model_dump() for one in header.absent],
        "failures": [one.model_dump() for one in results.failures],
        "sections": [section(results, key) for key in results.sections],
    }


def section(results: Results, key: Key) -> dict[str, Any]:
    """One section: its name, and a row for each launcher that went through it."""
    part, workload, variant, concurrency = key
    rows = {"latency": _latency, "throughput": _throughput}.get(part, _memory)(results, key)
    named = {"part": part, "workload": workload, "variant": variant, "concurrency": concurrency}
    return {**named, "rounds": len(results.sections[key]), "rows": rows}


def _bare_of(results: Results) -> Mapping[str, str]:
    return {one.title: one.bare for one in results.header.launchers}


def _column(results: Results, key: Key, field: str, title: str) -> list[float]:
    found = results.column(key, field, title)
    assert found is not None
    return found


def _latency(results: Results, key: Key) -> list[dict[str, Any]]:
    bare_of, titles = _bare_of(results), results.launchers_of(key)
    base = _column(results, key, "wall_ms", REFERENCE)
    to_base, tail = Ratios(base), Ratios(base, above=p99)
    over = {
        bare: Ratios(_column(results, key, "wall_ms", bare))
        for bare in {bare_of[title] for title in titles} & set(titles)
    }
    rows = []
    for title in titles:
        wall = _column(results, key, "wall_ms", title)
        found = summarize(wall)
        own = results.column(key, "own_ms", title)
        bare = over.get(bare_of[title])
        rows.append({
            "launcher": title,
            "p50_ms": round(found.p50, 3),
            "p90_ms": round(found.p90, 3),
            "p99_ms": round(found.p99, 3),
            "min_ms": round(found.least, 3),
            "cpu_ms": round(median(_column(results, key, "cpu_ms", title)), 3),
            "own_ms": None if own is None else round(median(own), 3),
            "ratio": _plain(to_base.of(wall)),
            "p99_ratio": _plain(tail.of(wall)),
            "bare_ratio": None if bare is None else _plain(bare.of(wall)),
        })  # fmt: skip
    return rows


def _plain(interval: Interval) -> dict[str, float]:
    found = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: round(value, 4) for name, value in found.items()}


def rates(results: Results, key: Key, title: str) -> list[float]:
    """Calls a second in each round."""
    calls = _column(results, key, "calls", title)
    elapsed_s = _column(results, key, "elapsed_s", title)
    return [n / s for n, s in zip(calls, elapsed_s, strict=True)]


def _throughput(results: Results, key: Key) -> list[dict[str, Any]]:
    bare_of, titles = _bare_of(results), results.launchers_of(key)
    to_base = Ratios(rates(results, key, REFERENCE))
    rows = []
    for title in titles:
        found = rates(results, key, title)
        bare = bare_of[title]
        over = Ratios(rates(results, key, bare)).of(found) if bare in titles else None
        rows.append({
            "launcher": title,
            "calls_per_s": round(median(found), 2),
            "p50_ms": round(median(_column(results, key, "p50_ms", title)), 3),
            "p99_ms": round(median(_column(results, key, "p99_ms", title)), 3),
            "ratio": _plain(to_base.of(found)),
            "bare_ratio": None if over is None else _plain(over),
        })  # fmt: skip
    return rows


def _memory(results: Results, key: Key) -> list[dict[str, Any]]:
    count = key[3]
    rows = []
    for sample in results.sections[key]:
        assert isinstance(sample, Memory)
        for title, processes in sample.processes.items():
            pss = sample.pss_bytes[title]
            rows.append({
                "launcher": title,
                "processes": round(processes / count, 2),
                "pss_bytes": None if pss is None else pss // count,
                "kernel_bytes": sample.kernel_bytes[title] // count,
            })  # fmt: skip
    return rows


# ------------------------------------------------------------------------------ tables for people


def tables(found: Mapping[str, Any]) -> list[Table]:
    """The sections of a document; throughputs of several concurrencies stand side by side."""
    shown = [_table(one) for one in found["sections"] if one["part"] != "throughput"]
    batches = [one for one in found["sections"] if one["part"] == "throughput"]
    return [*shown, *_rates_table(batches)]


def _table(one: Mapping[str, Any]) -> Table:
    return _latency_table(one) if one["part"] == "latency" else _memory_table(one)


def _latency_table(one: Mapping[str, Any]) -> Table:
    variant = "" if one["variant"] == "default" else f", {one['variant']}"
    few = " (few: a guess)" if one["rounds"] < FEW_ROUNDS else ""
    has_bare = any(row["bare_ratio"] for row in one["rows"])
    bare = ("x bare runtime",) if has_bare else ()
    rows = [
        (
            row["launcher"],
            *(number(row[name]) for name in ("p50_ms", "p90_ms", "p99_ms", "min_ms", "cpu_ms")),
            ratio(row["ratio"]),
            number(row["p99_ratio"]["value"]),
            *([ratio(row["bare_ratio"])] if has_bare else []),
        )
        for row in one["rows"]
    ]
    columns = ("launcher", "p50 ms", "p90", "p99", "min", "CPU", "x spawn", "p99 x spawn", *bare)
    return Table(f"{one['workload']}{variant}: {one['rounds']} rounds{few}", columns, rows)


def _memory_table(one: Mapping[str, Any]) -> Table:
    rows = [
        (
            row["launcher"],
            number(row["processes"]),
            "-" if row["pss_bytes"] is None else number(row["pss_bytes"] / KIB),
            number(row["kernel_bytes"] / KIB),
        )
        for row in one["rows"]
    ]
    columns = ("launcher", "processes", "PSS KiB", "kernel KiB")
    return Table(f"an idle container: one of {one['concurrency']}", columns, rows)


def _rates_table(batches: Sequence[Mapping[str, Any]]) -> list[Table]:
    if not batches:
        return []
    found = {one["concurrency"]: {row["launcher"]: row for row in one["rows"]} for one in batches}
    titles = dict.fromkeys(title for rows in found.values() for title in rows)
    rows = []
    for title in titles:
        cells = [rows_of.get(title) for rows_of in found.values()]
        rates_shown = ["-" if cell is None else number(cell["calls_per_s"]) for cell in cells]
        bare = [cell["bare_ratio"]["value"] for cell in cells if cell and cell["bare_ratio"]]
        over = " ".join(f"{value:.2f}" for value in bare) or "-"
        rows.append((title, *rates_shown, over))
    columns = ("launcher", *(f"{n} at once" for n in found), "x bare runtime")
    return [Table("calls a second, true", columns, rows)]


def number(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "-"
    value, low, high = (number(found[name]) for name in ("value", "low", "high"))
    return f"{value} ({low}-{high})"
