"""What every benchmark here shares: facts about the host, statistics, files of results.

They are run as modules from the top of the tree, so that this tree is what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocisbx.bench import statistics
from ocisbx.probe.machine import load_now, machine_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def host_facts() -> dict[str, Any]:
    """Where a result comes from; `load` is the one-minute average when the benchmark began."""
    return machine_facts() | load_now()


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


def default_runtimes() -> list[str]:
    """The crun and the runc of the PATH."""
    return [path for name in ("crun", "runc") if (path := shutil.which(name)) is not None]


def summarize(samples_s: Iterable[float]) -> dict[str, float]:
    """p50, p90, p99, the fastest, in milliseconds."""
    found = statistics.summarize(list(samples_s))
    values = {"p50": found.p50, "p90": found.p90, "p99": found.p99, "min": found.least}
    return {"n": found.n, **{f"{name}_ms": round(s * 1e3, 3) for name, s in values.items()}}


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def interleave(
    contenders: Mapping[str, Callable[[], float]], rounds: int, warm_up: int
) -> dict[str, list[float]]:
    """Seconds of each contender, timed in random order in every round."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    order = random.Random(1)  # noqa: S311 -- a repeatable draw, not a secret
    for number in range(-warm_up, rounds):
        for name in order.sample(sorted(contenders), len(contenders)):
            wall_s = contenders[name]()
            if number >= 0:
                samples[name].append(wall_s)
    return samples


def keep(name: str, document: dict[str, Any]) -> None:
    """Write results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(document, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
