"""A command on a terminal that its caller holds: started as a run is, driven by the keeper."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.backends.keeper import KEEPER
from ocisbx.backends.oci import set_up
from ocisbx.backends.terminal import OnTerminal
from ocisbx.calls import (
    Renewal,
    Told,
    Waiting,
    choose_again,
    conclude,
    launch_with_less,
    still_true,
    turn,
)
from ocisbx.errors import CgroupError, OcisbxError
from ocisbx.outcome import Failure
from ocisbx.result import describe_end
from ocisbx.running import Point
from ocisbx.terminal.terminal import Ending
from ocisbx.values import utc_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.backends.base import Call
    from ocisbx.plan import Plan
    from ocisbx.result import RunResult
    from ocisbx.slots import Slot


class Started(NamedTuple):
    """An execution whose payload runs, or has ended, and all that goes with its end. `explain`
    raises what its verdict cannot say."""

    plan: Plan
    execution: OnTerminal
    stack: contextlib.ExitStack
    explain: Callable[[], object] = lambda: None


class Spawned:
    """Implements `terminal.terminal.Program`."""

    def __init__(
        self, started: Started, call: Call, started_at: str, *, resolve_s: float, audit: bool
    ) -> None:
        self._plan, self._execution, self._stack, self._explain = started
        self._call = call
        self._started_at = started_at
        self._resolve_s = resolve_s
        self._audit = audit
        self._ended = Point()
        self._finishing = threading.Lock()
        self._result: RunResult | None = None
        self._error: BaseException | None = None
        if self._execution.verdict is None:
            KEEPER.keep(self._execution, self._end)
        else:
            self._ended.reach()

    @property
    def id(self) -> str:
        return self._execution.id

    @property
    def pid(self) -> int:
        """As the payload sees it; 0: it never ran."""
        return self._execution.payload_pid

    @property
    def controller_fd(self) -> int:
        """The terminal's, -1 where there is none (any more)."""
        return self._execution.terminal.controller_fd

    @property
    def has_ended(self) -> bool:
        return self._ended.reached()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether it has ended by then."""
        return self._ended.reached(timeout_s)

    def then(self, callback: Callable[[], None]) -> None:
        """Have another thread call this when it has ended; at once where it has."""
        self._ended.then(callback)

    def signal(self, number: int) -> None:
        """The payload's process alone; silent when it has ended."""
        self._execution.kill(number)

    def cancel(self) -> None:
        """SIGTERM, the grace, SIGKILL; asked again: SIGKILL."""
        self._execution.cancel()

    def count(self, size: int) -> None:
        """So many bytes were read of the terminal."""
        if self._execution.terminal.count(size):
            self._execution.end_output()

    def ending(self) -> Ending | None:
        """How it ended; None before that."""
        verdict = self._execution.verdict if self.has_ended else None
        if verdict is None:
            return None
        if isinstance(verdict, Failure):
            return Ending(verdict.what)
        return Ending(describe_end(verdict), verdict.exit_code)

    def finish(self) -> RunResult:
        """Once it has ended: take away what is left, and tell.

        Raises:
            OcisbxError: ocisbx or the runtime failed.
        """
        with self._finishing:
            if self._result is None and self._error is None:
                try:
                    self._result = self._conclude()
                except BaseException as error:  # noqa: BLE001 -- raised below, and when asked again
                    self._error = error
        if self._error is not None:
            with contextlib.suppress(OcisbxError):
                self._stack.close()
            raise self._error
        assert self._result is not None
        return self._result

    def _conclude(self) -> RunResult:
        execution = self._execution
        with self._stack:
            self._explain()
            captured = execution.stdio.finish(keep=False)
        execution.clock.cleaned = time.monotonic()
        verdict = execution.verdict
        # What the loop has raised was kept as the error.
        assert verdict is not None
        told = Told(self._plan, self._call, execution, verdict, captured)
        return conclude(told, self._started_at, resolve_s=self._resolve_s, audit=self._audit)

    def _end(self, error: BaseException | None) -> None:
        # What is left is taken away by whoever asks for the result.
        self._error = error
        self._ended.reach()


def spawn_plan(
    plan: Plan,
    call: Call,
    *,
    resolve_s: float = 0.0,
    audit: bool = True,
    renewal: Renewal | None = None,
) -> Spawned:
    """Start one call of a plan with a terminal and return when its payload runs, or has ended.

    Raises:
        PolicyDenied: `[commands]` does not let it run.
        TerminalError: the runtime did not hand over the terminal.
        OcisbxError: as `calls.run_plan`.
    """
    from ocisbx.backends.gc import sweep  # noqa: PLC0415 -- as calls.run_plan does

    plan.commands.check(call.argv)
    # The container is taken away first, then its slot is free.
    whole = contextlib.ExitStack()
    with contextlib.ExitStack() as stack:
        slot = stack.enter_context(turn(plan, Waiting()))
        if slot is not None and slot.waited:
            plan = still_true(plan, renewal)
        sweep()
        started_at = utc_text()
        try:
            started = _start(plan, call, slot, stack)
        except CgroupError as error:
            if renewal is None:
                raise
            plan, started = launch_with_less(
                plan, error, renewal, lambda plan: _start(plan, call, slot, stack)
            )
        execution = started.execution
        failed = isinstance(execution.verdict, Failure) and not execution.payload_ran
        if failed and (second := choose_again(plan, renewal)) is not None:
            started.stack.close()
            started = _start(second, call, slot, stack)
            execution = started.execution
        started = started._replace(stack=whole)
        spawned = Spawned(started, call, started_at, resolve_s=resolve_s, audit=audit)
        whole.push(stack.pop_all())
    if isinstance(execution.verdict, Failure):
        # Raises what it was.
        spawned.finish()
    return spawned


def _start(plan: Plan, call: Call, slot: Slot | None, outer: contextlib.ExitStack) -> Started:
    """With a stack of its own, which is the outer one's to close where nobody has."""
    stack = outer.enter_context(contextlib.ExitStack())
    execution = set_up(stack, plan, call)
    assert isinstance(execution, OnTerminal)
    if slot is not None:
        slot.note(execution.id)
    execution.wait_started()
    return Started(plan, execution, stack)
