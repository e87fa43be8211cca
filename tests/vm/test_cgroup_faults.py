"""What can happen to cgroups, and what can be done to them, around and during a call: the right
verdict or a clear error, nothing left, and neither driver nor siblings any the worse."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.errors import OcisbxError, RuntimeFailed, Unsupported
from ocisbx.result import EnforcementState as S
from ocisbx.result import Termination as T
from tests.box import Box, eventually
from tests.vm.rig import (
    HIERARCHY,
    MANAGER,
    MIB,
    PATIENCE_S,
    UID,
    attempt,
    box,
    box_of,
    cache,
    fast,
    ours,
    parent,
    runtime,
    sandboxes,
    sudo,
    vacate,
    value,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.result import RunResult
    from ocisbx.running import Running

__all__ = ["box", "cache", "fast", "runtime"]

pytestmark = pytest.mark.vm

LIMITS = {"memory_bytes": 48 * MIB, "pids": 30}
UP = ["sh", "-c", "echo up; exec sleep 1000"]


@contextlib.contextmanager
def up(box: Box, **options: object) -> Iterator[tuple[Running, Path]]:
    """A payload that runs, and its cgroup."""
    with box.sandbox(**({"limits": LIMITS} | options)).start(UP) as running:
        assert eventually(lambda: running.logs() == b"up\n", PATIENCE_S)
        yield running, box_of(running.id)


def end_of(running: Running) -> RunResult:
    result = running.wait(PATIENCE_S)
    assert result is not None
    return result


def killed(running: Running) -> RunResult:
    running.kill()
    return end_of(running)


# ------------------------------------------------------------------------ what others do meanwhile
def test_a_cgroup_that_vanishes(box: Box) -> None:
    """It cannot as long as anybody is in it; who kills all first can remove it under our feet."""
    with up(box) as (running, cgroup):
        for path in (cgroup / "c", cgroup):
            with pytest.raises(OSError, match="busy"):
                path.rmdir()
        vacate(cgroup)
        result = end_of(running)
    assert (result.termination, result.signal) == (T.SIGNALED, 9)
    assert result.enforcement["memory"].state is S.PARTIAL
    assert "somebody removed its cgroup" in result.enforcement["memory"].how
    assert box.run(["true"], limits=LIMITS).exit_code == 0


def test_all_that_is_in_it_is_killed(fast: Box) -> None:
    with up(fast) as (running, cgroup):
        write(cgroup, "cgroup.kill", "1")
        result = end_of(running)
    assert (result.termination, result.signal) == (T.SIGNALED, 9)
    assert result.enforcement["memory"].state is S.ENFORCED


def take_away(controller: str, *cgroups: Path) -> None:
    for cgroup in cgroups:
        write(cgroup, "cgroup.subtree_control", f"-{controller}")


def test_a_controller_that_is_withdrawn(box: Box) -> None:
    """As an administrator may; what it has held until then, it held."""
    beside = parent()
    with up(box, limits=LIMITS | {"cpus": 0.5}) as (running, cgroup):
        take_away("cpu", cgroup, beside)
        try:
            assert not (cgroup / "cpu.max").exists()
            result = killed(running)
        finally:
            write(beside, "cgroup.subtree_control", "+cpu")
    entry = result.enforcement["cpus"]
    assert (entry.state, result.enforcement["memory"].state) == (S.PARTIAL, S.ENFORCED)
    assert "took the controller away" in entry.how


def test_a_controller_that_came_back_without_the_limit(fast: Box) -> None:
    beside = parent()
    with up(fast, limits=LIMITS | {"cpus": 0.5}) as (running, cgroup):
        take_away("cpu", cgroup, beside)
        write(beside, "cgroup.subtree_control", "+cpu")
        assert value(cgroup, "cpu.max") == "max 100000"
        result = killed(running)
    assert result.enforcement["cpus"].state is S.PARTIAL


def test_somebody_lifts_a_limit(fast: Box) -> None:
    with up(fast) as (running, cgroup):
        write(cgroup, "pids.max", "max")
        result = killed(running)
    assert result.enforcement["pids"].state is S.PARTIAL
    assert result.enforcement["memory"].state is S.ENFORCED


def test_a_daemon_reload_takes_nothing_of_a_delegated_unit(box: Box) -> None:
    """systemd withdraws the controllers of what no delegated unit asks for."""
    limits = {**LIMITS, "cpus": 0.5, "cpuset": "0", "io": {"/home": {"write_bps": 8 * MIB}}}
    with up(box, limits=limits) as (running, cgroup):
        before = {name: value(cgroup, name) for name in ("cpu.max", "cpuset.cpus", "io.max")}
        subprocess.run(["systemctl", "--user", "daemon-reload"], check=True)
        sudo("systemctl", "daemon-reload")
        assert {name: value(cgroup, name) for name in before} == before
        result = killed(running)
    for name in ("memory", "cpus", "pids", "io"):
        assert result.enforcement[name].state is S.ENFORCED, result.enforcement[name]


@contextlib.contextmanager
def without(controller: str) -> Iterator[None]:
    """What the user manager itself was given is one less."""
    place = parent().resolve()
    chain = [place, *(above for above in place.parents if above.is_relative_to(MANAGER))]
    take_away(controller, *chain)
    try:
        yield
    finally:
        for cgroup in reversed(chain):
            write(cgroup, "cgroup.subtree_control", f"+{controller}")


def test_a_controller_that_is_gone_before_the_start(box: Box) -> None:
    """Between two calls, so that the plan counts on it: a demand is refused, a wish is not."""
    demand = box.sandbox(limits=LIMITS | {"cpus": 0.5})
    degraded = box.sandbox(limits=LIMITS | {"cpus": 0.5}, allow_degraded=["cpus"])
    wish = box.sandbox(preset="locked-down")
    for sandbox in (demand, degraded, wish):
        sandbox.resolve()
    with without("cpu"):
        with pytest.raises(OcisbxError, match="cpu") as raised:
            demand.run(["true"])
        assert raised.value.remedy
        for sandbox in (degraded, wish):
            result = sandbox.run(["true"])
            assert result.exit_code == 0
            assert result.enforcement["cpus"].state is S.UNSUPPORTED, result.enforcement["cpus"]
            assert result.enforcement["memory"].state is S.ENFORCED, result.enforcement["memory"]
    assert demand.run(["true"]).enforcement["cpus"].state is S.ENFORCED


def test_as_many_cgroups_as_may_be(box: Box) -> None:
    """With room for none, and with room for ours but none for the container's."""
    beside = parent()
    sandbox = box.sandbox(limits=LIMITS)
    sandbox.resolve()
    (there,) = re.findall(r"^nr_descendants (\d+)", value(beside, "cgroup.stat"), re.MULTILINE)
    try:
        for room, kind, words in (
            (0, Unsupported, "cgroup.max.descendants"),
            (1, RuntimeFailed, "unavailable"),
        ):
            write(beside, "cgroup.max.descendants", str(int(there) + room))
            with pytest.raises(kind) as raised:
                sandbox.run(["true"])
            assert words in str(raised.value), raised.value
            assert raised.value.remedy
    finally:
        write(beside, "cgroup.max.descendants", "max")
    assert sandbox.run(["true"]).exit_code == 0


