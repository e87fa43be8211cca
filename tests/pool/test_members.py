"""Members that wait: dead, frozen, old and superfluous ones, and those that cannot be started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ocisbx
from ocisbx.errors import OcisbxError, RuntimeMissing, Unsupported
from tests.box import eventually
from tests.cgroups import state

if TYPE_CHECKING:
    from ocisbx.pool.member import Member
    from tests.box import Box
    from tests.pool.conftest import Make

pytestmark = pytest.mark.runtime


def full(pool: ocisbx.Pool, count: int) -> list[Member]:
    """The members, once so many wait."""
    pool.open()
    assert eventually(lambda: pool.counts.waiting == count)
    return list(pool._store._waiting)


def process_of(member: Member) -> int:
    """Process 1 where it is one of the host's, else the runtime."""
    return member.execution.init_pid or member.execution.runtime_pid


def test_no_more_are_started_at_once_than_there_are_processors(make: Make) -> None:
    """Though there are more threads, which see off others meanwhile."""
    pool = make(8)
    pool.open()
    most = 0

    def is_full() -> bool:
        nonlocal most
        waiting, starting, _ = pool.counts
        most = max(most, starting)
        return waiting == 8

    assert eventually(is_full)
    assert most <= (os.cpu_count() or 1)


@pytest.mark.parametrize("who", ["init", "runtime"])
def test_a_killed_member_is_not_handed_out(make: Make, who: str) -> None:
    pool = make(3)
    members = full(pool, 3)
    for member in members[:2]:
        pid = process_of(member) if who == "init" else member.execution.runtime_pid
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda pid=pid: state(pid) in ("", "Z"))  # type: ignore[misc]
    result = pool.run(["echo", "fine"])
    assert result.stdout == b"fine\n"
    assert result.id not in {member.execution.id for member in members[:2]}
    # And is replaced.
    assert eventually(lambda: pool.counts.waiting == 3)


@pytest.mark.parametrize("who", ["init", "runtime"])
def test_a_stopped_member_is_not_handed_out(make: Make, who: str) -> None:
    pool = make(2)
    first, second = full(pool, 2)
    pid = process_of(first) if who == "init" else first.execution.runtime_pid
    os.kill(pid, signal.SIGSTOP)
    assert eventually(lambda: state(pid) in ("T", "t"))
    assert pool.run(["true"]).id == second.execution.id
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 30


