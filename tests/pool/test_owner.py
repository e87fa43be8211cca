"""The owner of a pool: killed, forked, ended without a word."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from ocisbx.probe.cgroups import DRIVER_LEAF
from tests.box import eventually, nap, running
from tests.cgroups import ENTER

if TYPE_CHECKING:
    import ocisbx
    from tests.box import Box
    from tests.pool.conftest import Make

pytestmark = pytest.mark.runtime

OWNER = Path(__file__).with_name("pool_owner.py")
MARK = nap()
COLLECT = "from ocisbx.backends.gc import collect; print(len(collect()))"


@pytest.fixture
def leaf(cgroup: str) -> str:
    """Where the owner lives: its siblings are the members' cgroups."""
    path = f"{cgroup}/{DRIVER_LEAF}"
    os.mkdir(path)
    return path


def python(box: Box, leaf: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **box.environment, "PYTHONPATH": str(OWNER.parents[2])}
    return subprocess.Popen(
        ["sh", "-c", ENTER, leaf, sys.executable, *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def owner(box: Box, leaf: str, size: int, what: str, workspace: str = "") -> subprocess.Popen[str]:
    words = box.runtime.path, workspace or str(box.workspace), str(size), what, MARK
    found = python(box, leaf, str(OWNER), *words)
    assert found.stdout is not None
    assert found.stdout.readline() == "ready\n"
    return found


def collected(box: Box, leaf: str) -> int:
    with python(box, leaf, "-c", COLLECT) as process:
        return int(process.communicate()[0])


def nothing_is_left(box: Box, cgroup: str) -> bool:
    below = [entry.name for entry in os.scandir(cgroup) if entry.is_dir()]
    return box.left() == [] and below == [DRIVER_LEAF]


@pytest.mark.parametrize("what", ["wait", "busy", "fork"])
def test_its_death_leaves_nothing(box: Box, cgroup: str, leaf: str, what: str) -> None:
    """SIGKILL with 32 members: they end, and a fresh process's `gc` takes away all the rest."""
    size = 4 if box.runtime.name == "runsc" else 32 if what == "wait" else 6
    with owner(box, leaf, size, what) as found:
        children = psutil.Process(found.pid).children() if what == "fork" else []
        found.kill()
        found.wait()
        assert collected(box, leaf) >= size
        assert eventually(lambda: nothing_is_left(box, cgroup)), box.left()
        for child in children:
            # All but the forked one are runtimes, which have ended.
            with contextlib.suppress(psutil.Error):
                child.kill()
    assert eventually(lambda: not running(MARK))


def test_a_pool_that_nobody_closes_ends_with_the_process(box: Box, cgroup: str, leaf: str) -> None:
    with owner(box, leaf, 3, "end") as found:
        assert found.wait(30) == 0
    assert nothing_is_left(box, cgroup)
    assert collected(box, leaf) == 0


# ------------------------------------------------------------------------------------------ forks
def in_child(pool: ocisbx.Pool) -> int:
    """The exit code of a forked child that uses the pool."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = pool.run(["sh", "-c", "exit 42"]).exit_code or 0
            pool.close()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_a_pool_of_its_own(make: Make) -> None:
    pool = make(2)
    pool.open()
    assert eventually(lambda: pool.counts.waiting == 2)
    before = [member.execution.id for member in list(pool._store._waiting)]
    assert in_child(pool) == 42
    # The parent's are as they were.
    assert [member.execution.id for member in list(pool._store._waiting)] == before
    assert pool.run(["true"]).id == before[0]
    assert in_child(pool) == 42


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_the_end_of_a_child_is_no_harm(make: Make) -> None:
    pool = make(2)
    pool.open()
    for how in ("exit", "kill"):
        pid = os.fork()
        if pid == 0:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        os.waitpid(pid, 0)
        assert pool.run(["echo", "fine"]).stdout == b"fine\n"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_does_not_keep_the_parents_members(make: Make) -> None:
    """It has no end of their sockets, or they would not hear the parent's hang-up."""
    pool = make(2)
    pool.open()
    assert eventually(lambda: pool.counts.waiting == 2)
    pids = [member.execution.runtime_pid for member in list(pool._store._waiting)]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    pool.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    os.close(writer)
    os.waitpid(pid, 0)


def work(pool: ocisbx.Pool, number: int) -> None:
    result = pool.run(["sh", "-c", f"exit {number}"])
    pool.close()
    sys.exit(result.exit_code)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_multiprocessing(make: Make) -> None:
    pool = make(2)
    pool.open()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(pool, number)) for number in (11, 12)]
    for child in children:
        child.start()
    assert pool.run(["echo", "fine"]).stdout == b"fine\n"
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [11, 12]
    for child in children:
        child.close()
