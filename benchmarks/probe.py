"""What choosing a runtime by trying it costs: remembered, and tried anew.

    python -m benchmarks.probe [--runtime PATH]... [--rounds N] [--keep]

Every round times in random order
  load    a process that remembers: the file of all runtimes is read and checked, and each runtime
          is asked for its version and for how it did;
  lookup  the same in a process that has read it;
  trial   for each runtime: the host is looked at, and a container runs the self-test (gVisor's
          platforms are tried in their order).
What counts is `load` (goal: 1 ms for all runtimes together). The memory is one of this benchmark's
own. Prints one JSON object; `--keep` writes results/probe.json.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any

from benchmarks.common import (
    host_facts,
    interleave,
    keep,
    parse_arguments,
    shown,
    summarize,
    timed,
)
from ocisbx.backends.trial import Trier
from ocisbx.places import find_places
from ocisbx.probe.remembered import CACHE_FILE, RuntimeMemory, runtime_memory
from ocisbx.probe.runtimes import find_runtimes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ocisbx.host import RuntimeBinary

WARM_UP = 2
GOAL_MS = 1.0


def ask(memory: RuntimeMemory, runtimes: Sequence[RuntimeBinary]) -> None:
    for runtime in runtimes:
        assert memory.version(runtime.path) is not None, runtime
        assert memory.trial(runtime.path, runtime.platform) is not None, runtime


def load(path: str, runtimes: Sequence[RuntimeBinary]) -> None:
    ask(RuntimeMemory(path), runtimes)


def attempt(runtime: RuntimeBinary) -> RuntimeBinary:
    trial = Trier(again=True).try_runtime(runtime)
    assert trial.works, trial
    return trial.runtime


def measure(paths: Sequence[str], rounds: int) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of each contender, and facts about what was measured."""
    found = [next(r for r in find_runtimes((path,)) if r.path == path) for path in paths]
    tried = [attempt(runtime) for runtime in found]
    file = f"{find_places().cache}/{CACHE_FILE}"
    actions: dict[str, Callable[[], object]] = {
        "load": functools.partial(load, file, tried),
        "lookup": functools.partial(ask, runtime_memory(), tried),
        **{f"trial {shown(r.path)}": functools.partial(attempt, r) for r in found},
    }
    contenders = {name: functools.partial(timed, action) for name, action in actions.items()}
    samples = interleave(contenders, rounds, WARM_UP)
    versions = {shown(r.path): f"{r.name} {r.version} {r.platform or ''}".strip() for r in tried}
    return samples, {"runtimes": versions, "memory_bytes": os.stat(file).st_size}


def main() -> int:
    options = parse_arguments(__doc__, rounds=50)
    host = host_facts()
    with tempfile.TemporaryDirectory(prefix="ocisbx-probe-") as directory:
        os.environ["XDG_CACHE_HOME"] = directory
        samples, facts = measure(options.runtime, options.rounds)
    document = {
        "benchmark": "probe",
        "host": host,
        "configuration": {"rounds": options.rounds, **facts},
        "contenders": {name: summarize(found) for name, found in samples.items()},
    }
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("probe", document)
    return 0 if summarize(samples["load"])["p50_ms"] <= GOAL_MS else 1


if __name__ == "__main__":
    raise SystemExit(main())