def test_all_are_killed_at_once(make: Make) -> None:
    pool = make(4)
    members = full(pool, 4)
    pids = [process_of(member) for member in members]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    # gVisor's runtime ends after what is killed here.
    runtimes = [member.execution.runtime_pid for member in members]
    assert eventually(lambda: all(state(pid) in ("", "Z") for pid in (*pids, *runtimes)))
    assert pool.run(["true"]).exit_code == 0
    assert eventually(lambda: pool.counts.waiting == 4)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_member_is_replaced_without_a_call(
    make: Make, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Or one that is stopped, as good as whose runtime has missed its end."""
    monkeypatch.setattr("ocisbx.pool.store.REVIEW_S", 0.2)
    pool = make(2)
    members = full(pool, 2)
    os.kill(process_of(members[0]), number)
    assert eventually(lambda: members[0] not in pool._store._waiting)
    assert eventually(lambda: pool.counts.waiting == 2)


def test_the_age_is_bounded(make: Make) -> None:
    pool = make(2, max_age_s=2.5)
    first = {member.execution.id for member in full(pool, 2)}
    assert eventually(
        lambda: first.isdisjoint({one.execution.id for one in list(pool._store._waiting)})
    )
    assert pool.run(["true"]).id not in first


def test_an_idle_pool_shrinks_and_grows_again(box: Box, make: Make) -> None:
    idle_s = 6.0 if box.runtime.name == "runsc" else 2.5
    pool = make(3, idle_s=idle_s)
    full(pool, 3)
    assert eventually(lambda: pool.counts.waiting == 1)
    pool.run(["true"])
    assert eventually(lambda: pool.counts.waiting == 3)


def test_by_demand(make: Make) -> None:
    pool = make((1, 3))
    full(pool, 3)
    pool.run(["true"])
    time.sleep(0.1)
    assert 1 <= pool.counts.waiting <= 3


def test_a_member_starts_while_a_long_call_runs(make: Make) -> None:
    pool = make(1)
    full(pool, 1)
    running = threading.Event()
    done: list[int | None] = []
    reader, writer = os.pipe()

    def work() -> None:
        script = ["sh", "-c", "echo; read line; exit 3"]
        done.append(pool.run(script, input=reader, on_stdout=lambda _: running.set()).exit_code)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert running.wait(30)
        assert eventually(lambda: pool.counts.waiting == 1)
        # What short calls leave is not kept until the long one ends.
        for _ in range(3):
            pool.run(["true"])
        assert eventually(lambda: not pool._store._ended)
        assert done == []
    finally:
        os.close(writer)
        thread.join()
        os.close(reader)
    assert done == [3]


# --------------------------------------------------------------------------- what cannot be started
def test_a_runtime_that_is_not_there(box: Box) -> None:
    pool = ocisbx.Pool(runtime={"names": ["/no/runtime"]}, workspace="none")
    for start in (pool.open, lambda: pool.run(["true"])):
        with pytest.raises(RuntimeMissing):
            start()
    assert pool._store._threads == []
    assert pool.counts == (0, 0, 0)


def broken(box: Box, tmp_path: Path, text: str) -> Path:
    """A program in the place of a runtime that was fine."""
    program = tmp_path / "bin" / box.runtime.name
    program.parent.mkdir()
    shutil.copy(box.runtime.path, program)
    program.with_name("text").write_text(text)
    return program


def test_a_runtime_that_breaks_is_an_error_at_once_and_no_loop(
    box: Box, make: Make, tmp_path: Path
) -> None:
    """The members that wait are used up, each call then tells what is wrong, and the threads try
    less and less often."""
    program = tmp_path / box.runtime.name
    shutil.copy(box.runtime.path, program)
    pool = make(2, runtime={"names": [str(program)]})
    full(pool, 2)
    log = tmp_path / "log"
    script = f"#!/bin/sh\necho start >>{log}\nexit 1\n"
    changed = tmp_path / "changed"
    changed.write_text(script)
    changed.chmod(0o755)
    changed.rename(program)
    for _ in range(3):
        with contextlib.suppress(OcisbxError):
            pool.run(["true"])
    started = time.monotonic()
    with pytest.raises(OcisbxError):
        pool.run(["true"])
    assert time.monotonic() - started < 20
    time.sleep(1.5)
    attempts = log.read_text().count("start") if log.exists() else 0
    assert attempts < 40


def test_a_host_that_cannot_hand_over(make: Make) -> None:
    pool = make(1)
    plan = pool._sandbox.resolve()
    old = plan._replace(runtime=plan.runtime._replace(name="runsc", version="release-20221107.0"))
    pool._sandbox._plan = old
    with pytest.raises(Unsupported, match="cannot keep containers ready"):
        pool.open()


def test_killed_while_they_are_started(box: Box, make: Make) -> None:
    """The runtime of every member is killed as it starts, for a while: calls go on or tell; and
    of crun, which copies itself through a file, nothing is left in /tmp."""
    strays = set(Path("/tmp").glob("crun.*"))
    pool = make(3)
    full(pool, 3)
    stop = threading.Event()
    killed: list[int] = []

    def killer() -> None:
        known: set[int] = set()
        while not stop.is_set():
            for pid in set(box.serving()) - known:
                known.add(pid)
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                except ProcessLookupError:
                    pass

    thread = threading.Thread(target=killer)
    thread.start()
    deadline = time.monotonic() + 3.0
    try:
        while time.monotonic() < deadline:
            # Not only runtimes that run are killed: those that delete are, too.
            with contextlib.suppress(OcisbxError):
                pool.run(["true"])
    finally:
        stop.set()
        thread.join()
    assert killed
    # As soon as nobody kills any more, at most one pause later.
    assert pool.run(["echo", "again"]).stdout == b"again\n"
    # Other tests start crun, too: what they have there goes again.
    assert eventually(lambda: set(Path("/tmp").glob("crun.*")) <= strays)
