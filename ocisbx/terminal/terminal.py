"""The terminal of a program in a container of ours, read and typed on without ever waiting."""

from __future__ import annotations

import contextlib
import select
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from ocisbx.errors import ExpectEOF, TerminalError
from ocisbx.terminal.device import (
    READ_BYTES,
    check_size,
    get_modes,
    read_some,
    set_size,
    write_some,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.result import RunResult
    from ocisbx.terminal.device import Size
    from ocisbx.terminal.transcript import Transcript

# How long a wait may be before it is looked whether the program has ended, whose terminal may be
# held open by nobody whom we see.
LOOK_S = 0.5


class Ending(NamedTuple):
    """How a program ended."""

    how: str
    """In words: `exited with code 1`; empty where nobody knows."""
    exit_code: int | None = None
    """None: it did not exit (a signal, a limit), or nobody knows."""


class Program(Protocol):
    """What runs on the terminal; nothing here waits but `wait` and `finish`."""

    @property
    def id(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def controller_fd(self) -> int: ...
    @property
    def has_ended(self) -> bool: ...
    def wait(self, timeout_s: float | None) -> bool:
        """Whether it has ended by then."""

    def then(self, callback: Callable[[], None]) -> None:
        """Have another thread call this when it has ended."""

    def signal(self, number: int) -> None: ...
    def cancel(self) -> None: ...
    def count(self, size: int) -> None:
        """So many bytes were read."""

    def ending(self) -> Ending | None:
        """How it ended; None before that."""

    def finish(self) -> RunResult:
        """Once it has ended; as often as one likes."""


class ContainerTerminal:
    """Implements `expect.ends.RawTerminal`. What nobody reads stays in the terminal, and holds the
    program back when that is full."""

    def __init__(self, program: Program, transcript: Transcript | None = None) -> None:
        """`transcript` is told what is shown and typed, and closed at the end."""
        self._program = program
        self._transcript = transcript
        self._at_end = program.controller_fd < 0

    @classmethod
    def begun(
        cls, begin: Callable[[], Program], transcript: str | None, size: Size, term: str
    ) -> Self:
        """Of the program that `begin` starts; `transcript`: a file to be made of what passes, which
        is not there after an error.

        Raises:
            ConfigError: it exists, or cannot be made.
        """
        if transcript is None:
            return cls(begin())
        from ocisbx.terminal.transcript import Transcript  # noqa: PLC0415 -- for who wants one

        with contextlib.ExitStack() as stack:
            told = stack.enter_context(Transcript.into(transcript, size, term))
            terminal = cls(begin(), told)
            stack.pop_all()
        return terminal

    @property
    def id(self) -> str:
        """The container's."""
        return self._program.id

    @property
    def pid(self) -> int:
        """The program's pid as it sees it itself (`$$` of a shell); 0: it never ran."""
        return self._program.pid

    def fileno(self) -> int:
        """Readable when there is something to read, its end too. Raises TerminalError: it is
        closed."""
        controller_fd = self._program.controller_fd
        if controller_fd < 0:
            raise TerminalError(
                "there is no terminal", why="it is closed, or the program never had one"
            )
        return controller_fd

    @property
    def has_ended(self) -> bool:
        """Whether the program has: what it printed may still be there to be read."""
        return self._program.has_ended

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or nobody has its terminal open any more."""
        return self._at_end or self._program.has_ended

    def then(self, callback: Callable[[], None]) -> None:
        """Have another thread call this when the program has ended; at once where it has."""
        self._program.then(callback)

    def ending(self) -> Ending | None:
        """How the program ended; None before that. Never waits."""
        return self._program.ending()

    def resize(self, rows: int, columns: int) -> None:
        """The foreground gets SIGWINCH.

        Raises:
            ConfigError: no terminal has that size.
            TerminalError: it is closed.
        """
        size = check_size(rows, columns)
        set_size(self.fileno(), size)
        if self._transcript is not None:
            self._transcript.resized(size)

    def read_some(self, size: int = READ_BYTES) -> bytes | None:
        """What was printed, at most `size` bytes; None: nothing now; empty: the end. Never waits.

        Raises TerminalError: it was closed under us.
        """
        if self._at_end:
            return b""
        # Asked before: what it printed until its end is there by then.
        has_ended = self._program.has_ended
        data = read_some(self.fileno(), size)
        if data is None and has_ended:
            data = b""
        if data:
            self._program.count(len(data))
            if self._transcript is not None:
                self._transcript.shown(data)
        self._at_end = data == b""
        return data

    def write_some(self, data: bytes | memoryview, *, secret: bool = False) -> int:
        """Type as much as goes; how many bytes that were, 0: none now. Never waits. No transcript
        tells what is `secret`, or typed while a line is read and not shown.

        Raises:
            ExpectEOF: nobody has the terminal open any more.
            TerminalError: it was closed under us.
        """
        ended = self._at_end and self._program.has_ended
        # Before: what is typed may change it.
        hidden = secret or (
            self._transcript is not None and not ended and get_modes(self.fileno()).hides_input
        )
        written = None if ended else write_some(self.fileno(), data)
        if written is None or (not written and self._program.has_ended):
            raise ExpectEOF("the program has ended, nobody reads what is typed")
        if self._transcript is not None and written:
            self._transcript.typed(data[:written], hidden=hidden)
        return written

    def conceal(self, secret: str) -> None:
        """From now on no transcript tells this, where the program prints it neither."""
        if self._transcript is not None:
            self._transcript.conceal(secret)

    def set_private(self, *, private: bool) -> None:
        """While a person types nothing is in the transcript: their keys are echoed."""
        if self._transcript is not None:
            self._transcript.set_private(private=private)

    def signal(self, number: int) -> None:
        """Signal the program's process; silent when it has ended."""
        self._program.signal(number)

    def wait(self, timeout_s: float | None) -> bool:
        """Whether the program has ended by then; nothing is read meanwhile."""
        return self._program.wait(timeout_s)

    def finish(self) -> RunResult:
        """Once it has ended: take the container away and tell; as often as one likes.

        Raises:
            OcisbxError: ocisbx or the runtime failed.
        """
        self._at_end = True
        if self._transcript is not None:
            self._transcript.close()
        return self._program.finish()

    def close(self) -> None:
        """End the program if it still runs (SIGTERM, the grace, SIGKILL); idempotent. Raises
        OcisbxError: ocisbx or the runtime failed."""
        if not self._program.has_ended:
            self._program.cancel()
        while not self._program.wait(0.0):
            # One that is held back by a full terminal would not get to its end.
            if self._at_end:
                self._program.wait(None)
            elif not self.read_some():
                poller = select.poll()
                poller.register(self.fileno(), select.POLLIN)
                poller.poll(LOOK_S * 1000)
        self.finish()
