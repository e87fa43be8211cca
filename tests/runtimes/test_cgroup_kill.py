"""Killing what runs in a cgroup and removing it, on real processes in real cgroups: by cgroup.kill,
and pid by pid as on kernels before 5.14."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.cgroup.kill import (
    kill_by_file,
    kill_by_pid,
    kill_cgroup,
    remove_cgroup,
    wait_empty,
)
from tests.box import eventually
from tests.cgroups import cgroup, members, start, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["cgroup"]

MEMBERS = str(Path(__file__).with_name("cgroup_members.py"))
TREE = 200
# What `tree` makes: members that sleep, that are stopped, and whose parent is gone.
LEAST_OF_EACH = 40


def by_file(path: str) -> None:
    assert kill_by_file(path)


WAYS = pytest.mark.parametrize("kill", [by_file, kill_by_pid], ids=["file", "pid"])


def python(*words: str) -> list[str]:
    return [sys.executable, "-I", MEMBERS, *words]


@contextlib.contextmanager
def started(path: str, argv: Sequence[str], count: int = 1) -> Iterator[set[int]]:
    """The pids of the members, once there are so many."""
    process = start(path, argv)
    found: set[int] = set()

    def complete() -> bool:
        found.clear()
        found.update(members(path))
        return len(found) >= count or process.poll() is not None

    try:
        # An emulated machine forks ten a second.
        assert eventually(complete, timeout_s=90)
        assert len(found) >= count
        yield found
    finally:
        process.kill()
        process.wait()


def assert_dead(pids: set[int]) -> None:
    """Zombies are dead: they wait for their parent, or for whoever got their parent's children.
    A process leaves its cgroup a moment before it is one."""
    assert eventually(lambda: all(state(pid) in ("", "Z", "X") for pid in pids))


@WAYS
def test_a_tree_of_two_hundred_processes(cgroup: str, kill: Callable[[str], None]) -> None:
    with started(cgroup, python("tree", str(TREE)), TREE):
        # Also those by whom orphans were made are among them, until they have ended.
        assert eventually(lambda: is_grown(members(cgroup)))
        pids = members(cgroup)
        kill(cgroup)
        assert wait_empty(cgroup, 10)
        assert members(cgroup) == set()
        assert_dead(pids)


def is_grown(pids: set[int]) -> bool:
    """Whether they are all that `tree` makes."""
    stopped = [pid for pid in pids if state(pid) == "T"]
    orphans = [pid for pid in pids if parent(pid) not in pids]
    return len(pids) == TREE and min(len(stopped), len(orphans)) >= LEAST_OF_EACH


def parent(pid: int) -> int:
    """0 for one that has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])


@WAYS
def test_a_frozen_cgroup(cgroup: str, kill: Callable[[str], None]) -> None:
    with started(cgroup, python("tree", "8"), 8) as pids:
        Path(cgroup, "cgroup.freeze").write_text("1", encoding="ascii")
        assert eventually(
            lambda: "frozen 1" in Path(cgroup, "cgroup.events").read_text(encoding="ascii")
        )
        kill(cgroup)
        assert wait_empty(cgroup, 10)
        assert_dead(pids)


@WAYS
def test_a_frozen_cgroup_below(cgroup: str, kill: Callable[[str], None]) -> None:
    below = f"{cgroup}/c/d"
    os.makedirs(below)
    with started(below, python("tree", "8"), 8) as pids:
        Path(cgroup, "c", "cgroup.freeze").write_text("1", encoding="ascii")
        assert eventually(
            lambda: "frozen 1" in Path(below, "cgroup.events").read_text(encoding="ascii")
        )
        kill(cgroup)
        assert wait_empty(cgroup, 10)
        assert_dead(pids)


@WAYS
def test_processes_that_are_replaced_by_their_children(
    cgroup: str, kill: Callable[[str], None]
) -> None:
    """No list of pids is true for long: the fork bomb that never has many members."""
    with started(cgroup, python("hoppers", "4"), 3):
        kill(cgroup)
        assert wait_empty(cgroup, 10)
        assert members(cgroup) == set()


@WAYS
def test_a_threaded_cgroup_below(cgroup: str, kill: Callable[[str], None]) -> None:
    """Its cgroup.procs cannot be read, and it counts as populated."""
    threaded = Path(cgroup, "t")
    threaded.mkdir()
    (threaded / "cgroup.type").write_text("threaded", encoding="ascii")
    with started(cgroup, python("threads", str(threaded))) as pids:
        assert eventually(lambda: (threaded / "cgroup.threads").read_text(encoding="ascii"))
        kill(cgroup)
        assert wait_empty(cgroup, 10)
        assert_dead(pids)


