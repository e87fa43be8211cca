"""Thousands of calls in one process: nothing may grow, and the last ones be as fast as the first.

    python -m benchmarks.soak [--runtime PATH] [--calls N] [--keep]

After a warm-up, counts descriptors, threads, resident memory and every file and directory below
the places of ocisbx, before and after the calls. Each call is followed by one of the bare runtime
(see cold.py), so that a busy host slows both: the drift is how the ratio of the medians of a
hundred calls changed from the first hundred to the last (goal: within 10 %).
Prints one JSON object; `--keep` writes results/soak.json.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import tempfile
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.baseline import bare_runtime
from benchmarks.common import host_facts, keep, parse_arguments, shown, summarize, version_of
from ocisbx import run
from ocisbx.places import find_places

if TYPE_CHECKING:
    from collections.abc import Sequence

WARM_UP = 300
WINDOW = 100
SEEN_EVERY = 500
GOAL_RSS_BYTES = 5 << 20
GOAL_DRIFT = 0.10


def state() -> dict[str, int]:
    """What this process and its user hold now."""
    gc.collect()
    places = find_places()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "rss_bytes": _resident_bytes(),
        "children": len(Path("/proc/thread-self/children").read_text(encoding="ascii").split()),
        **{
            f"{name}_entries": sum(1 for _ in Path(path).rglob("*"))
            for name, path in (
                ("runtime", places.runtime),
                ("cache", places.cache),
                ("state", places.state),
            )
        },
    }


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def call(runtime: str) -> float:
    started = time.perf_counter()
    result = run(["true"], runtime={"names": [runtime]})
    elapsed_s = time.perf_counter() - started
    assert result.exit_code == 0, result
    return elapsed_s


def soak(runtime: str, calls: int) -> dict[str, Any]:
    # Made before the first count: what this benchmark itself keeps must not look like growth.
    ours, bare = array("d", bytes(8 * calls)), array("d", bytes(8 * calls))
    seen: list[dict[str, int]] = []
    with (
        tempfile.TemporaryDirectory(prefix="ocisbx-soak-") as directory,
        bare_runtime(runtime, directory) as time_bare,
    ):
        for _ in range(WARM_UP):
            call(runtime)
            time_bare()
        seen.append({"calls": 0, **state()})
        for number in range(1, calls + 1):
            ours[number - 1] = call(runtime)
            bare[number - 1] = time_bare().wall_s
            if number % SEEN_EVERY == 0 or number == calls:
                seen.append({"calls": number, **state()})
    grown = {name: value - seen[0][name] for name, value in seen[-1].items() if name != "calls"}
    return {
        "runtime": shown(runtime),
        "version": version_of(runtime),
        "first": _window(ours[:WINDOW], bare[:WINDOW]),
        "last": _window(ours[-WINDOW:], bare[-WINDOW:]),
        "grown": grown,
        "seen": seen,
    }


def _window(ours: Sequence[float], bare: Sequence[float]) -> dict[str, Any]:
    ratio = statistics.median(ours) / statistics.median(bare)
    return {"ocisbx": summarize(ours), "bare": summarize(bare), "ratio": round(ratio, 3)}


def main() -> int:
    options = parse_arguments(__doc__, calls=5000)
    host = host_facts()
    # Places of its own: other calls of the same user come and go.
    with tempfile.TemporaryDirectory(prefix="ocisbx-soak-") as places:
        for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
            os.environ[name] = f"{places}/{name}"
            os.mkdir(os.environ[name], 0o700)
        row = soak(options.runtime[0], options.calls)
    row["drift"] = round(row["last"]["ratio"] / row["first"]["ratio"] - 1, 3)
    document = {
        "benchmark": "soak",
        "host": host,
        "configuration": {
            "config": "SandboxConfig()",
            "calls": options.calls,
            "warm_up": WARM_UP,
            "window": WINDOW,
        },
        "rows": [row],
    }
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("soak", document)
    grown = dict(row["grown"])
    rss_bytes = grown.pop("rss_bytes")
    met = rss_bytes < GOAL_RSS_BYTES and row["drift"] <= GOAL_DRIFT and not any(grown.values())
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
