"""What starting ocisbx costs: the import, and a command line whose plan is not cached.

    python -m benchmarks.startup [--runtime PATH] [--rounds N] [--keep]

Every round times in random order whole processes:
  pass      `python -c pass`;
  import    `python -c "import ocisbx"`, with what -X importtime says of it (goal: 60 ms);
  cached    `ocisbx run -- true`, with its plan on disk;
  uncached  the same after the plan was deleted: all models are imported, the host is looked at
            (goal: at most 200 ms more than cached).
`ocisbx bench` has the cached command line beside the other launchers. Prints one JSON object;
`--keep` writes results/startup.json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import (
    ROOT,
    host_facts,
    interleave,
    keep,
    parse_arguments,
    shown,
    summarize,
    timed,
)
from ocisbx import command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WARM_UP = 3
TIMEOUT_S = 60.0
GOAL_IMPORT_MS = 60.0
GOAL_UNCACHED_MS = 200.0


def environment(directory: str) -> dict[str, str]:
    """Ours, with plans and bytecode of this benchmark's own: a tree may not be ours to write."""
    return os.environ | {
        "XDG_CACHE_HOME": f"{directory}/cache",
        "PYTHONPYCACHEPREFIX": f"{directory}/bytecode",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "",
    }


def process(argv: Sequence[str], around: Mapping[str, str]) -> float:
    def run() -> None:
        done = command.run(argv, timeout_s=TIMEOUT_S, environment=around)
        assert done.status.ok, done

    return timed(run)


def uncached(argv: Sequence[str], around: Mapping[str, str]) -> float:
    for plan in Path(around["XDG_CACHE_HOME"], "ocisbx/plans").glob("*.json"):
        plan.unlink()
    return process(argv, around)


def importtime(around: Mapping[str, str]) -> float:
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
    host, runtime = host_facts(), options.runtime[0]
    with tempfile.TemporaryDirectory(prefix="ocisbx-startup-") as directory:
        around = environment(directory)
        python = [sys.executable, "-P"]
        ours = [*python, "-m", "ocisbx", "run", "--runtime", runtime, "--", "true"]
        contenders: dict[str, Callable[[], float]] = {
            "pass": partial(process, [*python, "-c", "pass"], around),
            "import": partial(process, [*python, "-c", "import ocisbx"], around),
            "importtime": partial(importtime, around),
            "cached": partial(process, ours, around),
            "uncached": partial(uncached, ours, around),
        }
        samples = interleave(contenders, options.rounds, WARM_UP)
    more_s = statistics.median(samples["uncached"]) - statistics.median(samples["cached"])
    document = {
        "benchmark": "startup",
        "host": host,
        "configuration": {"runtime": shown(runtime), "rounds": options.rounds},
        "contenders": {name: summarize(found) for name, found in samples.items()},
        "uncached_less_cached_ms": round(more_s * 1e3, 1),
    }
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("startup", document)
    import_ms = statistics.median(samples["importtime"]) * 1e3
    return 0 if import_ms <= GOAL_IMPORT_MS and more_s * 1e3 <= GOAL_UNCACHED_MS else 1


if __name__ == "__main__":
    raise SystemExit(main())
