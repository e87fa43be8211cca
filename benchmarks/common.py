"""What every benchmark here shares: facts about the host, statistics, files of results.

They are run as modules from the top of the tree, so that this tree is what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

RESAMPLES = 2000
CONFIDENCE = 0.95


def host_facts() -> dict[str, Any]:
    """Where a result comes from; `load` is the one-minute average when the benchmark began."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "uid": "root" if os.geteuid() == 0 else "unprivileged",
        "load": round(os.getloadavg()[0], 2),
        "measured_at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def parse_arguments(description: str | None, **defaults: int) -> argparse.Namespace:
    """--runtime (repeatable), --keep, and an option for each default."""
    assert description is not None
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--runtime", action="append", help="absolute path; repeatable")
    parser.add_argument("--keep", action="store_true", help="write into benchmarks/results")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    options.runtime = options.runtime or default_runtimes()
    return options


def shown(path: str) -> str:
    """A path for a result: from the top of the tree, where it lies in the tree."""
    return os.path.relpath(path, ROOT) if path.startswith(f"{ROOT}/") else path


def version_of(program: str) -> str:
    """The first line of `PROGRAM --version`."""
    ran = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    return ran.stdout.splitlines()[0]


def default_runtimes() -> list[str]:
    """The crun and the runc of the PATH."""
    return [path for name in ("crun", "runc") if (path := shutil.which(name)) is not None]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summarize(samples_s: Iterable[float]) -> dict[str, float]:
    """p50, p90, p99, the fastest, in milliseconds."""
    ordered = sorted(samples_s)
    shown = {f"p{share}_ms": quantile(ordered, share / 100) for share in (50, 90, 99)}
    return {
        "n": len(ordered),
        **{name: round(value * 1e3, 3) for name, value in shown.items()},
        "min_ms": round(ordered[0] * 1e3, 3),
    }


def ratio_of_medians(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """The ratio of medians of interleaved samples, with its bootstrap interval.

    Rounds are drawn, not samples: what disturbed a round disturbed both sides of it.
    """
    generator = random.Random(1)  # noqa: S311 -- a repeatable draw, not a secret
    rounds = range(len(ours))
    ratios = []
    for _ in range(RESAMPLES):
        drawn = generator.choices(rounds, k=len(ours))
        ratios.append(
            statistics.median(ours[i] for i in drawn) / statistics.median(theirs[i] for i in drawn)
        )
    ratios.sort()
    tail = (1 - CONFIDENCE) / 2
    return {
        "ratio": round(statistics.median(ours) / statistics.median(theirs), 3),
        "low": round(quantile(ratios, tail), 3),
        "high": round(quantile(ratios, 1 - tail), 3),
        "of_minima": round(min(ours) / min(theirs), 3),
    }


def keep(
    name: str, document: dict[str, Any], samples: Iterable[dict[str, Any]] | None = None
) -> None:
    """Write results/NAME.json, and every sample into results/NAME.jsonl."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(document, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
    if samples is not None:
        lines = "".join(json.dumps(sample) + "\n" for sample in samples)
        (RESULTS / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def measure_runtimes(
    name: str,
    description: str | None,
    measure: Callable[[str, int], tuple[dict[str, Any], list[dict[str, Any]]]],
    config: str,
) -> list[dict[str, Any]]:
    """Measure each runtime in turn, print (and keep) the document, and return its rows."""
    options = parse_arguments(description, rounds=200)
    document: dict[str, Any] = {
        "benchmark": name,
        "host": host_facts(),
        "configuration": {"config": config, "rounds": options.rounds},
        "rows": [],
    }
    samples: list[dict[str, Any]] = []
    for runtime in options.runtime:
        row, raw = measure(runtime, options.rounds)
        document["rows"].append(row)
        samples += raw
        print(json.dumps(row), file=sys.stderr)
    print(json.dumps(document, indent=2))
    if options.keep:
        keep(name, document, samples)
    rows: list[dict[str, Any]] = document["rows"]
    return rows
