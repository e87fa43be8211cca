"""What can happen to cgroups, and what can be done to them, around and during a call: the right
verdict or a clear error, nothing left, and neither driver nor siblings any the worse."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from ocisbx.errors import OcisbxError, RuntimeFailed, Unsupported
from ocisbx.result import EnforcementState as S
from ocisbx.result import Termination as T
from tests.box import Box, eventually
from tests.cgroups import members
from tests.vm.rig import (
    HIERARCHY,
    LIMITS,
    MANAGER,
    MIB,
    PATIENCE_S,
    UID,
    attempt,
    box,
    cache,
    end_of,
    fast,
    killed,
    ours,
    parent,
    runtime,
    sandboxes,
    sudo,
    up,
    vacate,
    value,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["box", "cache", "fast", "runtime"]

pytestmark = pytest.mark.vm


# ------------------------------------------------------------------------ what others do meanwhile
def test_a_cgroup_that_vanishes(box: Box) -> None:
    """It cannot as long as anybody is in it; who kills all first can remove it under our feet.
    The runtime is held meanwhile: else it may be over, and we may have looked, before."""
    with up(box) as (running, cgroup):
        for path in (cgroup / "c", cgroup):
            with pytest.raises(OSError, match="busy"):
                path.rmdir()
        with runtimes_held():
            vacate(cgroup)
        result = end_of(running)
    assert (result.termination, result.signal) == (T.SIGNALED, 9)
    assert result.enforcement["memory"].state is S.PARTIAL
    assert "somebody removed its cgroup" in result.enforcement["memory"].how
    assert box.run(["true"], limits=LIMITS).exit_code == 0


@contextlib.contextmanager
def runtimes_held() -> Iterator[None]:
    """No runtime that this process has started goes on."""
    children = psutil.Process().children()
    assert children
    for child in children:
        child.suspend()
    try:
        yield
    finally:
        for child in children:
            child.resume()


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


def test_a_daemon_reload_takes_nothing_of_a_container_that_no_unit_stands_for(
    tmp_path: Path,
) -> None:
    """Its driver has been moved out of the only delegated unit of a slice. systemd would have its
    controllers back; the kernel refuses, since P hands them on to the container."""
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--slice=leaving.slice"]
    fields = {
        "limits": LIMITS | {"cpus": 0.5},
        "workspace": str(tmp_path),
        "runtime": {"names": [ours("crun").path]},
        "command": ["sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.1; done"],
    }
    place = MANAGER / "leaving.slice"
    kept, left = place / "not-a-unit", place / "left.scope"
    with subprocess.Popen([*scope, "sleep", "1000"]) as beside, ThreadPoolExecutor(1) as pool:
        told = pool.submit(attempt, [*scope, "--unit=left", "-pDelegate=yes"], [fields])
        try:
            assert eventually((tmp_path / "up").exists, 4 * PATIENCE_S)
            (cgroup,) = place.glob("ocisbx-*")
            kept.mkdir()
            for pid in members(left):
                write(kept, "cgroup.procs", str(pid))
            assert eventually(lambda: not left.exists(), PATIENCE_S)
            subprocess.run(["systemctl", "--user", "daemon-reload"], check=True)
            held = value(cgroup, "cpu.max")
        finally:
            (tmp_path / "go").touch()
            (one,) = told.result(PATIENCE_S)
            subprocess.run(["systemctl", "--user", "daemon-reload"], check=True)
            handed_on = value(place, "cgroup.subtree_control")
            beside.kill()
            kept.rmdir()
    assert held == "50000 100000"
    assert one["enforcement"]["cpus"]["state"] == "enforced"
    assert handed_on == "memory pids"


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
    """Between two calls, so that the plan counts on it: a demand is refused, a wish is not.
    The runtimes enable all that they can from the root down, and bring it back for the next call.
    """
    demand = box.sandbox(limits=LIMITS | {"cpus": 0.5})
    degraded = box.sandbox(limits=LIMITS | {"cpus": 0.5}, allow_degraded=["cpus"])
    wish = box.sandbox(preset="locked-down")
    for sandbox in (demand, degraded, wish):
        sandbox.resolve()
    with without("cpu"), pytest.raises(OcisbxError, match="cpu") as raised:
        demand.run(["true"])
    assert raised.value.remedy
    for sandbox in (degraded, wish):
        with without("cpu"):
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
    assert set(MANAGER.glob("app.slice/*.scope")) <= before


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
