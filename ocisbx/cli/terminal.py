"""`ocisbx run -t`: the caller's terminal, while it is a payload's keyboard and screen."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from ocisbx.backends.base import Step
from ocisbx.terminal.device import DEFAULT_SIZE
from ocisbx.terminal.local import STDIN, STDOUT, LocalTerminal
from ocisbx.terminal.transcript import Transcript, check_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ocisbx.backends.base import Call
    from ocisbx.backends.driven import Driven
    from ocisbx.calls import Hold
    from ocisbx.plan import Plan
    from ocisbx.terminal.device import Size


def sit_down(
    plan: Plan, call: Call, hold: Hold, transcript: str | None
) -> tuple[Person, Call, Callable[[Driven], None]]:
    """The caller as who sits at the payload's terminal, and the call and its observer so changed.

    Raises:
        ConfigError: a transcript without a terminal, or one that cannot be made.
    """
    if transcript is not None:
        check_terminal(has_one=plan.terminal)
    person = Person(call, transcript)
    return person, person.call, person.hold(hold)


class Person:
    """Whoever sits at the caller's terminal: their size, their kind of terminal and, with `-i`,
    every key of theirs. A context, as LocalTerminal."""

    def __init__(self, call: Call, transcript: str | None) -> None:
        """`transcript`: the file to be made for one. Raises ConfigError: it cannot be."""
        self._local = LocalTerminal(
            self._follow, types=call.stdin == STDIN, sees=call.stdout == STDOUT
        )
        self._execution: Driven | None = None
        self._on_step = call.on_step
        size, term = self._local.size() or DEFAULT_SIZE, self._local.term
        self._transcript = None if transcript is None else Transcript.into(transcript, size, term)
        self.call = call._replace(
            size=size, term=term, on_step=self._step, recorder=self._transcript
        )

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            if self._transcript is not None:
                stack.enter_context(self._transcript)
            stack.enter_context(self._local)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def hold(self, then: Hold) -> Callable[[Driven], None]:
        """What is shown the execution: us, then the caller's own."""

        def held(execution: Any) -> None:  # noqa: ANN401 -- of the kinds that a call may have
            self._execution = execution
            # A command may have started while nobody could be told.
            self._catch_up()
            if then is not None:
                then(execution)

        return held

    def _step(self, step: Step) -> None:
        # Before, Ctrl-C is for us: a runtime may hang. After it the payload's first words come.
        if step is Step.CREATED:
            self._local.take()
            # It may have changed while the container was made.
            self._catch_up()
        if self._on_step is not None:
            self._on_step(step)

    def _catch_up(self) -> None:
        told = self.call.size
        # Again: one that comes meanwhile must not be followed by this older one.
        while (size := self._local.size()) is not None and size != told:
            self._follow(size)
            told = size

    def _follow(self, size: Size) -> None:
        """The payload's terminal gets the size of the caller's."""
        if self._execution is None:
            return
        from ocisbx.backends.terminal import OnTerminal  # noqa: PLC0415 -- loaded by then

        if isinstance(self._execution, OnTerminal):
            self._execution.resize(size)
