"""Terminal: a program on a terminal, driven as by a person at a keyboard."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Protocol, Self

from ocisbx.errors import ExpectEOF, ExpectTimeout, TerminalError
from ocisbx.terminal.device import (
    READ_BYTES,
    check_size,
    control_key,
    get_modes,
    get_size,
    read_some,
    set_size,
    write_some,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.result import RunResult
    from ocisbx.terminal.device import Modes, Size
    from ocisbx.terminal.transcript import Transcript

# How long a wait may be before it is looked whether the program has ended, whose terminal may be
# held open by nobody whom we see.
LOOK_S = 0.5
# What is read while something else is waited for is kept so far; of more the oldest is lost.
KEPT_BYTES = 1 << 20


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

    def how(self) -> str:
        """How it ended, in words; empty before that."""

    def finish(self) -> RunResult:
        """Once it has ended; as often as one likes."""


class Terminal:
    """A program and its terminal; use it as a context, whose exit ends what still runs.

    One thread reads and types at a time. What nobody reads stays in the terminal, and holds the
    program back when that is full. For many terminals in one thread: poll their `fileno()` and
    call `read_some`.
    """

    def __init__(self, program: Program, transcript: Transcript | None = None) -> None:
        """`transcript` is told what is shown and typed, and closed at the end."""
        self._program = program
        self._transcript = transcript
        # Read already, and not given out yet.
        self._kept = bytearray()
        self._at_end = program.controller_fd < 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        """The container's."""
        return self._program.id

    @property
    def pid(self) -> int:
        """The program's pid as it sees it itself (`$$` of a shell); 0: it never ran."""
        return self._program.pid

    def fileno(self) -> int:
        """Readable when there is something to `read_some`, its end too. Raises TerminalError: it is
        closed."""
        return self._open_fd()

    @property
    def has_ended(self) -> bool:
        """Whether the program has: what it printed may still be there to be read."""
        return self._program.has_ended

    @property
    def is_at_end(self) -> bool:
        """Whether nothing more will come, but what `read_some` has still to give out."""
        return self._at_end

    def then(self, callback: Callable[[], None]) -> None:
        """Have another thread call this when the program has ended; at once where it has."""
        self._program.then(callback)

    def ended(self) -> str:
        """How the program ended, in words; empty before that, and while something is to be read.
        Whose output has ended is given a moment to end."""
        if self._kept or not (self._at_end or self._program.has_ended):
            return ""
        self._program.wait(LOOK_S)
        return self._program.how()

    @property
    def echo(self) -> bool:
        """Whether what is typed is shown. Raises TerminalError."""
        return self.modes().echo

    @property
    def hides_input(self) -> bool:
        """Whether a line is read and not shown, as for a password. Raises TerminalError."""
        return self.modes().hides_input

    def modes(self) -> Modes:
        """As the program has set them. Raises TerminalError."""
        return get_modes(self._open_fd())

    @property
    def size(self) -> Size:
        """Raises TerminalError."""
        return get_size(self._open_fd())

    def resize(self, rows: int, columns: int) -> None:
        """The foreground gets SIGWINCH.

        Raises:
            ConfigError: no terminal has that size.
            TerminalError: it is closed.
        """
        size = check_size(rows, columns)
        set_size(self._open_fd(), size)
        if self._transcript is not None:
            self._transcript.resized(size)

    # ------------------------------------------------------------------------------- reading
    def read_some(self, size: int = READ_BYTES) -> bytes | None:
        """What was printed, at most `size` bytes; None: nothing now; empty: the end. Never waits.

        Raises TerminalError: it was closed under us.
        """
        if self._kept:
            data = bytes(self._kept[:size])
            del self._kept[:size]
            return data
        return self._fetch(size)

    def read(self, size: int = -1, *, timeout_s: float | None = None) -> bytes:
        """Exactly `size` bytes, or all until the end; fewer at the end only.

        Raises:
            ExpectTimeout: not in time; what came is there for the next.
            TerminalError: it was closed under us.
        """
        deadline = _deadline(timeout_s)
        found = bytearray()
        try:
            while size < 0 or len(found) < size:
                data = self.read_some(READ_BYTES if size < 0 else size - len(found))
                if data == b"":
                    break
                if data is not None:
                    found += data
                elif not self._wait_for(select.POLLIN, deadline):
                    raise ExpectTimeout(
                        f"{len(found)} bytes came within {timeout_s:g} s",
                        why="the program has not ended" if size < 0 else f"expected {size}",
                    )
        except BaseException:
            self.unread(found)
            raise
        return bytes(found)

    def unread(self, data: bytes | bytearray) -> None:
        """What was read and is for the next who reads."""
        self._kept[:0] = data

    def set_aside(self) -> bool:
        """Read what is there now and keep it for who reads later, the last MiB; whether there was
        any. Raises TerminalError."""
        data = self._fetch(READ_BYTES)
        if data:
            self._kept += data
            del self._kept[:-KEPT_BYTES]
        return bool(data)

    # -------------------------------------------------------------------------------- typing
    def write_some(self, data: bytes | memoryview, *, secret: bool = False) -> int:
        """Type as much as goes; how many bytes that were, 0: none now. Never waits. No transcript
        tells what is `secret`, or typed while a line is read and not shown.

        Raises:
            ExpectEOF: nobody has the terminal open any more.
            TerminalError: it was closed under us.
        """
        ended = self._at_end and self._program.has_ended
        # Before: what is typed may change it.
        hidden = secret or (self._transcript is not None and not ended and self.hides_input)
        written = None if ended else write_some(self._open_fd(), data)
        if written is None or (not written and self._program.has_ended):
            raise ExpectEOF("the program has ended, nobody reads what is typed")
        if self._transcript is not None and written:
            self._transcript.typed(data[:written], hidden=hidden)
        return written

    def send(
        self, text: str | bytes, *, timeout_s: float | None = None, secret: bool = False
    ) -> int:
        """Type it; how many bytes that were. What the program prints meanwhile stays to be read, up
        to 1 MiB. `secret`: as of `write_some`.

        Raises:
            ExpectEOF: nobody has the terminal open any more.
            ExpectTimeout: the program did not read in time.
            TerminalError: it was closed under us.
        """
        data = text.encode() if isinstance(text, str) else text
        deadline = _deadline(timeout_s)
        rest = memoryview(data)
        while rest:
            written = self.write_some(rest, secret=secret)
            rest = rest[written:]
            if not written and not self._wait_for(select.POLLOUT | select.POLLIN, deadline):
                raise ExpectTimeout(
                    f"{len(data) - len(rest)} of {len(data)} bytes were typed within "
                    f"{timeout_s:g} s",
                    why="the program does not read them",
                )
            if rest:
                self.set_aside()
        return len(data)

    def sendline(
        self, text: str | bytes = "", *, timeout_s: float | None = None, secret: bool = False
    ) -> int:
        """As `send`, and a newline."""
        data = text.encode() if isinstance(text, str) else text
        return self.send(data + b"\n", timeout_s=timeout_s, secret=secret)

    def sendcontrol(self, character: str) -> int:
        """Type Ctrl and this: a letter, or one of `@[\\]^_?`. Errors as `send`.

        Raises:
            ConfigError: there is no such key.
        """
        return self.send(control_key(character))

    def sendeof(self) -> int:
        """Type what the terminal takes for the end of a file: after a newline, the program reads
        that. Errors as `send`."""
        return self.send(self.modes().end_of_file)

    # -------------------------------------------------------------------------------- its end
    def signal(self, number: int) -> None:
        """Signal the program's process; silent when it has ended."""
        self._program.signal(number)

    def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """Wait for the end; None when `timeout_s` passed first. What is printed meanwhile can be
        read afterwards, the last MiB of it.

        Raises:
            OcisbxError: ocisbx or the runtime failed.
        """
        deadline = _deadline(timeout_s)
        while not self._at_end and not self._program.has_ended:
            if not self._wait_for(select.POLLIN, deadline):
                return None
            self.set_aside()
        if not self._program.wait(_left_s(deadline)):
            return None
        while not self._at_end and self.set_aside():
            pass
        return self._finish()

    def close(self) -> None:
        """End the program if it still runs (SIGTERM, the grace, SIGKILL); idempotent. Raises
        OcisbxError: ocisbx or the runtime failed."""
        if not self._program.has_ended:
            self._program.cancel()
        while not self._program.wait(0.0):
            # One that is held back by a full terminal would not get to its end.
            if self._at_end:
                self._program.wait(None)
            elif self._wait_for(select.POLLIN, None):
                self.set_aside()
        self._finish()

    def _finish(self) -> RunResult:
        self._at_end = True
        if self._transcript is not None:
            self._transcript.close()
        return self._program.finish()

    # --------------------------------------------------------------------------------- below
    def _open_fd(self) -> int:
        controller_fd = self._program.controller_fd
        if controller_fd < 0:
            raise TerminalError(
                "there is no terminal", why="it is closed, or the program never had one"
            )
        return controller_fd

    def _fetch(self, size: int) -> bytes | None:
        if self._at_end:
            return b""
        # Asked before: what it printed until its end is there by then.
        has_ended = self._program.has_ended
        data = read_some(self._open_fd(), size)
        if data is None and has_ended:
            data = b""
        if data:
            self._program.count(len(data))
            if self._transcript is not None:
                self._transcript.shown(data)
        self._at_end = data == b""
        return data

    def _wait_for(self, events: int, deadline: float | None) -> bool:
        """Wait for one of them, or the program's end, or a while; False: the time is over."""
        left_s = _left_s(deadline)
        if left_s is not None and left_s <= 0:
            return False
        poller = select.poll()
        poller.register(self._open_fd(), events)
        poller.poll(min(LOOK_S, LOOK_S if left_s is None else left_s) * 1000 + 1)
        return True


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