FORGETS = """#!/bin/sh
for word; do
  [ "$last" = --bundle ] && bundle=$word
  last=$word
done
[ -z "$bundle" ] || [ ! -e {flag} ] || sed -i 's/"cgroupsPath"/"forgotten"/' $bundle/config.json
exec {crun} "$@"
"""


def test_a_runtime_that_leaves_the_container_where_it_is(fast: Box) -> None:
    """As crun does, without a word, where no cgroupsPath is given: the payload never runs."""
    flag, path = fast.base / "flag", fast.base / "crun"
    path.write_text(FORGETS.format(flag=flag, crun=fast.runtime.path), encoding="utf-8")
    path.chmod(0o755)
    sandbox = fast.sandbox(limits=LIMITS, runtime={"names": [str(path)]})
    assert sandbox.run(["true"]).exit_code == 0
    flag.touch()
    with pytest.raises(RuntimeFailed, match="did not put it into its cgroup"):
        sandbox.run(["touch", str(fast.workspace / "ran")])
    assert not (fast.workspace / "ran").exists()


# ------------------------------------------------------------------------- where the driver can be
AS_DEV = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--init-groups")
DEMAND = {"limits": LIMITS}


def test_a_hierarchy_that_is_mounted_read_only() -> None:
    """Refused without a try, and nothing is asked of systemd."""
    mount = f'mount -o remount,bind,ro {HIERARCHY} && exec {shlex.join(AS_DEV)} "$@"'
    before = set(MANAGER.glob("app.slice/*.scope"))
    told = attempt(
        ["sudo", "unshare", "--mount", "sh", "-c", mount, "sh"],
        [DEMAND, DEMAND | {"allow_degraded": ["memory", "pids"]}, {}],
    )
    assert told[0]["error"] == "Unsupported"
    assert "read-only" in told[0]["said"] + told[0]["remedy"]
    for one in told[1:]:
        assert one["exit_code"] == 0
        assert one["enforcement"]["memory"]["state"] == "unsupported"
    assert set(MANAGER.glob("app.slice/*.scope")) == before


