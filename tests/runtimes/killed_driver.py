"""A driver that dies of SIGKILL at one point of a call, again and again: test_killed_driver.py.

`killed_driver.py RUNTIME WORKSPACE MARK DEATHS [LIMITS]` compiles one plan and forks so many
drivers a round; LIMITS is a JSON object. It is the subreaper of all that they leave, and its cgroup
has no siblings but those of its sandboxes, so that nothing can hide; after each round a fresh
process collects, and one line of JSON tells what is still there: {"round", "deaths", "collected",
"left"}.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil

import ocisbx
from ocisbx.backends.base import Call, Step
from ocisbx.calls import run_plan
from ocisbx.places import find_places
from ocisbx.probe.cgroups import DRIVER_LEAF, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.plan import Plan

PR_SET_CHILD_SUBREAPER = 36
COLLECT = "from ocisbx.backends.gc import collect; print(len(collect()))"
# Rounds that die at no particular step: milliseconds after the start, one after the other.
MOMENTS_MS = (2, 4, 6, 9, 12, 16, 21, 27, 34, 45)
DYING_S = 5.0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def drive(plan: Plan, argv: tuple[str, ...], step: Step | None) -> None:
    """The forked driver: a whole call, with a death at the step."""

    def on_step(reached: Step) -> None:
        if reached is step:
            die()

    run_plan(plan, Call(argv, os.environ, name=None, on_step=on_step))


def fork_driver(plan: Plan, argv: tuple[str, ...], step: Step | None) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            drive(plan, argv, step)
        finally:
            os._exit(0)
    return pid


def deaths_at(plan: Plan, step: Step, mark: str, deaths: int) -> int:
    """How many of the drivers died as they should."""
    ends = step in (Step.REPORTED, Step.DELETING)
    script = f"sleep {mark} & " + ("exit 0" if ends else f"exec sleep {mark}")
    pids = [fork_driver(plan, ("sh", "-c", script), step) for _ in range(deaths)]
    return sum(os.waitpid(pid, 0)[1] == signal.SIGKILL for pid in pids)


def deaths_in_between(plan: Plan, mark: str, deaths: int) -> int:
    dead = 0
    for moment_ms in MOMENTS_MS[:deaths]:
        pid = fork_driver(plan, ("sleep", mark), None)
        time.sleep(moment_ms / 1000)
        os.kill(pid, signal.SIGKILL)
        dead += os.waitpid(pid, 0)[1] == signal.SIGKILL
    return dead


def left_over() -> list[str]:
    """Processes that are ours now, and files; those that have ended are reaped."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() == psutil.STATUS_ZOMBIE and child.ppid() == os.getpid():
                os.waitpid(child.pid, 0)
            else:
                found.append(f"{child.pid} {child.status()} {child.cmdline()}")
        except psutil.NoSuchProcess:
            continue
    runtime = find_places().runtime
    for name in ("bundles", "names"):
        if os.path.isdir(f"{runtime}/{name}"):
            found += [f"{name}/{entry}" for entry in os.listdir(f"{runtime}/{name}")]
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        found += [line for line in file if runtime in line]
    site = look()
    with os.scandir(f"{site.mount}{site.parent}") as entries:
        found += [one.path for one in entries if one.is_dir() and one.name != DRIVER_LEAF]
    return found


def left_for_good() -> list[str]:
    """What was killed is out of its cgroup, and collected, a moment before it has ended."""
    end = time.monotonic() + DYING_S
    while (found := left_over()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def report(name: str, kill: Callable[[], int]) -> None:
    dead = kill()
    collected = subprocess.run(
        [sys.executable, "-c", COLLECT], capture_output=True, text=True, check=False
    )
    document = {
        "round": name,
        "deaths": dead,
        "collected": collected.stdout.strip() or collected.stderr,
        "left": left_for_good(),
    }
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main(runtime: str, workspace: str, mark: str, count: str, limits: str = "{}") -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    assert look().own.endswith(f"/{DRIVER_LEAF}"), look()
    plan = ocisbx.Sandbox(
        runtime={"names": [runtime]}, workspace=workspace, limits=json.loads(limits)
    ).resolve()
    deaths = int(count)
    for step in Step:
        report(step.value, lambda step=step: deaths_at(plan, step, mark, deaths))  # type: ignore[misc]
    report("in between", lambda: deaths_in_between(plan, mark, deaths))


if __name__ == "__main__":
    main(*sys.argv[1:])
