"""The page of the newest benchmark and README's table, made from the samples that are kept.

`tools/bench-page` measures, keeps the samples and draws the plot; this part is a generator.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.bench.markdown import page, rows
from ocisbx.bench.report import document, number, ratio
from ocisbx.bench.results import read_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "benchmarks" / "results" / "bench.jsonl"
PAGE, PLOT = "benchmarks/RESULTS.md", "RESULTS.svg"
BEGIN = "<!-- numbers: tools/generate makes what follows from benchmarks/results/bench.jsonl -->"
END = "<!-- end of numbers -->"
MIB = 1 << 20
SHOWN = ("true", "python")

INTRODUCTION = """\
# Launchers side by side

Generated from [results/bench.jsonl](results/bench.jsonl), which holds every sample
(`ocisbx bench show`, `ocisbx bench compare`). To measure anew, as root on a quiet machine:

    tools/bench-page -u USER

"""

Row = dict[str, Any]


class Goal(NamedTuple):
    """A line of what is to be reached: `value` of a launcher's row (None: not measured)."""

    what: str
    part: str
    workload: str
    launcher: str
    value: Callable[[Row, dict[str, Row]], float | None]
    bound: float
    at_least: bool = False


def _of(name: str) -> Callable[[Row, dict[str, Row]], float | None]:
    return lambda row, _: None if row[name] is None else row[name]["value"]


def _to(other: str) -> Callable[[Row, dict[str, Row]], float | None]:
    return lambda row, beside: row["p50_ms"] / beside[other]["p50_ms"] if other in beside else None


def _held(row: Row, _: dict[str, Row]) -> float | None:
    pss = row["pss_bytes"]
    return None if pss is None else (pss + row["kernel_bytes"]) / MIB


GOALS: tuple[Goal, ...] = (
    *(
        Goal(f"pooled call, {part}", "latency", "true", f"ocisbx pool, {name}", _of(field), bound)
        for name, part, field, bound in (
            ("crun", "p50 x spawn", "ratio", 1.5),
            ("crun", "p99 x spawn", "p99_ratio", 10),
            ("runc", "p50 x spawn", "ratio", 1.5),
            ("runc", "p99 x spawn", "p99_ratio", 10),
            ("runsc", "p50 x spawn", "ratio", 16),
        )
    ),
    *(
        Goal("warm Python, x spawn", "latency", "python", f"ocisbx warm, {name}", _of("ratio"), 0.2)
        for name in ("crun", "runc", "runsc")
    ),
    *(
        Goal(
            "session command, x spawn",
            "latency",
            "true",
            f"ocisbx session, {name}",
            _of("ratio"),
            1.5,
        )
        for name in ("crun", "runc")
    ),
    *(
        Goal(
            "cold, x bare runtime",
            "latency",
            "true",
            f"ocisbx cold, {name}",
            _of("bare_ratio"),
            1.05,
        )
        for name in ("crun", "runc", "runsc")
    ),
    Goal("cold, x bwrap", "latency", "true", "ocisbx cold, crun", _to("bwrap"), 1.6),
    *(
        Goal(
            "sustained calls, x bare runtime",
            "throughput",
            "true",
            f"ocisbx pool, {name}",
            _of("bare_ratio"),
            0.8,
            at_least=True,
        )
        for name in ("crun", "runc")
    ),
    *(
        Goal("idle pooled container, MiB", "memory", "true", f"ocisbx pool, {name}", _held, bound)
        for name, bound in (("crun", 2), ("runc", 4))
    ),
)


@cache
def kept() -> dict[str, Any]:
    return document(read_results(str(SAMPLES)))


def generate(root: Path) -> dict[Path, str]:
    """The page, and README with its table."""
    found = kept()
    goals = [
        "## Goals",
        "",
        *rows(("what", "launcher", "goal", "measured"), list(_goals(found))),
        "",
    ]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(_table(found))
    return {
        root / PAGE: INTRODUCTION + page(found, PLOT) + "\n" + "\n".join(goals),
        root / "README.md": f"{before}{BEGIN}\n{table}\n{END}{after}",
    }


def _sections(found: dict[str, Any], part: str, workload: str) -> Iterator[dict[str, Any]]:
    for one in found["sections"]:
        if (one["part"], one["workload"], one["variant"]) == (part, workload, "default"):
            yield one


def _goals(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for goal in GOALS:
        for section in _sections(found, goal.part, goal.workload):
            beside = {row["launcher"]: row for row in section["rows"]}
            many = f", {section['concurrency']} at once" if goal.part == "throughput" else ""
            for title, row in beside.items():
                value = goal.value(row, beside) if title.startswith(goal.launcher) else None
                if value is None:
                    continue
                met = value >= goal.bound if goal.at_least else value <= goal.bound
                sign = "at least" if goal.at_least else "at most"
                shown = f"{value:.2f}" if met else f"**{value:.2f}** (missed)"
                yield goal.what + many, title, f"{sign} {goal.bound:g}", shown


def _table(found: dict[str, Any]) -> Iterator[str]:
    """One line a launcher: the workloads that everybody asks for."""
    columns: dict[str, dict[str, Row]] = {
        workload: {
            row["launcher"]: row
            for one in _sections(found, "latency", workload)
            for row in one["rows"]
        }
        for workload in SHOWN
    }
    titles = [
        "launcher",
        *(f"`{name}`, {what}" for name in SHOWN for what in ("ms", "x posix_spawn")),
    ]
    cells = []
    for title in dict.fromkeys(title for column in columns.values() for title in column):
        line = [title]
        for column in columns.values():
            row = column.get(title)
            line += ["-", "-"] if row is None else [number(row["p50_ms"]), ratio(row["ratio"])]
        cells.append(line)
    yield ""
    yield from rows(titles, cells)
    yield ""