def test_a_driver_that_is_moved_between_two_calls() -> None:
    """To where nothing is delegated: it finds itself a place once more."""
    made = parent() / "not-a-unit"
    made.mkdir()
    try:
        told = attempt([], [DEMAND, ["move", str(made)], DEMAND])
        assert told[1]["cgroup"].endswith("/not-a-unit")
        assert re.search(r"/ocisbx-\d+-[0-9a-f]+\.scope$", told[2]["cgroup"])
        for one in (told[0], told[2]):
            assert one["exit_code"] == 0
            assert one["enforcement"]["memory"]["state"] == "enforced"
    finally:
        made.rmdir()


# A second user with a systemd user manager, since ours has the tests in it.
VICTIM = "victim"


@pytest.fixture(scope="module")
def victim() -> int:
    """The user's number."""
    sudo("chmod", "a+x", str(Path.home()))
    sudo("useradd", "--create-home", VICTIM)
    return int(sudo("id", "-u", VICTIM))


def manage(uid: int, verb: str) -> None:
    sudo("systemctl", verb, f"user@{uid}")
    if verb == "start":
        sudo("sh", "-c", f"while ! test -S /run/user/{uid}/bus; do sleep 0.1; done")


def as_victim(*options: str) -> list[str]:
    service = ["sudo", "systemd-run", "--quiet", "--pipe", "--wait", "--collect"]
    return [*service, f"--uid={VICTIM}", *options, "--"]


def test_no_manager_then_one_that_dies(victim: int, tmp_path: Path) -> None:
    """In the middle of a run it takes the driver with it, which lives below it: nothing is left.
    The next manager gives a place as the first did."""
    tmp_path.chmod(0o755)
    refused, degraded = attempt(
        as_victim(), [DEMAND, DEMAND | {"allow_degraded": ["memory", "pids"]}]
    )
    assert refused["error"] == "Unsupported"
    assert "enable-linger" in refused["remedy"]
    assert degraded["enforcement"]["memory"]["state"] == "unsupported"
    manage(victim, "start")
    mark = "120.25"
    with ThreadPoolExecutor(1) as pool:
        endless = DEMAND | {"command": ["sleep", mark]}
        died = pool.submit(attempt, as_victim(), [endless])
        manager = HIERARCHY / f"user.slice/user-{victim}.slice/user@{victim}.service"
        # Its first run here tries the runtimes, too.
        assert eventually(lambda: running_as(f"sleep {mark}"), 4 * PATIENCE_S)
        assert list(manager.glob("app.slice/ocisbx-*/c"))
        sudo("systemctl", "kill", "--kill-whom=main", "--signal=KILL", f"user@{victim}")
        with pytest.raises(AssertionError):
            died.result(PATIENCE_S)
    assert eventually(lambda: not running_as(f"sleep {mark}"), PATIENCE_S)
    assert eventually(lambda: not sandboxes(), PATIENCE_S)
    manage(victim, "start")
    (told,) = attempt(as_victim(), [DEMAND])
    assert told["enforcement"]["memory"]["state"] == "enforced"


def running_as(line: str) -> str:
    return sudo("pgrep", "-xf", line, check=False)


def test_a_manager_that_does_not_answer(victim: int) -> None:
    """Refused in bounded time; a service with a delegated part of its own needs no manager."""
    manage(victim, "start")
    pid = sudo("systemctl", "show", "--value", "--property=MainPID", f"user@{victim}")
    sudo("kill", "-STOP", pid)
    try:
        refused, wished = attempt(as_victim(), [DEMAND, {}])
        (held,) = attempt(as_victim("--property=Delegate=yes"), [DEMAND])
    finally:
        sudo("kill", "-CONT", pid)
    assert refused["error"] == "Unsupported"
    assert "no answer within" in refused["said"]
    assert wished["exit_code"] == 0
    assert wished["enforcement"]["memory"]["state"] == "unsupported"
    assert held["enforcement"]["memory"]["state"] == "enforced"
    assert held["cgroup"].endswith(".service/ocisbx-driver")


