"""A cap on sandboxes at once, for real: over processes, with drivers that wait, give up and die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.base import Call
from ocisbx.calls import run_plan
from ocisbx.errors import InvalidState, OcisbxError
from ocisbx.probe.processes import command_line
from tests.box import eventually, running
from tests.command_line import environment, ocisbx, said, start
from tests.runtimes.capped import capped, mark, no_cap_around, of_each_kind, runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.box import Box

    Holder = Callable[[], subprocess.Popen[str]]

__all__ = ["mark", "no_cap_around", "runtime"]

pytestmark = pytest.mark.runtime

# Each notes how many it sees beside itself.
COUNT = "touch in/$1; ls in | wc -l >>seen; sleep 0.02; rm in/$1"
SIXTEEN = """
import asyncio, os, sys
import ocisbx
first, most, script = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
async def main():
    names = [os.environ["OCISBX_RUNTIME"]]
    sandbox = ocisbx.Sandbox(concurrency={"max": most}, runtime={"names": names})
    calls = [["sh", "-c", script, "sh", str(number)] for number in range(first, first + 16)]
    results = await asyncio.gather(*map(sandbox.arun, calls))
    sys.exit(any(result.exit_code != 0 for result in results))
asyncio.run(main())
"""


@of_each_kind
def test_sixty_four_at_once_of_which_four_may_run(box: Box) -> None:
    (box.workspace / "in").mkdir()
    words = [sys.executable, "-P", "-c", SIXTEEN]
    drivers = [
        subprocess.Popen(
            [*words, str(first), "4", COUNT],
            env=environment(box),
            cwd=box.workspace,
            stderr=subprocess.PIPE,
            text=True,
        )
        for first in range(0, 64, 16)
    ]
    ends = [(driver.communicate(timeout=100)[1], driver.returncode) for driver in drivers]
    assert ends == [("", 0)] * 4
    seen = [int(line) for line in (box.workspace / "seen").read_text().split()]
    assert len(seen) == 64
    assert max(seen) <= 4
    # They ran side by side, where there is more than one processor.
    assert max(seen) > 1 or os.cpu_count() == 1


def test_callers_with_different_caps_count_the_same_sandboxes(box: Box) -> None:
    wide = box.sandbox(concurrency={"max": 3, "wait_s": 0})
    narrow = box.sandbox(concurrency={"max": 2, "wait_s": 0})
    with wide.start(["sleep", "60"]), wide.start(["sleep", "60"]):
        with pytest.raises(InvalidState):
            narrow.run(["true"])
        assert wide.run(["true"]).exit_code == 0
        with wide.start(["sleep", "60"]), pytest.raises(InvalidState):
            wide.run(["true"])
    assert narrow.run(["true"]).exit_code == 0


def test_a_refusal_names_who_runs(box: Box) -> None:
    with capped(box).start(["sh", "-c", "sleep 60", "--password=hunter2"]) as other:
        with pytest.raises(InvalidState, match="no slot is free") as caught:
            capped(box, 0).run(["true"])
        with pytest.raises(InvalidState, match=r"no slot came free in 0\.1 s"):
            capped(box, 0.1).start(["true"])
    why = caught.value.why
    assert why.startswith(f"{other.id} ")
    assert "sleep 60" in why
    assert "hunter2" not in why
    assert capped(box, 0).run(["true"]).exit_code == 0


def test_who_has_no_cap_is_neither_counted_nor_held_back(box: Box) -> None:
    with box.sandbox().start(["sleep", "60"]), capped(box, 0).start(["sleep", "60"]):
        assert box.run(["true"]).exit_code == 0


def test_another_place_has_its_own_count(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = box.base / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    with capped(box).start(["sleep", "60"]):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(elsewhere))
        assert capped(box, 0).run(["true"]).exit_code == 0
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(box.run_directory))


def test_the_environment_caps_whoever_says_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCISBX_MAX_SANDBOXES", "1")
    wide = box.sandbox(concurrency={"max": 9, "wait_s": 0})
    refused = pytest.raises(InvalidState, match="OCISBX_MAX_SANDBOXES")
    with box.sandbox().start(["sleep", "60"]), refused:
        wide.run(["true"])
    assert wide.run(["true"]).exit_code == 0


@pytest.mark.parametrize("fault", ["no runtime", "a callback", "no program"])
def test_a_slot_comes_back_whatever_happens(box: Box, fault: str) -> None:
    def fail(_: bytes) -> None:
        raise OcisbxError("from the callback")

    if fault == "no program":
        assert capped(box, 0).run(["no-such-program"]).termination == "not_found"
    elif fault == "a callback":
        with pytest.raises(OcisbxError, match="from the callback"):
            capped(box, 0).run(["echo", "x"], on_stdout=fail)
    else:
        plan = capped(box, 0).resolve()
        gone = plan.runtime._replace(path=f"{box.base}/gone")
        with pytest.raises(OcisbxError):
            run_plan(plan._replace(runtime=gone, sealed=False), Call(("true",), os.environ))
    assert capped(box, 0).run(["true"]).exit_code == 0


# ------------------------------------------------------------------------------------- processes
@pytest.fixture
def hold_elsewhere(box: Box, mark: str) -> Iterator[Holder]:
    """Begins another process's sandbox, and returns once its payload runs."""
    drivers: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        words = ("run", "--max-sandboxes", "1", "--grace", "0.2", "--", "sleep", mark)
        drivers.append(start(box, *words))
        assert eventually(lambda: any(command_line(pid)[:1] == [b"sleep"] for pid in running(mark)))
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.kill()
        driver.communicate()


