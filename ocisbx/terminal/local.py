"""The terminal that a person sits at: raw while their keys are a program's, and restored after."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import termios
from typing import TYPE_CHECKING, Any, Self

from ocisbx.terminal.device import Size

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

STDIN, STDOUT = 0, 1
HANDLED = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


class LocalTerminal:
    """The caller's standard input and output, as far as they are a terminal.

    As a context: on the way out, whatever it is, the terminal is as it was.
    """

    def __init__(self, on_size: Callable[[Size], object], *, types: bool, sees: bool) -> None:
        """`types`, `sees`: its input, its output are relayed; `on_size` is told of a new size, in
        the middle of whatever runs."""
        self.types = types and os.isatty(STDIN)
        self.sees = sees and os.isatty(STDOUT)
        self._on_size = on_size
        self._screen = STDOUT if self.sees else STDIN if self.types else None
        self._saved: list[Any] | None = None
        self._is_raw = False
        self._is_taken = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if self.types:
            self._saved = termios.tcgetattr(STDIN)
        for number in HANDLED:
            self._handlers[number] = signal.getsignal(number)
            signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_taken = False
        try:
            self._restore()
        finally:
            # A signal that ends us may have come in between.
            self._restore()
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @property
    def term(self) -> str:
        """What kind of terminal shows the program (terminfo(5))."""
        return (os.environ.get("TERM") if self.sees else None) or "xterm"

    def size(self) -> Size | None:
        """None: it is no terminal, or does not know it."""
        return None if self._screen is None else size_of(self._screen)

    def take(self) -> None:
        """Every key is the program's from now on."""
        self._is_taken = True
        self._go_raw()

    def _go_raw(self) -> None:
        if self._saved is None or not _is_in_front():
            return
        # cfmakeraw(3); what the program prints has been through its own terminal.
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
        # Of a hang-up a SIGCONT tells first (tty_io.c), in the middle of anything.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(STDIN, termios.TCSANOW, modes)
            self._is_raw = True

    def _restore(self) -> None:
        if self._saved is None or not self._is_raw:
            return
        # In the background too: a shell would inherit a terminal that shows nothing.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
        try:
            termios.tcsetattr(STDIN, termios.TCSANOW, self._saved)
        except termios.error:
            # It was hung up.
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._is_raw = False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._restore()
            os.kill(os.getpid(), signal.SIGSTOP)
            # It goes on here.
        if number in (signal.SIGTSTP, signal.SIGCONT) and self._is_taken:
            # Whoever was there meanwhile has set modes of their own, or we were in the background.
            self._go_raw()
        if (size := self.size()) is not None:
            self._on_size(size)


def _is_in_front() -> bool:
    """Whether our input is a terminal that is ours: in the background it is another's."""
    try:
        return os.tcgetpgrp(STDIN) == os.getpgrp()
    except OSError as error:
        # One that controls no processes, or not ours, has no background; else it was hung up.
        return error.errno == errno.ENOTTY


def size_of(descriptor: int) -> Size | None:
    """None: it is no terminal, or does not know it."""
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        return None
    # One that does not know it says 0.
    return Size(rows, columns) if rows and columns else None