@contextlib.contextmanager
def traced(kind: str, path: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The pid of a stopped member, and its tracer, which is outside."""
    tracer = subprocess.Popen(python(kind, path), stdout=subprocess.PIPE)
    assert tracer.stdout is not None
    with tracer, tracer.stdout:
        try:
            pid = int(tracer.stdout.readline())
            assert state(pid) == "t"
            yield pid, tracer
        finally:
            tracer.kill()


@WAYS
def test_a_process_that_is_traced(cgroup: str, kill: Callable[[str], None]) -> None:
    with traced("traced", cgroup) as (pid, _):
        kill(cgroup)
        assert wait_empty(cgroup, 10)
        assert_dead({pid})


@WAYS
def test_a_tracer_inside_keeps_nobody_alive(cgroup: str, kill: Callable[[str], None]) -> None:
    with traced("held", cgroup) as (pid, tracer):
        Path(cgroup, "cgroup.procs").write_text(str(tracer.pid), encoding="ascii")
        kill(cgroup)
        assert wait_empty(cgroup, 10)
        assert_dead({pid})


def test_who_is_held_by_a_debugger_outside_is_not_called_dead(cgroup: str) -> None:
    """SIGKILL brings it as far as PTRACE_EVENT_EXIT; Linux 6.18 drops any further signal there."""
    with traced("held", cgroup) as (pid, tracer):
        if not remove_cgroup(cgroup, timeout_s=0.3):
            assert members(cgroup) == {pid}
            tracer.kill()
            assert remove_cgroup(cgroup)
        assert_dead({pid})


def test_without_cgroup_kill_the_pids_are_taken(tmp_path: Path) -> None:
    """A kernel before 5.14 has neither file; a directory with a list of pids is as good."""
    victims = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
    (tmp_path / "below").mkdir()
    (tmp_path / "cgroup.procs").write_text(f"{victims[0].pid}\n", encoding="ascii")
    two = "".join(f"{victim.pid}\n" for victim in victims[1:])
    (tmp_path / "below" / "cgroup.procs").write_text(two, encoding="ascii")
    assert not kill_by_file(str(tmp_path))
    kill_cgroup(str(tmp_path))
    assert [victim.wait(10) for victim in victims] == [-9, -9, -9]


def test_remove_takes_what_is_nested_with_it(cgroup: str) -> None:
    for name in ("c/d/e", "c/f", "g"):
        os.makedirs(f"{cgroup}/{name}")
    with started(f"{cgroup}/c/d/e", python("tree", "20"), 20) as pids:
        assert remove_cgroup(cgroup)
        assert not os.path.lexists(cgroup)
        assert_dead(pids)


def test_remove_reaches_deeper_than_a_path_can_name(cgroup: str) -> None:
    """A payload with a cgroup of its own may nest as it likes."""
    descriptor = os.open(cgroup, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("n" * 200, dir_fd=descriptor)
        below = os.open("n" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    process = subprocess.Popen(["sleep", "1000"])
    procs = os.open("cgroup.procs", os.O_WRONLY, dir_fd=descriptor)
    os.write(procs, str(process.pid).encode())
    os.close(procs)
    os.close(descriptor)
    before = len(os.listdir("/proc/self/fd"))
    kill_by_pid(cgroup)
    assert process.wait(10) == -9
    assert remove_cgroup(cgroup)
    assert len(os.listdir("/proc/self/fd")) == before


def test_removing_again_or_nothing_is_no_fault(cgroup: str) -> None:
    assert remove_cgroup(cgroup)
    assert remove_cgroup(cgroup)
    assert remove_cgroup("/nonexistent/ocisbx-0")
    assert wait_empty(cgroup, 0)
    kill_cgroup(cgroup)


def test_a_cgroup_that_vanishes_meanwhile(cgroup: str) -> None:
    """Several remove it at once, as a driver and `gc` of another process."""
    os.makedirs(f"{cgroup}/c")
    results: list[bool] = []
    with started(f"{cgroup}/c", python("tree", "30"), 30) as pids:
        workers = [
            threading.Thread(target=lambda: results.append(remove_cgroup(cgroup))) for _ in range(4)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert results == [True] * 4
        assert_dead(pids)


def test_wait_empty_tells_in_time_and_no_sooner(cgroup: str) -> None:
    with started(cgroup, ["sleep", "1000"]):
        began = time.monotonic()
        assert not wait_empty(cgroup, 0.1)
        assert time.monotonic() - began >= 0.1
        timer = threading.Timer(0.3, kill_cgroup, (cgroup,))
        timer.start()
        assert wait_empty(cgroup, 20)
        assert time.monotonic() - began < 10
        timer.join()


def test_what_is_no_cgroup_stays_as_it_is(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = tmp_path / "ocisbx-link"
    link.symlink_to(outside)
    kept = tmp_path / "ocisbx-0"
    (kept / "below").mkdir(parents=True)
    (kept / "to-outside").symlink_to(outside)
    for path in (link, kept, kept / "file"):
        if path.name == "file":
            path.write_text("", encoding="ascii")
        assert not remove_cgroup(str(path))
        assert os.path.lexists(path)
    assert outside.is_dir()
    assert (kept / "below").is_dir()