def finish(driver: subprocess.Popen[str], number: signal.Signals) -> int:
    driver.send_signal(number)
    driver.communicate(timeout=30)
    return driver.returncode


@of_each_kind
def test_a_killed_driver_frees_its_slot(box: Box, mark: str, hold_elsewhere: Holder) -> None:
    for _ in range(3):
        driver = hold_elsewhere()
        done = ocisbx(box, "run", "--max-sandboxes", "1", "--wait", "0", "true")
        assert done.returncode == 125
        assert finish(driver, signal.SIGKILL) == -signal.SIGKILL
        assert capped(box, 0).run(["true"]).exit_code == 0
        # Else it would be taken for the next one's payload.
        assert eventually(lambda: running(mark) == [])
    assert eventually(lambda: box.run(["true"]).exit_code == 0 and not any(box.bundles.iterdir()))


def test_a_stopped_driver_keeps_its_slot(box: Box, mark: str, hold_elsewhere: Holder) -> None:
    driver = hold_elsewhere()
    driver.send_signal(signal.SIGSTOP)
    with pytest.raises(InvalidState, match="no slot"):
        capped(box, 0.2).run(["true"])
    driver.send_signal(signal.SIGCONT)
    assert finish(driver, signal.SIGTERM) == 130


def test_the_command_line_refuses(box: Box, mark: str, hold_elsewhere: Holder) -> None:
    driver = hold_elsewhere()
    (bundle,) = box.bundles.iterdir()
    done = ocisbx(box, "run", "--max-sandboxes", "1", "--wait", "0.1", "true")
    assert done.returncode == 125
    what, remedy = said(done).splitlines()
    assert what.startswith("ocisbx: no slot came free in 0.1 s: no more than 1 of your sandboxes")
    assert what.endswith(f"{bundle.name} 'sleep {mark}'")
    assert remedy.startswith("  remedy: wait longer")
    variable = {"OCISBX_MAX_SANDBOXES": "1"}
    done = ocisbx(box, "run", "--wait", "0", "true", env=variable)
    assert (done.returncode, "OCISBX_MAX_SANDBOXES" in done.stderr) == (125, True)
    assert finish(driver, signal.SIGINT) == 130


def test_the_command_line_waits_and_says_so(box: Box, mark: str, hold_elsewhere: Holder) -> None:
    driver = hold_elsewhere()
    waiting = start(box, "run", "--max-sandboxes", "1", "--json", "echo", "done")
    hear_it_wait(waiting)
    time.sleep(1)
    assert waiting.poll() is None
    assert finish(driver, signal.SIGTERM) == 130
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, '"stdout": "done\\n"' in out) == (0, True)
    assert "waiting" not in err


