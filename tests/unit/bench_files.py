"""Files of benchmark results as a test wants them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ocisbx.bench.results import (
    FORMAT,
    Header,
    LatencyRound,
    Load,
    Measured,
    Memory,
    Recorder,
    ThroughputRound,
    read_results,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ocisbx.bench.results import Line, Results

HOST = {"kernel": "6.1", "machine": "x86_64", "cpu": "A", "cpus": 2, "python": "3.11", "user": "u"}
AT: dict[str, Any] = {"at": "2026-01-01T00:00:00Z", "load": 0.5}
BARE = {"cold": "crun"}


def header(*titles: str, **more: Any) -> Header:
    launchers = [
        Measured(title=title, words="w", version="1", program="p", bare=BARE.get(title, ""))
        for title in titles
    ]
    fields: dict[str, Any] = {"host": HOST, "settings": {}, "command": ["ocisbx", "bench"], **AT}
    return Header(format=FORMAT, ocisbx="0", launchers=launchers, absent=[], **(fields | more))


def latency(columns: Mapping[str, Sequence[float]], workload: str = "true") -> list[Line]:
    """Rounds whose samples are those of the columns, in milliseconds."""
    count = min(map(len, columns.values()))
    return [
        LatencyRound(
            part="latency",
            workload=workload,
            variant="default",
            concurrency=1,
            round=number,
            wall_ms={title: column[number] for title, column in columns.items()},
            cpu_ms=dict.fromkeys(columns, 0.5),
        )
        for number in range(count)
    ]


def throughput(calls: Mapping[str, Sequence[int]], concurrency: int = 1) -> list[Line]:
    """Rounds of one second."""
    count = min(map(len, calls.values()))
    one = dict.fromkeys(calls, 1.0)
    return [
        ThroughputRound(
            part="throughput",
            workload="true",
            variant="default",
            concurrency=concurrency,
            round=number,
            calls={title: column[number] for title, column in calls.items()},
            elapsed_s=one,
            p50_ms=one,
            p99_ms=one,
        )
        for number in range(count)
    ]


def memory(pss_bytes: Mapping[str, int | None], count: int = 4) -> Line:
    return Memory(
        part="memory",
        workload="true",
        variant="default",
        concurrency=count,
        processes=dict.fromkeys(pss_bytes, 2 * count),
        pss_bytes=dict(pss_bytes),
        kernel_bytes=dict.fromkeys(pss_bytes, 4096 * count),
    )


def write(path: Path, *lines: Line, ended: bool = True) -> Path:
    with Recorder(str(path)) as recorder:
        for line in lines:
            recorder.write(line)
        if ended:
            recorder.write(Load(**AT, ended=True))
    return path


def results(path: Path, *lines: Line, ended: bool = True) -> Results:
    return read_results(str(write(path, *lines, ended=ended)))


def edited(path: Path, number: int, **changes: Any) -> None:
    """Change fields of one line of the file; None: take it out."""
    lines = path.read_text().splitlines()
    document = json.loads(lines[number]) | changes
    document = {name: value for name, value in document.items() if value is not None}
    lines[number] = json.dumps(document)
    path.write_text("\n".join(lines) + "\n")
