"""Running a script, by a thread's own waiting or in an event loop; both drive the same Engine."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ocisbx.errors import InvalidState, OcisbxError, TerminalError
from ocisbx.expect.engine import Engine, Handed, Look, Operation, Pause, Type
from ocisbx.expect.waiting import left

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ocisbx.expect.expecting import AsyncExpect, Expect
    from ocisbx.expect.handover import Attendant, Handle
    from ocisbx.expect.report import ScriptReport
    from ocisbx.expect.script import Script

NO_PARAMS: Mapping[str, str] = MappingProxyType({})
NOBODY = "nobody is there to type"
BROKEN_OFF = "the script was broken off"
TYPED = "it typed, and nobody can tell how much of that the program has got"


class _Run:
    """The engine's work, one operation at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._work = engine.work()
        self._pending: Operation | None = None
        self._began = 0.0
        self.handle: Handle | None = None
        """The handle of the step that waits for a person; None unless one does."""

    @property
    def over(self) -> bool:
        """Whether the script has ended."""
        return self._engine.outcome is not None

    def report(self) -> ScriptReport:
        """What was done. Raises InvalidState: it is not over."""
        return self._engine.report()

    def _go_on(self) -> None:
        """Raises InvalidState: it is over, or a person has the terminal."""
        if self.over:
            raise InvalidState("the script is over", why=f"it ended with {self._engine.outcome}")
        if self.handle is not None and self.handle.private:
            why = self.handle.message
            raise InvalidState("a person has the terminal: end that step first", why=why)
        self.handle = None

    def _resume(self) -> Operation | None:
        """The operation at which the run was broken off, with the time that is left of it; else the
        next."""
        passed_s = time.monotonic() - self._began
        if isinstance(self._pending, Look):
            return self._pending._replace(timeout_s=max(0.0, self._pending.timeout_s - passed_s))
        if isinstance(self._pending, Pause):
            return Pause(max(0.0, self._pending.seconds - passed_s))
        return self._next(None)

    def _next(self, answer: Any) -> Operation | None:  # noqa: ANN401 -- what an operation gives
        """The next operation; None at the end."""
        self._pending = None
        try:
            if isinstance(answer, OcisbxError):
                return self._work.throw(answer)
            return self._work.send(answer)
        except StopIteration:
            return None
        except BaseException:
            # Between two operations: there is nothing left that could go on.
            self._engine.outcome, self._engine.why = "error", BROKEN_OFF
            raise

    @contextmanager
    def _carried_out(self, operation: Operation) -> Iterator[None]:
        """Around carrying it out: what is broken off (cancelled, Ctrl-C) can be resumed, unless
        nobody can tell how much of it was done."""
        self._pending, self._began = operation, time.monotonic()
        try:
            yield
        except OcisbxError:
            raise
        except BaseException:
            if isinstance(operation, Type):
                self._next(TerminalError(BROKEN_OFF, why=TYPED))
            raise


class ScriptRun(_Run):
    """A script on an Expect.

    run = ScriptRun(script, terminal, secrets, params)
    while (handle := run.advance()) is not None:
        ...  # a person types; then handle.done(), or handle.give_up(why)
    run.report()
    """

    def __init__(
        self,
        script: Script,
        terminal: Expect,
        secrets: Mapping[str, str],
        params: Mapping[str, str] = NO_PARAMS,
    ) -> None:
        """Raises ConfigError: a secret or a parameter is missing, or is none of the script's."""
        super().__init__(Engine(script, terminal, secrets, params))
        self._terminal = terminal

    def advance(self) -> Handle | None:
        """Go on until the end, or until a person is needed, whose handle is returned. One that was
        broken off (Ctrl-C) goes on where it was; while something was typed, the run is over.

        Raises InvalidState: it is over, or a person has the terminal.
        """
        self._go_on()
        operation = self._resume()
        while operation is not None:
            if isinstance(operation, Handed):
                self.handle = operation.handle
                return operation.handle
            try:
                with self._carried_out(operation):
                    answer: Any = self._carry_out(operation)
            except OcisbxError as error:
                answer = error
            operation = self._next(answer)
        return None

    def _carry_out(self, operation: Look | Type | Pause) -> int | None:
        terminal = self._terminal
        if isinstance(operation, Look):
            look = terminal.expect_screen if operation.on_screen else terminal.expect
            return look(list(operation.patterns), operation.timeout_s)
        if isinstance(operation, Type):
            keys, secret, timeout_s = operation
            return terminal.spawn.send(keys, secret=secret, timeout=timeout_s)
        until = time.monotonic() + operation.seconds
        while (seconds := left(until)) and not terminal.spawn.flag_eof:
            terminal.spawn.absorb(seconds)
        time.sleep(left(until) or 0)
        return None


class AsyncScriptRun(_Run):
    """A script on an AsyncExpect; as ScriptRun, with `await run.advance()`."""

    def __init__(
        self,
        script: Script,
        terminal: AsyncExpect,
        secrets: Mapping[str, str],
        params: Mapping[str, str] = NO_PARAMS,
    ) -> None:
        """As ScriptRun."""
        super().__init__(Engine(script, terminal, secrets, params))
        self._terminal = terminal

    async def advance(self) -> Handle | None:
        """As ScriptRun.advance; a cancellation breaks it off."""
        self._go_on()
        operation = self._resume()
        while operation is not None:
            if isinstance(operation, Handed):
                self.handle = operation.handle
                return operation.handle
            try:
                with self._carried_out(operation):
                    answer: Any = await self._carry_out(operation)
            except OcisbxError as error:
                answer = error
            operation = self._next(answer)
        return None

    async def _carry_out(self, operation: Look | Type | Pause) -> int | None:
        terminal = self._terminal
        if isinstance(operation, Look):
            look = terminal.expect_screen if operation.on_screen else terminal.expect
            return await look(list(operation.patterns), operation.timeout_s)
        if isinstance(operation, Type):
            keys, secret, timeout_s = operation
            return await terminal.spawn.send_async(keys, secret=secret, timeout=timeout_s)
        import asyncio  # noqa: PLC0415 -- for who is in an event loop, and so has it

        until = time.monotonic() + operation.seconds
        while (seconds := left(until)) and not terminal.spawn.flag_eof:
            await terminal.spawn.await_input(seconds)
            terminal.spawn.absorb()
        await asyncio.sleep(left(until) or 0)
        return None


def run_script(
    script: Script,
    terminal: Expect,
    secrets: Mapping[str, str],
    attendant: Attendant | None = None,
    *,
    params: Mapping[str, str] = NO_PARAMS,
) -> ScriptReport:
    """Run a script to its end; without an attendant a step that needs a person ends it at once.

    Raises ConfigError: a secret or a parameter is missing, or is none of the script's.
    """
    run = ScriptRun(script, terminal, secrets, params)
    while (handle := run.advance()) is not None:
        if attendant is not None:
            attendant.attend(handle)
        if handle.private:
            handle.give_up(NOBODY)
    return run.report()
