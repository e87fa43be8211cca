"""Many sandboxes at once on one runtime: every verdict is right, and nothing is left of them."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ocisbx.cgroup.stats import TOTALS, read_counters
from ocisbx.errors import OcisbxError
from ocisbx.result import Termination as T
from tests.box import eventually
from tests.cgroups import members
from tests.vm.boxes import PATIENCE_S, cgroup_of, cgroups
from tests.vm.payloads import KINDS, LOOKALIKES, End, end_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ocisbx.cgroup.stats import Counters
    from tests.box import Box
    from tests.vm.payloads import Payload, Room

AT_ONCE = 4
SIBLING = {"memory_bytes": 96 << 20, "pids": 100, "cpus": 1.5}
SIBLING_SCRIPT = "trap 'echo well; exit 9' TERM; mkfifo /tmp/f; exec 9<>/tmp/f; echo up; read x <&9"
LIMIT_FILES = ("memory.max", "memory.swap.max", "pids.max", "cpu.max")
# What a sibling that only waits may use of the processor, in all.
IDLE_USEC = 2_000_000


def mixture(each: int, lookalikes: int, seed: int) -> list[Payload]:
    """`each` of every kind, its variants in turn, and every lookalike so often; in random order."""
    drawn = [kind[turn % len(kind)] for kind in KINDS for turn in range(each)]
    drawn += LOOKALIKES * lookalikes
    random.Random(seed).shuffle(drawn)  # noqa: S311 -- an order, not a secret
    return drawn


@pytest.fixture
def share(request: pytest.FixtureRequest) -> float:
    """Of the payloads, how many are run: all take half an hour in the guest."""
    return float(request.config.getoption("--mass")) / 100


def prove(box: Box, room: Room, each: int, lookalikes: int, share: float) -> None:
    """Run a share of a mixture beside a sibling; afterwards the box and the hierarchy are as
    before."""
    each, lookalikes = max(1, round(each * share)), max(1, round(lookalikes * share))
    seed = random.SystemRandom().randrange(1 << 32)
    payloads = mixture(each, lookalikes, seed)
    started = time.monotonic()
    with sibling(box) as path:
        wrong = run_all(box, room, payloads)
        assert cgroups() == {path}
    said = f"{len(payloads)} payloads, {time.monotonic() - started:.0f} s, seed {seed}"
    sys.stdout.write(f"{said}\n")
    assert not wrong, "\n".join([said, *wrong])
    assert box.left() == []


def run_all(box: Box, room: Room, payloads: Sequence[Payload]) -> list[str]:
    """What was wrong with the results."""
    sandboxes = {hasty: box.sandbox(**room.fields(hasty=hasty)) for hasty in (False, True)}
    for sandbox in sandboxes.values():
        sandbox.resolve()

    def wrong(payload: Payload) -> str:
        try:
            result = sandboxes[payload.hasty].run(["sh", "-c", payload.script])
        except OcisbxError as error:
            return f"{payload.name}: {error!r}, {error.why}"
        if trouble := payload.judge(result, room):
            seen = (*end_of(result), result.usage, result.stdout[:80], result.stderr[:80])
            return f"{payload.name}: {trouble}: {seen}"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [found for found in pool.map(wrong, payloads) if found]


@contextlib.contextmanager
def sibling(box: Box) -> Iterator[Path]:
    """A sandbox beside the others, which must not notice them; its cgroup."""
    with box.sandbox(limits=SIBLING).start(["sh", "-c", SIBLING_SCRIPT]) as running:
        # poll() raises what kept it from starting.
        assert eventually(lambda: running.poll() or running.logs(), PATIENCE_S)
        assert running.logs() == b"up\n"
        path = cgroup_of(running.id)
        limits, inside = limits_of(path), members(path)
        before = read_counters(str(path), TOTALS)
        assert limits["memory.max"] == str(SIBLING["memory_bytes"])
        yield path
        assert (limits_of(path), members(path)) == (limits, inside)
        used = read_counters(str(path), TOTALS)
        assert (used.oom_kills, used.pids_limit_hits) == (0, 0)
        assert processor_usec(used) - processor_usec(before) < IDLE_USEC
        assert running.poll() is None
        running.signal(15)
        result = running.wait(PATIENCE_S)
    assert result is not None
    assert end_of(result) == End(T.EXITED, exit_code=9)
    assert result.stdout == b"up\nwell\n"


def limits_of(path: Path) -> dict[str, str]:
    return {name: (path / name).read_text(encoding="ascii").strip() for name in LIMIT_FILES}


def processor_usec(used: Counters) -> int:
    return (used.cpu_user_usec or 0) + (used.cpu_system_usec or 0)
