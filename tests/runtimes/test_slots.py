"""A cap on sandboxes at once, for real: over processes, with drivers that wait, give up and die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx import AsyncSandbox, Sandbox
from ocisbx.backends.base import Call
from ocisbx.calls import run_plan
from ocisbx.errors import InvalidState, OcisbxError
from ocisbx.probe.processes import command_line
from ocisbx.running import CalledOff
from tests.box import RUNTIMES, eventually, running
from tests.command_line import environment, ocisbx, said, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.host import RuntimeBinary
    from tests.box import Box

    Holder = Callable[[], subprocess.Popen[str]]

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


# Slots know no runtimes: one will do, and one of each kind where drivers race or die.
KINDS = {one.name: one for one in RUNTIMES if one.name in ("crun", "runc")}
of_each_kind = pytest.mark.parametrize("runtime", KINDS, indirect=True)


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    return KINDS[getattr(request, "param", min(KINDS))]


@pytest.fixture(autouse=True)
def _no_cap_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCISBX_MAX_SANDBOXES", raising=False)


def capped(box: Box, wait_s: float | None = None, **fields: Any) -> Sandbox:
    return box.sandbox(concurrency={"max": 1, "wait_s": wait_s}, grace_s=0.2, **fields)


@pytest.fixture
def mark() -> Iterator[str]:
    """An argument of `sleep` that tells the processes of this test; none may be left."""
    made = f"86{uuid.uuid4().int % 10**9}"
    yield made
    assert eventually(lambda: running(made) == [])


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
    started = time.monotonic()
    waiting.send_signal(number)
    assert waiting.communicate(timeout=30)[0] == ""
    assert waiting.returncode == 130
    assert time.monotonic() - started < 2
    assert finish(driver, signal.SIGTERM) == 130


# --------------------------------------------------------------------------- threads and asyncio
def test_who_waits_in_start_can_be_interrupted(box: Box) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    sender = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with capped(box).start(["sleep", "60"]):
            sender.start()
            with pytest.raises(KeyboardInterrupt):
                capped(box).start(["true"])
            assert len(list(box.bundles.iterdir())) == 1
    finally:
        sender.join()
        signal.signal(signal.SIGINT, before)


def test_who_is_called_off_does_not_start(box: Box) -> None:
    with capped(box).start(["sleep", "60"]):
        running = capped(box).begin(["true"])
        time.sleep(0.1)
        running.cancel()
        with pytest.raises(CalledOff):
            running.started()


def test_the_loop_goes_on_while_calls_wait(box: Box) -> None:
    async def main() -> tuple[float, list[int | None]]:
        sandbox = capped(box)
        sandbox.resolve()
        gaps: list[float] = []
        tasks = [asyncio.create_task(sandbox.arun(["sleep", "0.1"])) for _ in range(6)]
        while not all(task.done() for task in tasks):
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)
        return sorted(gaps)[len(gaps) // 2], [task.result().exit_code for task in tasks]

    median_s, codes = asyncio.run(main())
    assert codes == [0] * 6
    assert median_s < 0.1


def test_a_waiting_call_can_be_cancelled(box: Box) -> None:
    async def main() -> None:
        async with AsyncSandbox(capped(box).config) as sandbox:
            async with sandbox.start(["sleep", "60"]):
                task = asyncio.create_task(sandbox.run(["true"]))
                background = asyncio.create_task(sandbox.start(["true"]).__aenter__())
                await asyncio.sleep(0.2)
                started = time.monotonic()
                for waiting in (task, background):
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                assert time.monotonic() - started < 1
            result = await sandbox.run(["true"])
            assert result.exit_code == 0

    asyncio.run(main())


def test_more_wait_than_the_loop_has_threads(box: Box) -> None:
    """The one that runs must be able to end while all the others wait."""

    async def main() -> list[int | None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        sandbox = AsyncSandbox(capped(box).config)

        async def one() -> int | None:
            async with sandbox.start(["true"]) as running:
                result = await running.wait()
                assert result is not None
                return result.exit_code

        async with sandbox.start(["sleep", "60"]):
            tasks = [asyncio.create_task(one()) for _ in range(8)]
            await asyncio.sleep(0.3)
        async with asyncio.timeout(60):
            return list(await asyncio.gather(*tasks))

    assert asyncio.run(main()) == [0] * 8


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
