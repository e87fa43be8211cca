"""What the test machine (tools/vm) costs: a guest from nothing, and each use of a frozen one.

    python -m benchmarks.machine [--guest NAME] [--rounds N] [--fresh N] [--keep]

Of the frozen guest, every round times in random order:
  restore  from the start of QEMU until the guest's agent answers (goal: 1 s);
  command  the same until `true`, run in a delegated scope, has ended;
  run      `tools/vm run -- true`, the whole program.
`--fresh` builds a guest so often in an empty cache of its own, packages and all, and runs `true` in
it, by one `tools/vm run -- true` (goal: 180 s). The goals are judged by the fastest. The host's
packages and runtimes have to be there. Prints one JSON object; `--keep` writes
results/machine.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import ROOT, host_facts, interleave, keep, summarize, timed
from tools.vm_build import ready
from tools.vm_machine import restored
from tools.vm_recipe import GUESTS, USER, Guest
from tools.vm_session import Command, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WARM_UP = 1
RESTORE_LIMIT_S = 60.0
GOAL_RESTORE_S = 1.0
GOAL_FRESH_S = 180.0
TRUE = Command(["true"], USER, "scope", f"/home/{USER}", {"OUT": "/tmp"})


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def restore(place: Path) -> float:
    return timed(partial(use, place, lambda _: None))


def first_command(place: Path) -> float:
    return timed(partial(use, place, run_true))


def use(place: Path, action: Callable[[Session], None]) -> None:
    with restored(place, "") as machine:
        session = Session(machine.line, machine.what_happened)
        session.hello(RESTORE_LIMIT_S)
        action(session)


def run_true(session: Session) -> None:
    assert session.run(TRUE, stdin=False) == 0


def whole(guest: str, around: Mapping[str, str]) -> float:
    """The whole program; what a build says goes on to stderr."""
    argv = [str(ROOT / "tools" / "vm"), "run", "-g", guest, "--", "true"]
    return timed(
        lambda: subprocess.run(
            argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=around
        )
    )


def fresh(guest: str) -> float:
    """With an empty cache of its own, in a place that subordinate ids may enter."""
    with tempfile.TemporaryDirectory(prefix="ocisbx-machine-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        around = os.environ | {"XDG_CACHE_HOME": directory, "TMPDIR": directory}
        try:
            return whole(guest, around)
        finally:
            subprocess.run([str(ROOT / "tools" / "vm"), "clean"], check=True, env=around)


def measure(guest: Guest, rounds: int) -> dict[str, list[float]]:
    with ready(guest, say) as place:
        contenders: dict[str, Callable[[], float]] = {
            "restore": partial(restore, place),
            "command": partial(first_command, place),
            "run": partial(whole, guest.suite, os.environ),
        }
        return interleave(contenders, rounds, WARM_UP)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the test machine costs.")
    parser.add_argument("--guest", choices=GUESTS, default=next(iter(GUESTS)))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--fresh", type=int, default=0, help="builds from nothing")
    parser.add_argument("--keep", action="store_true", help="write into benchmarks/results")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if not os.geteuid():
        say("root's cache is the machine's own: run this as an ordinary user")
        return 125
    host = host_facts()
    samples = measure(GUESTS[options.guest], options.rounds)
    goals = [min(samples["restore"]) <= GOAL_RESTORE_S]
    if options.fresh:
        samples["fresh"] = [fresh(options.guest) for _ in range(options.fresh)]
        goals.append(min(samples["fresh"]) <= GOAL_FRESH_S)
    document = {
        "benchmark": "machine",
        "host": host,
        "load_at_end": os.getloadavg()[0],
        "configuration": {"guest": options.guest, "rounds": options.rounds},
        "contenders": {name: summarize(found) for name, found in samples.items()},
    }
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("machine", document)
    return 0 if all(goals) else 1


if __name__ == "__main__":
    raise SystemExit(main())
