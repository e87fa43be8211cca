"""SIGKILL of the driver at each step of a call: `gc`, or the next start, takes all of it away."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ocisbx
from ocisbx.backends.base import Call, Step
from ocisbx.backends.gc import UNOWNED_S, collect
from ocisbx.bundle.directory import is_ours
from ocisbx.calls import run_plan
from ocisbx.probe.cgroups import DRIVER_LEAF
from tests.box import eventually, nap, running
from tests.cgroups import ENTER, cgroup, members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.box import Box

__all__ = ["cgroup"]

pytestmark = pytest.mark.runtime

DRIVER = Path(__file__).with_name("killed_driver.py")
ROOT = DRIVER.parents[2]
ROUNDS = [*(step.value for step in Step), "in between"]


def environment(box: Box) -> dict[str, str]:
    return {**os.environ, **box.environment, "PYTHONPATH": str(ROOT)}


def die_at_each_step(box: Box, cgroup: str, deaths: int, limits: object, patience_s: float) -> None:
    """So many drivers a round; of none is anything left: bundles, names, processes, cgroups."""
    mark = nap()
    leaf = f"{cgroup}/{DRIVER_LEAF}"
    os.mkdir(leaf)
    driver = [sys.executable, str(DRIVER), box.runtime.path, str(box.workspace), mark, str(deaths)]
    completed = subprocess.run(
        ["sh", "-c", ENTER, leaf, *driver, json.dumps(limits)],
        env=environment(box),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s,
    )
    rounds = [json.loads(line) for line in completed.stdout.splitlines()]
    assert [one["round"] for one in rounds] == ROUNDS, completed.stderr
    for one in rounds:
        assert one["deaths"] == deaths, one
        assert one["collected"].isdigit(), one
        assert one["left"] == [], one
    assert eventually(lambda: running(mark) == [])


def test_ten_deaths_at_each_step_and_gc(box: Box, cgroup: str) -> None:
    die_at_each_step(box, cgroup, 10, {}, 110)


DIE_AT = """
import os, signal, sys
import ocisbx
from ocisbx.backends.base import Call, Step
from ocisbx.calls import run_plan
runtime, workspace, step, name, *argv = sys.argv[1:]
plan = ocisbx.Sandbox(runtime={"names": [runtime]}, workspace=workspace).resolve()
def on_step(reached):
    if reached == step:
        os.kill(os.getpid(), signal.SIGKILL)