# ------------------------------------------------------------------------------ what payloads do
def test_a_fork_bomb_that_outlives_its_time(box: Box) -> None:
    """Deaf to TERM, in sessions of their own, and replaced as fast as they die."""
    bomb = "trap '' TERM; b() { while :; do setsid sh -c 'trap \"\" TERM; sleep 100' & done; }; b"
    with up(box) as (sibling, cgroup):
        usage = value(cgroup, "pids.events")
        result = box.sh(bomb, limits=LIMITS, timeout_s=2, grace_s=0.3)
        assert value(cgroup, "pids.events") == usage
        assert killed(sibling).usage.oom_kills == 0
    assert result.termination in (T.TIMED_OUT, T.PIDS_LIMIT)
    assert (result.usage.pids_peak, result.enforcement["pids"].state) == (30, S.ENFORCED)


SHARED_HOG = """
import mmap, os
for _ in range(8):
    if os.fork() == 0:
        shared = mmap.mmap(-1, 12 << 20)
        for page in range(0, len(shared), 4096): shared[page] = 1
        os.kill(os.getppid(), 0)
        __import__("signal").pause()
__import__("time").sleep(30)
"""


def test_a_hog_of_shared_memory(fast: Box) -> None:
    """Many map a little each; what dies is a child, and the payload's own end stands."""
    result = fast.python(SHARED_HOG, limits={"memory_bytes": 48 * MIB}, timeout_s=6, grace_s=0)
    assert (result.usage.oom_kills or 0) >= 1
    assert result.termination in (T.TIMED_OUT, T.OOM_KILLED)
    assert (result.usage.memory_peak_bytes or 0) <= 48 * MIB


FILL = (
    "for d in /tmp /dev/shm $HOME /scratch; do dd if=/dev/zero of=$d/f bs=1M; rm $d/f; done; exit 7"
)


def test_a_filler_of_every_tmpfs(box: Box) -> None:
    """Each is full before memory is: it is told so, and lives on."""
    sizes = {"/tmp": "20M", "/root": "20M", "/scratch": "20M"}
    # That of /dev/shm is fixed: 256 MiB.
    result = box.sh(FILL, limits={"memory_bytes": 320 * MIB}, tmpfs=sizes)
    assert (result.termination, result.exit_code) == (T.EXITED, 7)
    assert result.stderr.count(b"No space left on device") == 4, result.stderr
    assert result.usage.oom_kills == 0


def test_a_filler_of_what_is_larger_than_memory(fast: Box) -> None:
    """A tmpfs is memory: the limit ends it, and it is the payload's verdict."""
    result = fast.sh("exec dd if=/dev/zero of=/dev/shm/f bs=1M", limits={"memory_bytes": 48 * MIB})
    assert result.termination is T.OOM_KILLED


@pytest.mark.parametrize(("name", "count"), [("crun", 64), ("runc", 24)])
def test_many_at_once(fast: Box, name: str, count: int) -> None:
    """In one process, all of them there at the same time."""
    fast.runtime = ours(name)
    # Who reads a pipe that has a name waits for somebody to write (fifo(7)), at no cost.
    gate = fast.workspace / "gate"
    os.mkfifo(gate)
    sandbox = fast.sandbox(limits=LIMITS, timeout_s=600)
    beside = parent()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        all_of_them = [
            stack.enter_context(sandbox.start(["sh", "-c", f"exec 3<{gate}; exit {number}"]))
            for number in range(count)
        ]
        while sum((beside / f"ocisbx-{one.id}/c").exists() for one in all_of_them) < count:
            assert time.monotonic() - started < 300
            time.sleep(1)
        writer = os.open(gate, os.O_RDWR)
        try:
            results = [end_of(one) for one in all_of_them]
        finally:
            os.close(writer)
    assert [result.exit_code for result in results] == list(range(count))
    assert {result.enforcement["memory"].state for result in results} == {S.ENFORCED}
    assert time.monotonic() - started < 300