def hear_it_wait(driver: subprocess.Popen[str]) -> None:
    """Read what it says until it says that it waits."""
    assert driver.stderr is not None
    while (line := driver.stderr.readline()).startswith("ocisbx: note: "):
        pass
    rule = "no more than 1 of your sandboxes may run at once"
    assert line == f"ocisbx: waiting for a slot: {rule} (ocisbx ps lists them)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_waiting(
    box: Box, mark: str, hold_elsewhere: Holder, number: signal.Signals
) -> None:
    driver = hold_elsewhere()
    waiting = start(box, "run", "--max-sandboxes", "1", "echo", "never")
    hear_it_wait(waiting)
    waiting.send_signal(number)
    assert waiting.communicate(timeout=30)[0] == ""
    assert waiting.returncode == 130
    assert finish(driver, signal.SIGTERM) == 130


# ---------------------------------------------------------------------------------- what is there
def test_a_plan_is_made_anew_when_it_aged_while_waiting(box: Box) -> None:
    """What is protected came to be there after the plan was made."""
    sandbox = capped(box)
    first = sandbox.resolve()
    hooks = box.workspace / ".git" / "hooks"
    with capped(box).start(["sleep", "60"]) as other:
        waiting = sandbox.begin(["sh", "-c", "echo x >.git/hooks/post-commit"])
        time.sleep(0.2)
        hooks.mkdir(parents=True)
        other.kill()
    result = waiting.started().wait(60)
    assert result is not None
    assert result.exit_code != 0
    assert list(hooks.iterdir()) == []
    assert sandbox.resolve() is not first


def test_a_hostile_slot_is_a_clear_error(box: Box) -> None:
    assert capped(box).run(["true"]).exit_code == 0
    slot = box.run_directory / "ocisbx" / "slots" / "0"
    slot.unlink()
    os.mkfifo(slot)
    with pytest.raises(OcisbxError, match="is not a file that you own"):
        capped(box).run(["true"])
    done = ocisbx(box, "run", "--max-sandboxes", "1", "true")
    assert done.returncode == 125
    assert f"remedy: remove it: rm -rf {slot}" in done.stderr
    assert box.run(["true"]).exit_code == 0
    slot.unlink()


# In namespaces of one's own: a file system without room for a slot, and a slot that belongs to
# somebody else.
FULL = """
mount -t tmpfs -o size=16k,nr_inodes=4,mode=711 none /mnt
mkdir -m 711 /mnt/ocisbx /mnt/ocisbx/slots
touch /mnt/last
exec "$@"
"""
FOREIGN = """
mount -t tmpfs -o mode=711 none /mnt
mkdir -m 711 /mnt/ocisbx /mnt/ocisbx/slots
touch /mnt/ocisbx/slots/0
chown 5 /mnt/ocisbx/slots/0
exec "$@"
"""
TAKE = """
import ocisbx.slots as slots
from ocisbx.errors import OcisbxError
try:
    slots.hold_slot(slots.Cap(1, "", 0)).__enter__()
except OcisbxError as error:
    print(error.render())
"""


@pytest.mark.parametrize(
    ("prepare", "what", "remedy"),
    [
        (FULL, "cannot be made: No space left on device", "make room there"),
        (FOREIGN, "you own and may write: owner 5, mode -rw-r--r--", "rm -rf /mnt/ocisbx/slots/0"),
    ],
    ids=["full", "somebody else's"],
)
def test_a_directory_of_slots_that_cannot_be_used(
    box: Box, prepare: str, what: str, remedy: str
) -> None:
    done = subprocess.run(
        [
            *("unshare", "--map-root-user", "--map-auto", "--mount", "sh", "-ec", prepare, "sh"),
            *(sys.executable, "-P", "-c", TAKE),
        ],
        env=environment(box, {"XDG_RUNTIME_DIR": "/mnt"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert what in done.stdout
    assert remedy in done.stdout