run_plan(plan, Call(tuple(argv), os.environ, name=name, on_step=on_step))
"""


def die_at(box: Box, step: Step, *argv: str, name: str = "doomed") -> None:
    words = [sys.executable, "-c", DIE_AT, box.runtime.path, str(box.workspace)]
    status = subprocess.run(
        [*words, step.value, name, *argv], env=environment(box), check=False
    ).returncode
    assert status == -9


@pytest.mark.parametrize("step", [Step.BUNDLE_MADE, Step.RUNNING, Step.DELETING])
def test_later_starts_sweep_in_passing(box: Box, step: Step) -> None:
    mark = nap()
    script = f"sleep {mark}" if step is not Step.DELETING else f"sleep {mark} & exit 0"
    die_at(box, step, "sh", "-c", script)
    assert len(list(box.bundles.iterdir())) == 1
    assert eventually(lambda: box.run(["true"]).exit_code == 0 and not any(box.bundles.iterdir()))
    assert eventually(lambda: running(mark) == [])
    # Its name is free again.
    assert box.run(["true"], name="doomed").exit_code == 0


def test_a_start_sweeps_though_its_driver_is_killed_too(box: Box) -> None:
    """And before its payload runs, which would have to wait for it."""
    die_at(box, Step.BUNDLE_MADE, "true", name="first")
    [first] = box.bundles.iterdir()
    die_at(box, Step.CREATED, "true", name="second")
    [second] = box.bundles.iterdir()
    assert second.name != first.name
    assert eventually(lambda: collect() != [])


def test_gc_leaves_live_containers_alone(box: Box) -> None:
    reader, writer = os.pipe()
    with box.sandbox().start(["cat"], input=reader) as other:
        die_at(box, Step.CREATED, "sleep", "60")
        removed = collect()
        assert [found.owner is not None and found.owner.name for found in removed] == ["doomed"]
        assert [path.name for path in box.bundles.iterdir()] == [other.id]
        os.close(writer)
        result = other.wait()
    os.close(reader)
    assert result is not None
    assert result.exit_code == 0


def test_a_fork_of_a_driver_has_none_of_its_bundles(box: Box) -> None:
    with box.sandbox().start(["sleep", "60"]) as other:
        assert is_ours(other.id)
        child = os.fork()
        if not child:
            os._exit(is_ours(other.id))
        assert os.waitpid(child, 0) == (child, 0)
        other.cancel()
    assert not is_ours(other.id)


def test_gc_leaves_live_containers_of_other_processes_alone(box: Box) -> None:
    script = "import ocisbx, sys; ocisbx.run(['cat'], input=0, name='other', workspace='none')"
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment(box), stdin=subprocess.PIPE
    ) as other:
        assert eventually(lambda: any(box.bundles.glob("*/owner.json")))
        assert collect() == []
        assert box.run(["true"]).exit_code == 0
        assert len(list(box.bundles.iterdir())) == 1
        assert (box.run_directory / "ocisbx" / "names" / "other").exists()
        assert other.stdin is not None
        other.stdin.close()
        assert other.wait(20) == 0


def test_a_bundle_without_a_record_is_collected(box: Box) -> None:
    """A bundle has its name when its record is in it, and loses the record last: whoever left it so
    died while taking it away."""
    box.run(["true"])
    empty, rest = box.bundles / "0123", box.bundles / "4567"
    empty.mkdir()
    rest.mkdir()
    (rest / "covers").symlink_to(box.base)
    assert [found.id for found in collect()] == ["0123", "4567"]
    assert list(box.bundles.iterdir()) == []
    assert box.base.is_dir()


def test_a_damaged_record_is_left_alone_for_a_while(box: Box) -> None:
    """What cannot be read may be of a live driver."""
    box.run(["true"])
    young, old = box.bundles / "0123", box.bundles / "4567"
    for bundle in (young, old):
        bundle.mkdir()
        (bundle / "owner.json").write_text("{")
    stale = old.stat().st_mtime - UNOWNED_S - 1
    os.utime(old, (stale, stale))
    assert [found.id for found in collect()] == ["4567"]
    assert list(box.bundles.iterdir()) == [young]
    (young / "owner.json").unlink()
    young.rmdir()


def test_a_record_that_is_no_record(box: Box) -> None:
    """A half-written, foreign or hostile record is treated as none: nothing is run or followed."""
    box.run(["true"])
    precious = box.base / "precious"
    precious.mkdir()
    (precious / "file").touch()
    bundle = box.bundles / "cafe"
    bundle.mkdir()
    (bundle / "link").symlink_to(precious)
    for text in ("", "{", "[]", '{"id": "x"}', '{"pid": "1"}', "null"):
        (bundle / "owner.json").write_text(text)
        stale = bundle.stat().st_mtime - UNOWNED_S - 1
        os.utime(bundle, (stale, stale))
        assert [found.id for found in collect()] == ["cafe"]
        assert (precious / "file").exists()
        bundle.mkdir()
        (bundle / "link").symlink_to(precious)
    (bundle / "link").unlink()
    bundle.rmdir()


def test_a_reused_pid_is_not_the_owner(box: Box) -> None:
    """The record of a dead driver, whose pid (and only that) now belongs to somebody alive."""
    box.run(["true"])
    die_at(box, Step.BUNDLE_MADE, "true")
    (record,) = box.bundles.glob("*/owner.json")
    document = json.loads(record.read_text())
    for change in ({"pid": os.getpid()}, {"pid": 1}, {"pid": os.getpid(), "boot_id": "other"}):
        record.write_text(json.dumps(document | change))
        assert ocisbx.run(["true"], runtime={"names": [box.runtime.path]}, workspace="none")
        assert collect() or not any(box.bundles.iterdir())
        box.bundles.joinpath(document["id"]).mkdir()
        record.write_text(json.dumps(document))
    assert [found.id for found in collect()] == [document["id"]]


def test_the_steps_come_in_order(box: Box) -> None:
    seen: list[Step] = []
    call = Call(("true",), os.environ, on_step=seen.append)
    run_plan(box.sandbox().resolve(), call)
    assert seen == list(Step)


def test_the_record_stays_as_long_as_somebody_does(box: Box, cgroup: str) -> None:
    """Held at its exit by a debugger outside: without the record nobody would look for it again."""
    box.run(["true"])
    bundle = box.bundles / os.path.basename(cgroup).removeprefix("ocisbx-")
    die_at(box, Step.BUNDLE_MADE, "true")
    (dead,) = box.bundles.iterdir()
    document = json.loads((dead / "owner.json").read_text()) | {"id": bundle.name, "cgroup": cgroup}
    dead.rename(bundle)
    (bundle / "owner.json").write_text(json.dumps(document))
    with held_in(cgroup) as tracer:
        if collect() == []:
            assert members(cgroup)
            assert bundle.exists()
        tracer.kill()
    assert [found.id for found in collect()] in ([bundle.name], [])
    assert not bundle.exists()
    assert not os.path.exists(cgroup)


@contextlib.contextmanager
def held_in(cgroup: str) -> Iterator[subprocess.Popen[bytes]]:
    """The tracer of a process in the cgroup."""
    script = str(Path(__file__).with_name("cgroup_members.py"))
    argv = [sys.executable, script, "held", cgroup]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as tracer:
        assert tracer.stdout is not None
        try:
            assert tracer.stdout.readline()
            yield tracer
        finally:
            tracer.kill()
