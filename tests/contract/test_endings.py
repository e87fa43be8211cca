"""How a payload is ended from outside: timeout, TERM, grace, KILL, cancel, the output limit."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from ocisbx.result import Termination as T
from tests.box import eventually, nap, running
from tests.contract.conftest import of_each_kind

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

# What a noisy machine may add to a bounded wait.
NOISE_S = 20.0
ON_TERM = "trap 'echo term; exit {code}' TERM; sleep 60 & echo ready; wait"
DEAF = "trap '' TERM INT HUP; echo ready; while :; do sleep 0.05; done"


def soon_s(box: Box) -> float:
    """Long enough for a payload to say that it is ready."""
    # Where nothing is reported the runtime's own start counts too.
    slow = box.runtime.name == "runsc" or box.lacks("the payload's end is reported by the init")
    return 3.0 if slow else 1.0


@of_each_kind
def test_timeout_ends_with_term(box: Box) -> None:
    started = time.monotonic()
    timeout_s = soon_s(box)
    result = box.sh(ON_TERM.format(code=5), timeout_s=timeout_s, grace_s=60)
    assert time.monotonic() - started < timeout_s + NOISE_S
    assert (result.termination, result.shell_exit_code) == (T.TIMED_OUT, 124)
    assert (result.exit_code, result.signal) == (None, None)
    assert result.stdout == b"ready\nterm\n"


@of_each_kind
def test_timeout_ends_with_kill_after_the_grace(box: Box) -> None:
    started = time.monotonic()
    timeout_s = soon_s(box)
    result = box.sh(DEAF, timeout_s=timeout_s, grace_s=0.5)
    assert timeout_s + 0.5 <= time.monotonic() - started < timeout_s + NOISE_S
    assert (result.termination, result.shell_exit_code) == (T.TIMED_OUT, 124)
    assert result.stdout == b"ready\n"


@of_each_kind
def test_no_grace_is_kill_at_once(box: Box) -> None:
    result = box.sh(ON_TERM.format(code=5), timeout_s=soon_s(box), grace_s=0)
    assert (result.termination, result.stdout) == (T.TIMED_OUT, b"ready\n")


@of_each_kind
@pytest.mark.parametrize("code", [0, 124, 137])
def test_a_payload_that_cleans_up_after_term_has_timed_out(box: Box, code: int) -> None:
    result = box.sh(ON_TERM.format(code=code), timeout_s=0.4)
    assert (result.termination, result.shell_exit_code) == (T.TIMED_OUT, 124)


def test_a_stopped_payload_times_out(box: Box) -> None:
    result = box.sh("kill -STOP $$", timeout_s=0.3, grace_s=0.3)
    assert (result.termination, result.shell_exit_code) == (T.TIMED_OUT, 124)


def test_every_descendant_dies_at_the_timeout(box: Box) -> None:
    mark = nap()
    deep = f"(trap '' TERM; setsid sh -c 'sleep {mark}; :') & (sleep {mark} &) ; sleep {mark}"
    result = box.sh(deep, timeout_s=0.5, grace_s=0.2)
    assert result.termination is T.TIMED_OUT
    assert running(mark) == []


@of_each_kind
@pytest.mark.parametrize("early_s", [0.3, 0.05, 0.03, 0.02, 0.01, 0.0, -0.02])
def test_an_end_close_to_the_timeout_is_one_or_the_other(box: Box, early_s: float) -> None:
    """No mixture: what a payload returned stands, unless the driver's signal reached it first."""
    result = box.sh(f"sleep {0.5 - early_s}; exit 137", timeout_s=0.5)
    end = (result.termination, result.exit_code, result.signal, result.shell_exit_code)
    own: object = (T.EXITED, 137, None, 137)
    if box.lacks("the payload's end is reported by the init"):
        own = (T.SIGNALED, None, 9, 137)
    assert end in {own, (T.TIMED_OUT, None, None, 124)}
    if result.termination is T.EXITED:
        assert result.usage.wall_s is not None
        assert result.usage.wall_s < 0.5 + NOISE_S


