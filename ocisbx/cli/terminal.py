"""`ocisbx run -t`: the caller's terminal, while it is a payload's keyboard and screen."""

from __future__ import annotations

import os
import signal
import termios
from typing import TYPE_CHECKING, Any, Self

from ocisbx.backends.base import Step
from ocisbx.errors import ConfigError
from ocisbx.terminal.device import DEFAULT_SIZE, Size
from ocisbx.terminal.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ocisbx.backends.base import Call
    from ocisbx.backends.driven import Driven
    from ocisbx.calls import Hold
    from ocisbx.plan import Plan

STDIN, STDOUT = 0, 1
HANDLED = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


def sit_down(
    plan: Plan, call: Call, hold: Hold, transcript: str | None
) -> tuple[Person, Call, Hold]:
    """The caller as who sits at the payload's terminal, and the call and its observer so changed.

    Raises:
        ConfigError: a transcript without a terminal, or one that cannot be made.
    """
    if not plan.terminal:
        raise ConfigError("--transcript is of a terminal", remedy="add -t")
    person = Person(call, transcript)
    return person, person.call, person.hold(hold)


class Person:
    """Whoever sits at the caller's terminal: their size, their kind of terminal and, with `-i`,
    every key of theirs.

    As a context: on the way out, whatever it is, the terminal is as it was.
    """

    def __init__(self, call: Call, transcript: str | None) -> None:
        """`transcript`: the file to write one to. Raises ConfigError: it cannot be made."""
        self._types = call.stdin == STDIN and os.isatty(STDIN)
        sees = call.stdout == STDOUT and os.isatty(STDOUT)
        self._screen = STDOUT if sees else STDIN if self._types else None
        self._saved: list[Any] | None = None
        self._is_created = False
        self._is_raw = False
        self._execution: Driven | None = None
        self._handlers: dict[int, Any] = {}
        self._on_step = call.on_step
        size, term = self._size() or DEFAULT_SIZE, _term() if sees else "xterm"
        self._transcript = None if transcript is None else Transcript(transcript, size, term)
        self.call = call._replace(
            size=size, term=term, on_step=self._step, recorder=self._transcript
        )

    def __enter__(self) -> Self:
        if self._types:
            self._saved = termios.tcgetattr(STDIN)
        for number in HANDLED:
            self._handlers[number] = signal.getsignal(number)
            signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_created = False
        self._restore()
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._transcript is not None:
            self._transcript.close()

    def hold(self, then: Hold) -> Callable[[Driven], None]:
        """What is shown the execution: us, then the caller's own."""

        def held(execution: Any) -> None:  # noqa: ANN401 -- of the kinds that a call may have
            self._execution = execution
            if then is not None:
                then(execution)

        return held

    def _step(self, step: Step) -> None:
        # Before, Ctrl-C is for us: a runtime may hang. After it the payload's first words come.
        if step is Step.CREATED:
            self._is_created = True
            self._go_raw()
            if self._size() not in (None, self.call.size):
                # It changed while the container was made.
                self._follow()
        if self._on_step is not None:
            self._on_step(step)

    def _go_raw(self) -> None:
        """Every key is the payload's from now on. In the background the terminal is another's."""
        if self._saved is None or os.tcgetpgrp(STDIN) != os.getpgrp():
            return
        # cfmakeraw(3); what the payload prints has been through its own terminal.
        modes = [*self._saved]
        modes[0] &= ~(
            termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP | termios.INLCR
            | termios.IGNCR | termios.ICRNL | termios.IXON
        )  # fmt: skip
        modes[1] &= ~termios.OPOST
        modes[2] = modes[2] & ~(termios.CSIZE | termios.PARENB) | termios.CS8
        modes[3] &= ~(
            termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN
        )
        modes[6] = [*modes[6]]
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(STDIN, termios.TCSANOW, modes)
        self._is_raw = True

    def _restore(self) -> None:
        if self._saved is None or not self._is_raw:
            return
        self._is_raw = False
        # In the background too: a shell would inherit a terminal that shows nothing.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
        try:
            termios.tcsetattr(STDIN, termios.TCSANOW, self._saved)
        except termios.error:
            # It was hung up.
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._restore()
            os.kill(os.getpid(), signal.SIGSTOP)
            # It goes on here.
        if number in (signal.SIGTSTP, signal.SIGCONT) and self._is_created:
            # Whoever was there meanwhile has set modes of their own, or we were in the background.
            self._go_raw()
        self._follow()

    def _follow(self) -> None:
        """The payload's terminal gets the size of the caller's."""
        size = self._size()
        if size is None or self._execution is None:
            return
        from ocisbx.backends.terminal import TerminalExecution  # noqa: PLC0415 -- loaded by then

        if isinstance(self._execution, TerminalExecution):
            self._execution.resize(size)

    def _size(self) -> Size | None:
        if self._screen is None:
            return None
        try:
            columns, rows = os.get_terminal_size(self._screen)
        except OSError:
            return None
        # One that does not know it says 0.
        return Size(rows, columns) if rows and columns else None


def _term() -> str:
    return os.environ.get("TERM") or "xterm"
