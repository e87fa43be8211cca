"""`ocisbx run -- true` from a shell's point of view, and what `import ocisbx` costs.

    python -m benchmarks.cli [--runtime PATH]... [--rounds N] [--keep]

For each runtime, every round times in random order
  cached    `ocisbx run -- true`, with its plan on disk;
  uncached  the same after the plan was deleted: all models are imported, the host is looked at;
  bare      the bare runtime on the same bundle (see cold.py).
What counts is the difference of the medians to bare (goals: 60 ms, 250 ms). Then whole processes:
`python -c pass` and `python -c "import ocisbx"`, and what -X importtime says (goal: 60 ms).
The program is the `ocisbx` beside this Python where it is installed, else `python -m ocisbx`.
Prints one JSON object; `--keep` writes results/cli.json and every sample to results/cli.jsonl.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.baseline import Spawner, bare_runtime
from benchmarks.common import ROOT, host_facts, keep, parse_arguments, shown, summarize, version_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Sample = dict[str, Any]

WARM_UP = 3
GOAL_CACHED_MS = 60.0
GOAL_UNCACHED_MS = 250.0
GOAL_IMPORT_MS = 60.0


def program() -> list[str]:
    script = Path(sys.executable).with_name("ocisbx")
    return [str(script)] if script.exists() else [sys.executable, "-m", "ocisbx"]


def environment(directory: str) -> dict[str, str]:
    """Ours, with plans and bytecode of this benchmark's own: a tree may not be ours to write."""
    return os.environ | {
        "XDG_CACHE_HOME": f"{directory}/cache",
        "PYTHONPYCACHEPREFIX": f"{directory}/bytecode",
        "PYTHONPATH": str(ROOT),
    }


def interleave(
    contenders: dict[str, Callable[[], float]], rounds: int, facts: dict[str, Any]
) -> list[Sample]:
    samples = []
    order = random.Random(1)  # noqa: S311 -- a repeatable draw, not a secret
    for number in range(-WARM_UP, rounds):
        for name in order.sample(sorted(contenders), len(contenders)):
            wall_s = contenders[name]()
            if number >= 0:
                sample = {"round": number, "contender": name, "wall_s": round(wall_s, 6)}
                samples.append(facts | sample)
    return samples


def column(samples: list[Sample], contender: str) -> list[float]:
    return [sample["wall_s"] for sample in samples if sample["contender"] == contender]


def measure_run(
    runtime: str, rounds: int, directory: str, plain: Spawner
) -> tuple[dict[str, Any], list[Sample]]:
    argv = [*program(), "run", "--runtime", runtime, "--", "true"]
    around = environment(directory)

    def uncached() -> float:
        for plan in Path(directory, "cache/ocisbx/plans").glob("*.json"):
            plan.unlink()
        return plain.time(argv, around).wall_s

    with (
        tempfile.TemporaryDirectory(prefix="ocisbx-cli-") as bundle,
        bare_runtime(runtime, bundle) as bare,
    ):
        contenders: dict[str, Callable[[], float]] = {
            "bare": lambda: bare().wall_s,
            "cached": lambda: plain.time(argv, around).wall_s,
            "uncached": uncached,
        }
        samples = interleave(contenders, rounds, {"runtime": shown(runtime)})
    floor_s = statistics.median(column(samples, "bare"))
    row = {
        "runtime": shown(runtime),
        "version": version_of(runtime),
        "contenders": {name: summarize(column(samples, name)) for name in contenders},
        "over_bare_ms": {
            name: round((statistics.median(column(samples, name)) - floor_s) * 1e3, 1)
            for name in ("cached", "uncached")
        },
    }
    return row, samples


def measure_import(
    rounds: int, directory: str, plain: Spawner
) -> tuple[dict[str, Any], list[Sample]]:
    around = environment(directory)

    def process(code: str) -> Callable[[], float]:
        return lambda: plain.time([sys.executable, "-c", code], around).wall_s

    contenders = {"pass": process("pass"), "import": process("import ocisbx")}
    samples = interleave(contenders, rounds, {"runtime": None})
    told = [_importtime_s(around) for _ in range(rounds)]
    row = {
        "contenders": {name: summarize(column(samples, name)) for name in contenders},
        "importtime": summarize(told),
    }
    return row, samples


def _importtime_s(around: dict[str, str]) -> float:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import ocisbx"],
        check=True,
        capture_output=True,
        text=True,
        env=around,
    )
    # import time: self [us] | cumulative | imported package
    (line,) = [text for text in ran.stderr.splitlines() if text.endswith("| ocisbx")]
    return int(line.split("|")[1]) / 1e6


def main() -> int:
    options = parse_arguments(__doc__, rounds=50)
    host = host_facts()
    rows: list[dict[str, Any]] = []
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="ocisbx-cli-") as directory, Spawner() as plain:
        for runtime in options.runtime:
            row, raw = measure_run(runtime, options.rounds, directory, plain)
            rows.append(row)
            samples += raw
        imported, raw = measure_import(options.rounds, directory, plain)
    document = {
        "benchmark": "cli",
        "host": host,
        "configuration": {
            "program": "console script" if len(program()) == 1 else "python -m ocisbx",
            "config": "the defaults",
            "rounds": options.rounds,
        },
        "rows": rows,
        "import": imported,
    }
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("cli", document, samples + raw)
    met = all(
        row["over_bare_ms"]["cached"] <= GOAL_CACHED_MS
        and row["over_bare_ms"]["uncached"] <= GOAL_UNCACHED_MS
        for row in rows
    )
    return 0 if met and imported["importtime"]["p50_ms"] <= GOAL_IMPORT_MS else 1


if __name__ == "__main__":
    raise SystemExit(main())