def test_cancel(box: Box) -> None:
    with box.sandbox().start(["sh", "-c", ON_TERM.format(code=0)]) as execution:
        assert eventually(lambda: execution.logs() == b"ready\n")
        execution.cancel()
        result = execution.wait()
    assert result is not None
    assert (result.termination, result.shell_exit_code) == (T.CANCELLED, 130)
    assert result.stdout == b"ready\nterm\n"


def test_cancel_of_a_deaf_payload_twice_is_kill_at_once(box: Box) -> None:
    with box.sandbox(grace_s=60).start(["sh", "-c", DEAF]) as execution:
        assert eventually(lambda: execution.logs() == b"ready\n")
        started = time.monotonic()
        execution.cancel()
        assert execution.wait(0.2) is None
        execution.cancel()
        result = execution.wait()
    assert time.monotonic() - started < NOISE_S
    assert result is not None
    assert (result.termination, result.shell_exit_code) == (T.CANCELLED, 130)


def test_leaving_the_context_ends_it(box: Box) -> None:
    with box.sandbox().start(["sh", "-c", "echo ready; sleep 1000"]) as execution:
        assert eventually(lambda: execution.logs() == b"ready\n")
        assert box.serving()
    result = execution.poll()
    assert result is not None
    assert result.termination is T.CANCELLED
    assert box.serving() == []


def test_cancellation_of_the_awaiting_task(box: Box) -> None:
    ready: list[bytes] = []

    async def cancelled() -> None:
        command = ["sh", "-c", "echo ready; sleep 1000"]
        task = asyncio.create_task(box.sandbox().arun(command, on_stdout=ready.append))
        while not ready:
            await asyncio.sleep(0.01)
        assert box.serving()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert box.serving() == []

    asyncio.run(cancelled())


@of_each_kind
@pytest.mark.parametrize("number", [1, 2, 10, 12, 15])
def test_a_signal_reaches_the_payload(box: Box, number: int) -> None:
    catch = f"trap 'echo got; exit 9' {number}; echo ready; while :; do sleep 0.02; done"
    with box.sandbox().start(["sh", "-c", catch]) as execution:
        assert eventually(lambda: execution.logs() == b"ready\n")
        execution.signal(number)
        result = execution.wait()
    assert result is not None
    assert (result.termination, result.exit_code) == (T.EXITED, 9)
    assert result.stdout == b"ready\ngot\n"


@pytest.mark.parametrize("number", [15, 9])
def test_a_signal_right_after_the_start_is_not_lost(box: Box, number: int) -> None:
    """The payload may not run yet: it gets the signal as soon as it does."""
    with box.sandbox().start(["sleep", "60"]) as execution:
        execution.signal(number)
        result = execution.wait(NOISE_S)
    assert result is not None
    assert (result.termination, result.signal) == (T.SIGNALED, number)
    assert result.shell_exit_code == 128 + number


def test_cancel_right_after_the_start(box: Box) -> None:
    with box.sandbox(grace_s=60).start(["sleep", "60"]) as execution:
        execution.cancel()
        result = execution.wait(NOISE_S)
    assert result is not None
    assert (result.termination, result.shell_exit_code) == (T.CANCELLED, 130)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_limit_kills(box: Box, stream: str) -> None:
    script = "yes" if stream == "stdout" else "yes >&2"
    result = box.sh(script, capture={"max_bytes": 5000, "on_limit": "kill"}, grace_s=60)
    assert (result.termination, result.shell_exit_code) == (T.OUTPUT_LIMIT, 141)
    kept = result.stdout if stream == "stdout" else result.stderr
    assert kept == b"y\n" * 2500


def test_at_the_limit_is_not_beyond_it(box: Box) -> None:
    capture = {"max_bytes": 5000, "on_limit": "kill"}
    result = box.sh("head -c 5000 /dev/zero", capture=capture)
    assert (result.termination, result.exit_code) == (T.EXITED, 0)
    assert (result.stdout_bytes, result.stdout_truncated) == (5000, False)
