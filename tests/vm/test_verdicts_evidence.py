"""The rows of classify()'s table of evidence that no payload brings about by itself.

Where a verdict of tests/unit/test_outcome.py comes from: exit codes, signals, kills for memory,
refused forks, timeouts and output limits, alone and after one another, are tests/vm/payloads.py;
runtimes that fail by themselves tests/runtimes/test_faults.py; and here are callers that cancel,
inits that are killed or frozen, and containers that are short of what their start needs.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.backends.base import Call, Step
from ocisbx.calls import run_plan
from ocisbx.errors import RuntimeFailed
from ocisbx.result import Termination as T
from tests.box import eventually
from tests.cgroups import members
from tests.vm.boxes import PATIENCE_S, box, cache, cgroup_of, cgroups, ours
from tests.vm.payloads import BOMB, FIFO, OOM, End, Room, end_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.host import RuntimeBinary
    from ocisbx.result import RunResult
    from ocisbx.running import Running
    from tests.box import Box

__all__ = ["box", "cache"]

pytestmark = [pytest.mark.vm, pytest.mark.timeout(300)]

ROOM = Room()
QUIET = f"{FIFO}echo up; read x <&9"
# Both limits were hit, and it lives on.
HIT = f"tail /dev/zero; {BOMB}echo up; read x <&9"


@pytest.fixture(params=["crun", "runc"])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    return ours(request.param)


def run_to(box: Box, script: str, act: Callable[[Running], None], **fields: Any) -> RunResult:
    """Run a script that says `up`, act then, and give the result."""
    sandbox = box.sandbox(**(ROOM.fields(hasty=False) | fields))
    with sandbox.start(["sh", "-c", script]) as running:
        assert eventually(lambda: running.poll() or running.logs(), PATIENCE_S)
        assert running.logs() == b"up\n"
        act(running)
        result = running.wait(PATIENCE_S)
    assert result is not None
    return result


def init_in(cgroup: Path) -> int:
    """The process that is number 1 in its own pid namespace."""
    for pid in members(cgroup):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
        if numbers[2:] == ["1"]:
            return pid
    pytest.fail("there is no init")


# ------------------------------------------------------------------------------ what the driver did
def test_a_cancelled_payload_is_that_whatever_it_ran_into(box: Box) -> None:
    result = run_to(box, HIT, lambda running: running.cancel())
    assert end_of(result) == End(T.CANCELLED)
    assert result.usage.oom_kills == 1
    assert result.usage.pids_peak == ROOM.pids


def test_a_frozen_payload_has_timed_out(box: Box) -> None:
    """Nobody inside hears our signals, nor reports: the whole cgroup is killed."""

    def freeze(running: Running) -> None:
        (cgroup_of(running.id) / "cgroup.freeze").write_text("1", encoding="ascii")

    result = run_to(box, QUIET, freeze, timeout_s=6)
    assert end_of(result) == End(T.TIMED_OUT)
    assert result.usage.memory_peak_bytes
    assert result.usage.cpu_user_s is not None


# --------------------------------------------------------------------- inits without a word
def test_all_are_killed_for_memory_together(box: Box) -> None:
    limits = {"memory_bytes": ROOM.memory_bytes, "pids": ROOM.pids, "oom_group": True}
    fields = ROOM.fields(hasty=False) | {"limits": limits}
    result = box.sh("tail /dev/zero; exit 0", **fields)
    assert end_of(result) == OOM
    assert (result.usage.oom_kills or 0) >= 3


ENDS = {"quiet": (QUIET, End(T.SIGNALED, signal=9)), "hit": (HIT, OOM)}


@pytest.mark.every_guest
@pytest.mark.parametrize(("script", "end"), ENDS.values(), ids=ENDS)
def test_an_init_that_somebody_killed(box: Box, script: str, end: End) -> None:
    """Nobody can tell any more which of the payload's processes was killed for memory."""

    def kill(running: Running) -> None:
        os.kill(init_in(cgroup_of(running.id)), signal.SIGKILL)

    assert end_of(run_to(box, script, kill)) == end


# ----------------------------------------------------------------------- payloads that never ran
NEVER = {
    "nothing": (["/nope"], T.NOT_FOUND),
    "below a file": (["/etc/passwd/x"], T.NOT_FOUND),
    "a directory": (["/etc"], T.NOT_EXECUTABLE),
    "no program": (["/etc/passwd"], T.NOT_EXECUTABLE),
}


@pytest.mark.parametrize(("argv", "end"), NEVER.values(), ids=NEVER)
def test_a_payload_that_cannot_be_executed(box: Box, argv: list[str], end: T) -> None:
    assert end_of(box.run(argv, **ROOM.fields(hasty=False))) == End(end)


def meddle(step: Step, act: Callable[[Path], None]) -> Callable[[Step], None]:
    """At this step, do this with the only cgroup that there is."""

    def on_step(reached: Step) -> None:
        if reached is step:
            (cgroup,) = cgroups()
            act(cgroup)

    return on_step


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda cgroup: void((cgroup / name).write_text(text, encoding="ascii"))


def void(_: object) -> None:
    """What was written is not asked for."""


no_process = meddle(Step.BUNDLE_MADE, write("pids.max", "0"))
NOT_STARTED = "the runtime could not start the container"
NO_PROCESS = "a process cannot be started in the container"
SPOILED: dict[str, tuple[Callable[[Step], None], str, str]] = {
    "no process for the payload": (
        meddle(Step.CREATED, write("pids.max", "1")),
        NO_PROCESS,
        "Resource temporarily unavailable",
    ),
    "no process for the runtime": (
        no_process,
        NOT_STARTED,
        "",
    ),
    "no memory for the runtime": (
        meddle(Step.BUNDLE_MADE, write("memory.max", "65536")),
        NOT_STARTED,
        "killed for memory",
    ),
    "the init killed before the payload": (
        meddle(Step.CREATED, lambda cgroup: os.kill(init_in(cgroup), signal.SIGKILL)),
        "the container was killed from outside before its payload ended",
        "",
    ),
}


@pytest.mark.parametrize(("on_step", "what", "why"), SPOILED.values(), ids=SPOILED)
def test_a_start_that_fails_is_no_end_of_the_payload(
    box: Box, on_step: Callable[[Step], None], what: str, why: str
) -> None:
    plan = box.sandbox(**ROOM.fields(hasty=False)).resolve()
    with pytest.raises(RuntimeFailed) as raised:
        run_plan(plan, Call(("true",), os.environ, on_step=on_step))
    if box.runtime.name == "crun" and on_step is no_process:
        # It moves its one process in, which no limit refuses; the next is the payload's.
        what = NO_PROCESS
    assert raised.value.what == what
    assert raised.value.why
    assert why in raised.value.why
