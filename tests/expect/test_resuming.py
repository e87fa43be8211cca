"""Scripts that are broken off: what goes on afterwards, and what is over."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.errors import InvalidState
from ocisbx.expect.ends import Descriptor
from ocisbx.expect.expecting import Expect
from ocisbx.expect.file import build_script
from ocisbx.expect.runner import AsyncScriptRun, ScriptRun
from tests.expect.programs import awaited, driven, program

if TYPE_CHECKING:
    from ocisbx.expect.script import Script

WAIT_S = 30.0
DEAF = ("sh", "-c", "stty raw -echo; echo up; sleep 60")


def script(*steps: dict[str, Any]) -> Script:
    return build_script({"timeout_s": WAIT_S, "steps": list(steps)})


async def break_off(run: AsyncScriptRun, after_s: float = 0.1) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run.advance(), after_s)


def test_one_that_is_cancelled_goes_on_where_it_was() -> None:
    steps = script(
        {"cases": [{"exact": "ready", "answer": "yes"}]},
        {"expect": "yes"},
        {"sleep_s": 0.6},
        {"expect": "never", "timeout_s": 0.6},
    )

    async def go() -> None:
        with awaited("cat") as terminal:
            run = AsyncScriptRun(steps, terminal, {})
            await break_off(run)
            assert not run.over
            await terminal.sendline("ready")
            # In the middle of the pause, then of the last step.
            await break_off(run, 0.3)
            assert not run.over
            began = time.monotonic()
            await break_off(run, 0.5)
            assert not run.over
            assert await run.advance() is None
            # What had passed of both counts.
            assert time.monotonic() - began < 1.1
            report = run.report()
            assert [step.outcome for step in report.steps] == ["next"] * 3 + ["timed_out"]
            assert report.steps[0].typed == 1
            assert report.steps[2].duration_s >= 0.6

    asyncio.run(go())


def test_one_that_is_cancelled_while_it_types_is_over() -> None:
    async def go() -> None:
        with awaited(*DEAF) as terminal:
            steps = script({"expect": "up"}, {"send": "x" * 200_000}, {"expect": "never"})
            run = AsyncScriptRun(steps, terminal, {})
            await break_off(run, 0.5)
            report = run.report()
            assert (report.outcome, len(report.steps)) == ("error", 2)
            assert report.why.startswith("the script was broken off: it typed")
            with pytest.raises(InvalidState, match="the script is over"):
                await run.advance()

    asyncio.run(go())


def interrupt(after_s: float) -> None:
    threading.Timer(after_s, signal.raise_signal, [signal.SIGINT]).start()


def test_ctrl_c_breaks_it_off_likewise() -> None:
    with driven("sh", "-c", "sleep 0.7; echo ready; exec cat") as terminal:
        run = ScriptRun(script({"expect": "ready"}), terminal, {})
        interrupt(0.2)
        with pytest.raises(KeyboardInterrupt):
            run.advance()
        assert run.advance() is None
        assert run.report().outcome == "ok"
    with driven(*DEAF) as terminal:
        run = ScriptRun(script({"expect": "up"}, {"send": "x" * 200_000}), terminal, {})
        interrupt(0.5)
        with pytest.raises(KeyboardInterrupt):
            run.advance()
        assert run.report().outcome == "error"


class Interrupted(Descriptor):
    """Ctrl-C comes while a signal is sent."""

    def signal(self, number: int) -> None:
        del number
        signal.raise_signal(signal.SIGINT)


def test_one_that_is_interrupted_between_two_operations_is_over() -> None:
    with program("cat") as started:
        terminal = Expect(Interrupted(started.terminal.controller_fd))
        run = ScriptRun(script({"signal": "SIGUSR1"}), terminal, {})
        with pytest.raises(KeyboardInterrupt):
            run.advance()
        assert run.report().outcome == "error"
        with pytest.raises(InvalidState, match="the script is over"):
            run.advance()
