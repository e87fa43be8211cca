"""What a cgroup of its own costs a sandbox, and how soon all in it are dead.

    python -m benchmarks.cgroup [--rounds N] [--kills N] [--processes N] [--keep]

Every round times
  create  the directories P and P/c beside our own cgroup;
  read    all counters of P;
  remove  P/c as a runtime does, and P with `remove_cgroup`;
  total   these three (goal: p50 of 1 ms),
in turn with an empty cgroup and with one in which a process has lived and ended. Then, in turn, a
tree of processes, of which many are stopped and many have lost their parent, is killed by
  file    cgroup.kill (goal: p50 of 250 ms), and
  pid     pidfds, as before Linux 5.14,
timed from the call to the `populated 0` that `wait_empty` sees; `cpu` is the processor time that
the members' exits took, which a busy machine gives them late. It has to be started in a delegated
cgroup, as `systemd-run --user --scope -p Delegate=yes` gives. Prints one JSON object; `--keep`
writes results/cgroup.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import ROOT, host_facts, keep, parse_arguments, summarize
from ocisbx.cgroup.kill import kill_by_file, kill_by_pid, remove_cgroup, wait_empty
from ocisbx.cgroup.stats import TOTALS, read_counters

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP = 20
GOAL_MS = 1.0
GOAL_KILL_MS = 250.0
MEMBERS = ROOT / "tests" / "runtimes" / "cgroup_members.py"
ENTER = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
WAYS: dict[str, Callable[[str], object]] = {"file": kill_by_file, "pid": kill_by_pid}


def parent() -> str:
    """The cgroup in which ours lies, as a directory; ended where it is not ours to divide."""
    mounts = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    mount = next((m for m in mounts if os.path.exists(f"{m}/cgroup.procs")), None)
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    found = os.path.dirname(f"{mount}{own}")
    if mount is None or own == "/" or not os.access(found, os.W_OK):
        sys.exit("start this in a delegated cgroup: systemd-run --user --scope -p Delegate=yes")
    return found


def enter(path: str, *argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", ENTER, path, *argv], stdin=subprocess.DEVNULL)


def one_life(path: str, *, lived_in: bool) -> dict[str, float]:
    """Seconds of each step, for a P at `path`."""
    began = time.perf_counter()
    os.mkdir(path)
    os.mkdir(f"{path}/c")
    created = time.perf_counter()
    if lived_in:
        enter(f"{path}/c", "true").wait()
    before = time.perf_counter()
    counters = read_counters(path, TOTALS)
    read = time.perf_counter()
    os.rmdir(f"{path}/c")
    removed = remove_cgroup(path)
    ended = time.perf_counter()
    assert removed
    assert counters.cpu_user_usec is not None
    steps = {"create": created - began, "read": read - before, "remove": ended - read}
    return steps | {"total": sum(steps.values())}


def measure_lives(path: str, rounds: int) -> list[dict[str, Any]]:
    samples: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(-WARM_UP, rounds):
        for lived_in, found in samples.items():
            steps = one_life(path, lived_in=lived_in)
            if number >= 0:
                found.append(steps)
    return [
        {
            "cgroup": "lived in" if lived_in else "empty",
            **{step: summarize(one[step] for one in found) for step in found[0]},
        }
        for lived_in, found in samples.items()
    ]


def one_kill(path: str, kill: Callable[[str], object], processes: int) -> dict[str, float]:
    os.mkdir(path)
    first = enter(path, sys.executable, "-I", str(MEMBERS), "tree", str(processes))
    procs = Path(path, "cgroup.procs")
    while len(procs.read_text(encoding="ascii").split()) < processes:
        assert first.poll() is None
        time.sleep(0.02)
    # The last ones have to come to their stop.
    time.sleep(0.2)
    cpu_s, began = used_cpu_s(path), time.perf_counter()
    kill(path)
    assert wait_empty(path, 10)
    ended = time.perf_counter()
    cpu_s = used_cpu_s(path) - cpu_s
    first.wait()
    assert remove_cgroup(path)
    return {"dead": ended - began, "cpu": cpu_s}


def used_cpu_s(path: str) -> float:
    counters = read_counters(path, TOTALS)
    assert counters.cpu_user_usec is not None
    assert counters.cpu_system_usec is not None
    return (counters.cpu_user_usec + counters.cpu_system_usec) / 1e6


def measure_kills(path: str, kills: int, processes: int) -> list[dict[str, Any]]:
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    for _ in range(kills):
        for name, kill in WAYS.items():
            samples[name].append(one_kill(path, kill, processes))
    return [
        {
            "by": name,
            "processes": processes,
            **{what: summarize(one[what] for one in found) for what in found[0]},
        }
        for name, found in samples.items()
    ]


def main() -> int:
    options = parse_arguments(__doc__, rounds=500, kills=30, processes=200)
    host = host_facts()
    path = f"{parent()}/ocisbx-benchmark-{os.getpid()}"
    try:
        document: dict[str, Any] = {
            "benchmark": "cgroup",
            "host": host,
            "configuration": {
                "rounds": options.rounds,
                "controllers": Path(parent(), "cgroup.controllers").read_text("ascii").split(),
            },
            "lives": measure_lives(path, options.rounds),
            "kills": measure_kills(path, options.kills, options.processes),
        }
    finally:
        remove_cgroup(path)
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("cgroup", document)
    met = all(row["total"]["p50_ms"] <= GOAL_MS for row in document["lives"])
    return 0 if met and document["kills"][0]["dead"]["p50_ms"] <= GOAL_KILL_MS else 1


if __name__ == "__main__":
    raise SystemExit(main())
