"""Many thousand calls in one process: nothing may grow, and the last ones be as fast as the first.

    python -m benchmarks.soak [--runtime PATH] [--calls N] [--through pool|cold] [--keep]

Before and after the calls, and every so often between, counts what this process and its user hold:
descriptors, threads, processes, resident memory, every file and directory below the places of
ocisbx, cgroups. Every tenth call is followed by a posix_spawn of `true`, so that a busy machine
slows both: the drift is how the ratio of the medians changed from the first thousand calls to the
last thousand (goal: at most 1.1 times; memory: below 5 MiB; anything else: 0).
Each line of the log (stderr) tells what it holds then. Prints one JSON object; `--keep` writes
results/soak.json and results/soak.log.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.common import RESULTS, default_runtimes, host_facts, keep, shown, summarize, timed
from ocisbx import command
from ocisbx.cgroup.box import cgroup_name
from ocisbx.places import find_places
from ocisbx.pool.pool import Pool
from ocisbx.probe.cgroups import look
from ocisbx.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ocisbx.result import RunResult

    Run = Callable[[Sequence[str]], RunResult]

WARM_UP = 300
WINDOW = 1000
# Of the calls, how many are followed by one of the reference.
REFERENCE_EVERY = 10
SEEN = 40
TRUE = "/usr/bin/true"
POOL_SIZE = 8
GOAL_RSS_BYTES = 5 << 20
GOAL_DRIFT = 1.1
SETTLE_S = 20.0


def state() -> dict[str, int]:
    """What this process and its user hold now."""
    gc.collect()
    places = find_places()
    process = psutil.Process()
    return {
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "processes": len(process.children(recursive=True)),
        "rss_bytes": process.memory_info().rss,
        "cgroups": len(cgroups()),
        **{
            f"{name}_entries": sum(not is_log(one) for one in Path(path).rglob("*"))
            for name, path in (
                ("runtime", places.runtime),
                ("cache", places.cache),
                ("state", places.state),
            )
        },
    }


def is_log(path: Path) -> bool:
    """The audit log and its predecessors, of which there are never more than four."""
    return path.name.startswith("audit.jsonl")


def cgroups() -> list[str]:
    """Of ours, where they are made."""
    site = look()
    place = f"{site.mount}{site.parent}"
    names = os.listdir(place) if site.parent else []
    return [name for name in names if name.startswith(cgroup_name(""))]


@contextlib.contextmanager
def pooled(runtime: str) -> Iterator[tuple[Run, Callable[[], bool]]]:
    with Pool(size=POOL_SIZE, runtime={"names": [runtime]}, workspace="none") as pool:
        yield pool.run, lambda: pool.counts == (POOL_SIZE, 0, 0)


@contextlib.contextmanager
def cold(runtime: str) -> Iterator[tuple[Run, Callable[[], bool]]]:
    with Sandbox(runtime={"names": [runtime]}, workspace="none") as sandbox:
        yield sandbox.run, lambda: True


THROUGH = {"pool": pooled, "cold": cold}


class Soak:
    """The calls, with what was seen between them."""

    def __init__(self, run: Run, at_rest: Callable[[], bool], calls: int) -> None:
        # Made before the first count: what this benchmark itself keeps must not look like growth.
        self.ours = array("d", bytes(8 * calls))
        self.reference = array("d", bytes(8 * (calls // REFERENCE_EVERY + 1)))
        self.seen: list[dict[str, int]] = []
        self._run, self._at_rest, self._calls = run, at_rest, calls

    def call(self) -> float:
        def one() -> None:
            result = self._run([TRUE])
            assert result.exit_code == 0, result

        return timed(one)

    @staticmethod
    def spawn() -> float:
        return timed(lambda: command.run([TRUE], timeout_s=10))

    def look(self, number: int) -> None:
        """Note and log what is held, when nothing is being started."""
        deadline = time.monotonic() + SETTLE_S
        while not self._at_rest() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.seen.append({"calls": number, **state()})
        print(json.dumps(self.seen[-1]), file=sys.stderr, flush=True)

    def go(self) -> None:
        for _ in range(min(WARM_UP, self._calls)):
            self.call()
            self.spawn()
        self.look(0)
        every = max(1, self._calls // SEEN)
        for number in range(self._calls):
            self.ours[number] = self.call()
            if number % REFERENCE_EVERY == 0:
                self.reference[number // REFERENCE_EVERY] = self.spawn()
            if (number + 1) % every == 0 or number + 1 == self._calls:
                self.look(number + 1)

    def window(self, start: int, end: int) -> dict[str, Any]:
        beside = slice(start // REFERENCE_EVERY, max(1, end // REFERENCE_EVERY))
        ours, reference = self.ours[start:end], self.reference[beside]
        ratio = statistics.median(ours) / statistics.median(reference)
        return {
            "calls": summarize(ours),
            "posix_spawn": summarize(reference),
            "ratio": round(ratio, 3),
        }


def parse() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtime", default=next(iter(default_runtimes()), None))
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--through", choices=THROUGH, default="pool")
    parser.add_argument("--keep", action="store_true", help="write into benchmarks/results")
    return parser.parse_args()


def soak(options: argparse.Namespace) -> dict[str, Any]:
    with THROUGH[options.through](options.runtime) as (run, at_rest):
        found = Soak(run, at_rest, options.calls)
        found.go()
    window = min(WINDOW, options.calls)
    first = found.window(0, window)
    last = found.window(options.calls - window, options.calls)
    before = found.seen[0]
    return {
        "runtime": shown(options.runtime),
        "first": first,
        "last": last,
        "drift": round(last["ratio"] / first["ratio"], 3),
        "grown": {name: n - before[name] for name, n in found.seen[-1].items() if name != "calls"},
        "seen": found.seen,
    }


def main() -> int:
    options = parse()
    host = host_facts()
    # Places of its own: other calls of the same user come and go.
    with tempfile.TemporaryDirectory(prefix="ocisbx-soak-") as places:
        for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
            os.environ[name] = f"{places}/{name}"
            os.mkdir(os.environ[name], 0o700)
        row = soak(options)
    settings = {"calls": options.calls, "through": options.through, "window": WINDOW}
    document = {"benchmark": "soak", "host": host, "configuration": settings, "rows": [row]}
    print(
        json.dumps(document | {"rows": [{k: v for k, v in row.items() if k != "seen"}]}, indent=2)
    )
    if options.keep:
        log = "".join(json.dumps(line) + "\n" for line in row.pop("seen"))
        keep("soak", document)
        (RESULTS / "soak.log").write_text(log, encoding="utf-8")
    grown = dict(row["grown"])
    rss_bytes = grown.pop("rss_bytes")
    met = rss_bytes < GOAL_RSS_BYTES and row["drift"] <= GOAL_DRIFT and not any(grown.values())
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
