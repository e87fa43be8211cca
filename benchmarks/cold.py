"""One fresh container: `ocisbx.run(["true"])` against the bare runtime, call by call in turn.

    python -m benchmarks.cold [--runtime PATH]... [--rounds N] [--keep]

For each runtime, every round times in random order
  ocisbx  `ocisbx.run(["true"])` in this long-lived process: all of it, the result included;
  bare    the runtime started by posix_spawn on the same bundle (same config.json, root and init,
          whose report nobody asks for), by another long-lived process that sits in the namespaces
          that crun needs on hybrid cgroups, entered once;
  bwrap   where it is installed: all namespaces, /usr and /proc, no seccomp, no init of ours;
  spawn   posix_spawn of `true`, no container.
What counts is the ratio ocisbx / bare of the medians of one run (goal: 1.25), and our own part:
`timings` but for runtime_s (goal: 1.5 ms). `driver_cpu` is all that this process computed, a call.
Prints one JSON object; `--keep` writes results/cold.json and every sample to results/cold.jsonl.
"""

from __future__ import annotations

import contextlib
import random
import shlex
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Any

from benchmarks.baseline import Spawner, bare_runtime
from benchmarks.common import (
    measure_runtimes,
    ratio_of_medians,
    shown,
    summarize,
    version_of,
)
from ocisbx import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Contender = Callable[[], dict[str, float]]

WARM_UP = 5
GOAL_RATIO = 1.25
GOAL_OWN_MS = 1.5
TRUE = "/usr/bin/true"
BWRAP = shlex.split(
    "--unshare-all --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 "
    f"--proc /proc --dev /dev -- {TRUE}"
)


def through_ocisbx(runtime: str) -> dict[str, float]:
    cpu, started = time.process_time(), time.perf_counter()
    result = run(["true"], runtime={"names": [runtime]})
    elapsed_s = time.perf_counter() - started
    assert result.exit_code == 0, result
    timings = result.timings
    return {
        "wall_s": elapsed_s,
        "own_s": timings.resolve_s + timings.bundle_s + timings.cleanup_s,
        "driver_cpu_s": time.process_time() - cpu,
    }


@contextlib.contextmanager
def contenders(runtime: str, directory: str) -> Iterator[dict[str, Contender]]:
    with bare_runtime(runtime, directory) as bare, Spawner() as plain:
        found: dict[str, Contender] = {
            "ocisbx": lambda: through_ocisbx(runtime),
            "bare": lambda: {"wall_s": bare().wall_s},
            "spawn": lambda: {"wall_s": plain.time([TRUE]).wall_s},
        }
        if (bwrap := shutil.which("bwrap")) is not None:
            found["bwrap"] = lambda: {"wall_s": plain.time([bwrap, *BWRAP]).wall_s}
        yield found


def measure(runtime: str, rounds: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    samples: list[dict[str, Any]] = []
    order = random.Random(1)  # noqa: S311 -- a repeatable draw, not a secret
    with (
        tempfile.TemporaryDirectory(prefix="ocisbx-cold-") as directory,
        contenders(runtime, directory) as found,
    ):
        for number in range(-WARM_UP, rounds):
            for name in order.sample(sorted(found), len(found)):
                sample = found[name]()
                if number >= 0:
                    facts = {"runtime": shown(runtime), "round": number, "contender": name}
                    samples.append(facts | {key: round(s, 7) for key, s in sample.items()})

    def column(contender: str, key: str = "wall_s") -> list[float]:
        return [sample[key] for sample in samples if sample["contender"] == contender]

    own, cpu = column("ocisbx", "own_s"), column("ocisbx", "driver_cpu_s")
    beyond = [ours - bare for ours, bare in zip(column("ocisbx"), column("bare"), strict=True)]
    row = {
        "runtime": shown(runtime),
        "version": version_of(runtime),
        "contenders": {name: summarize(column(name)) for name in found},
        "ocisbx_over_bare": ratio_of_medians(column("ocisbx"), column("bare")),
        "own_part": summarize(own),
        "driver_cpu": summarize(cpu),
        "beyond_bare": summarize(beyond),
    }
    return row, samples


def main() -> int:
    rows = measure_runtimes("cold", __doc__, measure, "SandboxConfig()")
    met = all(
        row["ocisbx_over_bare"]["ratio"] <= GOAL_RATIO and row["own_part"]["p50_ms"] <= GOAL_OWN_MS
        for row in rows
    )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
