"""What our seccomp profile costs a start: the bare runtime with it and without it, in turn.

    python -m benchmarks.seccomp [--runtime PATH]... [--rounds N] [--keep]

For each runtime, every round runs in random order the bundle of SandboxConfig() with `true`, with
  none     no filter;
  floor    a filter of one rule, from a file: what any filter costs this runtime and kernel;
  default  our profile. crun keeps what it compiled in its state directory, as ocisbx lets it keep
           it for all containers of a profile, so after the first round it loads what it kept.
What counts is default less none, of the fastest calls (goal: 2 ms for crun, 6 ms for runc): others
at work on the machine only ever add. `cpu` is the processor time of the runtime and all that it
waited for, of which waiting for a processor is no part. Prints one JSON object; `--keep` writes
results/seccomp.json and every sample to results/seccomp.jsonl.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.baseline import bare_runtime
from benchmarks.common import (
    measure_runtimes,
    quantile,
    shown,
    summarize,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

WARM_UP = 5
GOAL_MS = {"crun": 2.0, "runc": 6.0}
FLOOR = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["reboot"], "action": "SCMP_ACT_ERRNO"}],
}


def measure(runtime: str, rounds: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    samples: list[dict[str, Any]] = []
    order = random.Random(1)  # noqa: S311 -- a repeatable draw, not a secret
    with (
        tempfile.TemporaryDirectory(prefix="ocisbx-seccomp-") as directory,
        contextlib.ExitStack() as stack,
    ):
        floor = Path(directory, "floor.json")
        floor.write_text(json.dumps(FLOOR), encoding="utf-8")
        found = {}
        for name, seccomp in (("none", "none"), ("floor", str(floor)), ("default", "default")):
            place = Path(directory, name)
            place.mkdir()
            found[name] = stack.enter_context(
                bare_runtime(runtime, str(place), isolation={"seccomp": seccomp})
            )
        for number in range(-WARM_UP, rounds):
            for name in order.sample(sorted(found), len(found)):
                ended = found[name]()
                if number >= 0:
                    facts = {"runtime": shown(runtime), "round": number, "profile": name}
                    samples.append(facts | {k: round(s, 7) for k, s in ended._asdict().items()})

    def column(profile: str, key: str) -> list[float]:
        return [sample[key] for sample in samples if sample["profile"] == profile]

    row: dict[str, Any] = {"runtime": shown(runtime), "version": version_of(runtime)}
    for key in ("wall", "cpu"):
        columns = {name: column(name, f"{key}_s") for name in found}
        row[key] = {name: summarize(values) for name, values in columns.items()}
        for name in ("floor", "default"):
            row[f"{key}_{name}_less_none"] = differences(columns[name], columns["none"])
    return row, samples


def differences(with_it: Sequence[float], without: Sequence[float]) -> dict[str, float]:
    """In milliseconds: of the fastest, of the tenth and the half, and of each round's pair."""
    one, other = sorted(with_it), sorted(without)
    pairs = [a - b for a, b in zip(with_it, without, strict=True)]
    found = {
        "min_ms": one[0] - other[0],
        "p10_ms": quantile(one, 0.1) - quantile(other, 0.1),
        "p50_ms": quantile(one, 0.5) - quantile(other, 0.5),
        "pairs_p50_ms": statistics.median(pairs),
    }
    return {name: round(value * 1e3, 3) for name, value in found.items()}


def main() -> int:
    rows = measure_runtimes("seccomp", __doc__, measure, "SandboxConfig(isolation.seccomp)")
    met = all(
        row["wall_default_less_none"]["min_ms"] <= goal
        for row in rows
        for name, goal in GOAL_MS.items()
        if row["version"].startswith(name)
    )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
