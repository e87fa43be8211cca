"""Demands are enforced or refused, wishes declared; ids are mapped or refused."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.errors import ConfigError, InvalidState, Unsupported
from ocisbx.probe.gather import cgroups
from ocisbx.result import EnforcementState
from tests.box import eventually, nap, running
from tests.command_line import ocisbx
from tests.contract.conftest import of_each_kind, refused

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

# Any disk of this machine will do: nothing is read from it.
DISK = min(os.listdir("/sys/dev/block"), default="8:0")
# The name in `enforcement`, the controller that holds it, and what is asked for.
DEMANDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "memory": ("memory", "memory", {"memory_bytes": 256 << 20}),
    "high": ("memory", "memory", {"memory_high_bytes": 256 << 20}),
    "swap": ("swap", "memory", {"memory_bytes": 256 << 20, "swap_bytes": 300 << 20}),
    "cpus": ("cpus", "cpu", {"cpus": 0.5}),
    "weight": ("cpus", "cpu", {"cpu_weight": 50}),
    "cpuset": ("cpus", "cpuset", {"cpuset": str(min(os.sched_getaffinity(0)))}),
    "pids": ("pids", "pids", {"pids": 128}),
    "io": ("io", "io", {"io": {DISK: {"read_bps": 1 << 20, "write_iops": 500}}}),
}


@of_each_kind
@pytest.mark.parametrize(("name", "controller", "limits"), DEMANDS.values(), ids=DEMANDS.keys())
def test_a_demand_is_enforced_or_refused(
    box: Box, name: str, controller: str, limits: dict[str, Any]
) -> None:
    place = cgroups()
    if place.way != "none" and controller in place.controllers:
        result = box.run(["true"], limits=limits)
        assert result.exit_code == 0, result.stderr
        assert result.enforcement[name].state is EnforcementState.ENFORCED
        return
    with pytest.raises(Unsupported, match="cannot be enforced here") as raised:
        box.run(["true"], limits=limits)
    assert raised.value.why
    assert "--allow-degraded " in raised.value.remedy
    assert raised.value.exit_code == 125
    # Memory and swap each by its name.
    allowed = ["memory", name] if controller == "memory" else [name]
    result = box.run(["true"], limits=limits, allow_degraded=allowed)
    entry = result.enforcement[name]
    assert (entry.state, entry.actual) == (EnforcementState.UNSUPPORTED, None)
    assert entry.how


def test_what_cannot_be_held_is_held_by_what_can(box: Box) -> None:
    """Demanded, and given up by name: RLIMIT_NPROC bounds it, and all ends with the call."""
    if "pids" in cgroups().controllers:
        return
    mark = nap()
    bomb = f"for i in 1 2 3 4 5 6 7 8; do setsid sleep {mark} & done; sleep {mark}"
    result = box.sh(bomb, limits={"pids": 4}, allow_degraded=["pids"], timeout_s=20, grace_s=0)
    assert result.enforcement["pids"].state is EnforcementState.UNSUPPORTED
    assert (result.exit_code, b"Cannot fork" in result.stderr) == (2, True), result
    assert eventually(lambda: running(mark) == [])


def test_the_command_line_refuses_a_limit_or_goes_on_without_it(box: Box) -> None:
    if "memory" in cgroups().controllers:
        return
    refused = ocisbx(box, "run", "--memory", "256m", "--", "true")
    assert refused.returncode == 125
    assert "--allow-degraded memory" in refused.stderr
    line = ("run", "--memory", "256m", "--allow-degraded", "memory", "--json", "--", "true")
    done = ocisbx(box, *line)
    assert done.returncode == 0, done.stderr
    entry = json.loads(done.stdout)["enforcement"]["memory"]
    assert (entry["requested"], entry["actual"], entry["state"]) == (256 << 20, None, "unsupported")


def test_enforcement_says_that_a_disk_is_not_bounded(box: Box) -> None:
    entry = box.run(["true"]).enforcement["rlimits"]
    assert "what all of them take of a disk has no bound" in entry.how


def test_wishes_of_the_preset_are_declared(box: Box) -> None:
    result = box.run(["true"])
    assert result.exit_code == 0
    wished = {"memory", "pids", "network", "seccomp", "capabilities", "rlimits"}
    assert wished <= set(result.enforcement)
    for name in ("network", "seccomp", "capabilities", "no_new_privileges", "user_namespace"):
        assert result.enforcement[name].state is EnforcementState.ENFORCED, name
    if cgroups().hierarchy != "unified":
        assert result.enforcement["memory"].state is EnforcementState.UNSUPPORTED
        assert result.enforcement["memory"].requested == 4 << 30
    assert result.usage.memory_peak_bytes is None or result.usage.memory_peak_bytes > 0


@pytest.mark.parametrize("preset", ["coding-agent", "balanced", "locked-down", "yolo"])
def test_presets_run(box: Box, preset: str) -> None:
    if box.lacks("network host") and preset in ("balanced", "yolo"):
        with pytest.raises(Unsupported, match="network host"):
            box.run(["true"], preset=preset)
        return
    result = box.sh("id -u; touch made 2>/dev/null && echo written; :", preset=preset)
    assert result.exit_code == 0, result.stderr
    written = preset != "locked-down"
    assert (b"written" in result.stdout) == written


def test_usage(box: Box) -> None:
    result = box.python("sum(i * i for i in range(2_000_000))")
    usage = result.usage
    assert usage.wall_s is not None
    if usage.cpu_user_s is None:
        # Neither the init nor a cgroup told.
        assert box.lacks("the payload's end is reported by the init")
        return
    assert 0 < usage.cpu_user_s <= usage.wall_s + 0.5
    assert usage.runtime_cpu_s is not None or box.lacks("the payload's end is reported by the init")
    assert result.timings.runtime_s >= usage.wall_s


OTHER = 4242


def test_another_user(box: Box) -> None:
    if not box.maps_others:
        with pytest.raises(Unsupported, match="cannot run as id"):
            box.run(["true"], user=str(OTHER))
        return
    script = "id -u; id -g; id -un; echo $HOME; touch $HOME/x && echo x"
    result = box.sh(script, user=f"{OTHER}:{OTHER}")
    assert result.stdout.decode().split() == [
        str(OTHER), str(OTHER), "user", "/home/user", "x"
    ], result.stderr  # fmt: skip


def test_another_user_writes_into_the_workspace_as_the_caller(box: Box) -> None:
    if not box.maps_others:
        return
    if box.runtime.name != "crun":
        # Subordinate ids are somebody else outside.
        box.workspace.chmod(0o777)
    script = "import os; open('made', 'w').close(); print(os.stat('made').st_uid)"
    result = box.python(script, user=str(OTHER))
    assert (result.exit_code, result.stdout) == (0, f"{OTHER}\n".encode()), result.stderr
    owner = (box.workspace / "made").stat().st_uid
    assert (owner == os.getuid()) == (box.runtime.name == "crun")


@pytest.mark.parametrize("user", ["4000000000", "200000:200000"])
def test_an_id_that_is_not_mapped(box: Box, user: str) -> None:
    if box.runtime.name == "crun":
        shown = box.run(["id", "-u"], user=user).stdout.decode()
        assert shown == user.split(":", maxsplit=1)[0] + "\n"
        return
    with pytest.raises(Unsupported, match=r"not mapped|cannot run as id"):
        box.run(["true"], user=user)


HOSTILE = ("../x", "a/b", "new\nline", "", ".", "..", "x" * 300, "a b", "-x", "nul\0", "ü")


@refused
@pytest.mark.parametrize("name", HOSTILE, ids=[ascii(name)[:20] for name in HOSTILE])
def test_hostile_names(box: Box, name: str) -> None:
    with pytest.raises(ConfigError):
        box.run(["true"], name=name)


def test_a_name_is_one_live_containers(box: Box) -> None:
    with box.sandbox().start(["sleep", "60"], name="mine") as execution:
        with pytest.raises(InvalidState, match="mine is in use") as raised:
            box.run(["true"], name="mine")
        assert execution.id in str(raised.value)
    assert box.run(["true"], name="mine").exit_code == 0


def test_sixteen_at_once(box: Box) -> None:
    """From threads of one Sandbox: each its own output, all at the same time, ids unique."""
    sandbox = box.sandbox()
    barrier = threading.Barrier(16)

    def one(number: int) -> tuple[str, bytes]:
        barrier.wait()
        wait = "while [ $(ls | wc -l) -lt 16 ]; do sleep 0.05; done"
        script = f"touch {number}; {wait}; echo {number}"
        result = sandbox.run(["sh", "-c", script])
        assert result.exit_code == 0, result.stderr
        return result.id, result.stdout

    with ThreadPoolExecutor(16) as pool:
        ends = list(pool.map(one, range(16)))
    assert [int(text) for _, text in ends] == list(range(16))
    assert len({container_id for container_id, _ in ends}) == 16


def test_the_audit_record(box: Box) -> None:
    import json  # noqa: PLC0415 -- for one test

    result = box.run(["sh", "-c", "exit 3", "--token=hunter2hunter2"])
    path = box.base / "state" / "ocisbx" / "audit.jsonl"
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert (record["id"], record["termination"], record["exit_code"]) == (result.id, "exited", 3)
    assert "hunter2" not in line
    assert path.stat().st_mode & 0o777 == 0o600
    box.sandbox(audit=False).run(["true"])
    assert len(path.read_text().splitlines()) == 1


def test_poll_and_wait_with_a_timeout(box: Box) -> None:
    with box.sandbox().start(["sh", "-c", "while ! test -e go; do sleep 0.02; done"]) as execution:
        assert execution.poll() is None
        assert execution.wait(0.05) is None
        (box.workspace / "go").touch()
        assert eventually(lambda: execution.poll() is not None)
        result = execution.wait()
    assert result is not None
    assert result.exit_code == 0
