"""Dead means dead: whatever the members of a sandbox are up to, and wherever its driver dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.gc import collect
from ocisbx.result import EnforcementState as S
from ocisbx.result import Termination as T
from tests.box import PYTHON, Box, eventually
from tests.cgroups import cgroup, members
from tests.command_line import ROOT
from tests.runtimes.test_killed_driver import die_at_each_step
from tests.vm.rig import (
    MIB,
    PATIENCE_S,
    UID,
    box,
    box_of,
    cache,
    fast,
    ours,
    runtime,
    sandboxes,
    up,
    value,
    write,
)

if TYPE_CHECKING:
    from ocisbx.result import RunResult

__all__ = ["box", "cache", "cgroup", "fast", "runtime"]

pytestmark = pytest.mark.vm

LIMITS = {"memory_bytes": 256 * MIB, "pids": 260}
MEMBERS = ROOT / "tests/runtimes/cgroup_members.py"
TRACER = """
import ctypes, os, signal, time
child = os.fork()
if child == 0:
    ctypes.CDLL(None).ptrace(0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
os.waitpid(child, 0)
print("up", flush=True)
time.sleep(1000)
"""


def tree(count: int) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", MEMBERS.read_text(encoding="utf-8"), "tree", str(count)]


def timed_out(result: RunResult | None) -> None:
    assert result is not None
    assert (result.termination, result.exit_code, result.signal) == (T.TIMED_OUT, None, None)
    assert {result.enforcement[name].state for name in ("memory", "pids")} == {S.ENFORCED}


def test_a_tree_of_200_dies_at_its_timeout(box: Box) -> None:
    """Every fourth stopped, every fourth an orphan in a session of its own, every fourth deaf."""
    sandbox = box.sandbox(limits=LIMITS, timeout_s=20, grace_s=0.2)
    with sandbox.start(tree(200)) as running:
        assert eventually(lambda: running.id and sandboxes(), PATIENCE_S)
        path = box_of(running.id)
        assert eventually(lambda: len(members(path)) >= 200, 20)
        pids = members(path)
        result = running.wait(PATIENCE_S)
    timed_out(result)
    assert not path.exists()
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []


@pytest.mark.parametrize("frozen", ["", "c"])
def test_a_frozen_sandbox_dies_at_its_timeout(box: Box, frozen: str) -> None:
    """Nothing in it can act any more, the init neither: so it dies from outside."""
    sandbox = box.sandbox(limits=LIMITS, timeout_s=3, grace_s=0.2)
    with sandbox.start(["sh", "-c", "trap '' TERM; echo up; while sleep 1; do :; done"]) as running:
        assert eventually(lambda: running.logs() == b"up\n", PATIENCE_S)
        path = box_of(running.id)
        write(path / frozen, "cgroup.freeze", "1")
        assert eventually(lambda: "frozen 1" in value(path / "c", "cgroup.events"), PATIENCE_S)
        result = running.wait(PATIENCE_S)
    timed_out(result)
    assert not path.exists()


def test_one_that_freezes_itself_is_cancelled(fast: Box) -> None:
    """With the hierarchy mounted inside a payload can freeze all that it moves below."""
    script = (
        "mkdir /tmp/m && mount -t cgroup2 none /tmp/m && mkdir /tmp/m/mine && echo up && "
        "echo 1 >/tmp/m/mine/cgroup.freeze && echo $$ >/tmp/m/mine/cgroup.procs; echo thawed"
    )
    sandbox = fast.sandbox(limits=LIMITS, isolation={"level": "privileged"}, grace_s=0.2)
    with sandbox.start(["sh", "-c", script]) as running:
        assert eventually(lambda: running.logs() == b"up\n", PATIENCE_S)
        path = box_of(running.id)
        frozen = path / "c/mine/cgroup.events"
        assert eventually(lambda: "frozen 1" in frozen.read_text(encoding="ascii"), PATIENCE_S)
        running.cancel()
        result = running.wait(PATIENCE_S)
    assert result is not None
    assert (result.termination, result.stdout) == (T.CANCELLED, b"up\n")


def test_a_tracer_and_who_it_stopped(fast: Box) -> None:
    sandbox = fast.sandbox(limits=LIMITS, grace_s=0.2)
    with sandbox.start([PYTHON, "-I", "-S", "-c", TRACER]) as running:
        assert eventually(lambda: running.logs() == b"up\n", PATIENCE_S)
        assert len(members(box_of(running.id))) == 3
        running.cancel()
        result = running.wait(PATIENCE_S)
    assert result is not None
    assert result.termination is T.CANCELLED


def test_the_order_of_the_blows(box: Box) -> None:
    """TERM, for the payload alone; the grace; then SIGKILL for all."""
    script = (
        "trap 'echo term; sleep 0.2; echo again' TERM; "
        "(trap '' TERM; sleep 100) & echo up; wait; sleep 100"
    )
    started = time.monotonic()
    result = box.sh(script, limits=LIMITS, timeout_s=1, grace_s=2)
    timed_out(result)
    assert result.stdout == b"up\nterm\nagain\n"
    assert time.monotonic() - started > 3


# ----------------------------------------------------------------------------- death of the driver
def test_deaths_at_each_step_and_gc(box: Box, cgroup: str) -> None:
    """As tests/runtimes/test_killed_driver.py, where no limits hold."""
    die_at_each_step(box, cgroup, 2, LIMITS, 390)


DIE = """
import os, signal, sys
import ocisbx
from ocisbx.backends.base import Call, Step
from ocisbx.calls import run_plan
plan = ocisbx.Sandbox(runtime={"names": [sys.argv[1]]}, limits={"pids": 100}).resolve()
def on_step(step):
    if step == Step.RUNNING:
        os.kill(os.getpid(), signal.SIGKILL)
run_plan(plan, Call(("sleep", "1000"), os.environ, on_step=on_step))
"""


@pytest.mark.parametrize("name", ["crun", "runsc"])
def test_a_driver_in_a_scope_of_its_own_dies(fast: Box, name: str) -> None:
    """The scope ends with it; the sandbox's cgroup, beside it, is for `gc` to take away."""
    fast.runtime = ours(name)
    service = ["sudo", "systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--uid={UID}"]
    environment = fast.environment | {"PYTHONPATH": str(ROOT)}
    place = [f"--setenv={name}={text}" for name, text in environment.items()]
    driver = [sys.executable, "-P", "-c", DIE, fast.runtime.path]
    done = subprocess.run(
        [*service, *place, f"--working-directory={fast.workspace}", "--", *driver],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (137, 255), done.stderr
    (path,) = sandboxes()
    assert path.parent.name == "app.slice"
    # The manager removes it once it has heard of its end.
    assert eventually(lambda: not list(path.parent.glob("ocisbx-*.scope")))
    assert len(collect()) == 1
    assert not path.exists()
    assert list(fast.bundles.iterdir()) == []


def test_a_record_of_another_boot_or_place_kills_nobody(fast: Box) -> None:
    """`gc` touches the cgroup only that is the record's own by its name."""
    with up(fast) as (running, path):
        record = json.loads((fast.bundles / running.id / "owner.json").read_text(encoding="utf-8"))
        for name, text in (("0123", str(path)), ("4567", f"{path}/../{path.name}")):
            forged = fast.bundles / name
            forged.mkdir()
            document = record | {"id": name, "pid": 1 << 22, "cgroup": text}
            (forged / "owner.json").write_text(json.dumps(document), encoding="utf-8")
        assert {found.id for found in collect()} == {"0123", "4567"}
        assert running.poll() is None
        assert len(members(path)) == 2
        running.kill()
        result = running.wait(PATIENCE_S)
    assert result is not None
    assert (result.termination, result.signal) == (T.SIGNALED, signal.SIGKILL)
