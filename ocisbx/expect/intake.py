"""What comes from a terminal: read without ever blocking, decoded, kept within bounds."""

from __future__ import annotations

import asyncio
import codecs
import os
import select
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from pexpect import EOF, TIMEOUT
from pexpect.spawnbase import SpawnBase

from ocisbx.errors import ConfigError, InvalidState, TerminalError
from ocisbx.expect.ends import Descriptor, RawTerminal
from ocisbx.expect.waiting import LOOK_S, Waiter, is_over, turn
from ocisbx.terminal.device import READ_BYTES, get_modes
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable

    # Generic in the stubs only.
    _SpawnBase = SpawnBase[Any]
else:
    _SpawnBase = SpawnBase

# As of a stream that is captured (--max-output).
MAX_BEFORE = 64 << 20
# What the screen is drawn from.
MAX_TAIL_BYTES = 1 << 20
# A piece that is shorter is a prompt more often than a part of a flood, and to ask in vain whether
# there is more takes a sixth of the time from the prompt to its match.
SMALL_BYTES = 1 << 10
# How often it is looked whether a program whose output has ended has, too.
END_S = 0.005


def check_encoding(encoding: str | None) -> None:
    """Raises ConfigError: text cannot be read and typed in it piece by piece."""
    if encoding is None:
        return
    try:
        # That some are no encodings of text is said here only.
        "".encode(encoding)
        codecs.getincrementalencoder(encoding)
        codecs.getincrementaldecoder(encoding)
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{show(encoding)} is not an encoding",
            why=str(error),
            remedy="give one of Python's for text, as utf-8 or latin-1; None is for bytes",
        ) from None


class Intake(_SpawnBase):
    """The reading half of a Spawn.

    terminal: the controller's descriptor, or a RawTerminal. It is made non-blocking, and never
        closed but by close() of one that came as a number.
    encoding: None for bytes, else str in this encoding.
    """

    if TYPE_CHECKING:
        # What pexpect's SpawnBase has for its subclasses; the stubs leave it out.
        buffer_type: Any
        _before: Any
        _buffer: Any
        _coerce_expect_string: Callable[[Any], Any]
        _coerce_send_string: Callable[[Any], Any]
        _decoder: Any
        _encoder: Any
        _log: Callable[[Any, str], None]
        _pattern_type_err: Callable[[Any], NoReturn]

    def __init__(
        self,
        terminal: int | RawTerminal,
        *,
        timeout: float | None = 30,
        maxread: int = READ_BYTES,
        searchwindowsize: int | None = None,
        logfile: Any = None,  # noqa: ANN401 -- as pexpect: a file of bytes or of text
        encoding: str | None = None,
        codec_errors: str = "replace",
    ) -> None:
        check_encoding(encoding)
        super().__init__(timeout, maxread, searchwindowsize, logfile, encoding, codec_errors)
        self.delayafterread = self.delaybeforesend = None
        self.terminal: RawTerminal = Descriptor(terminal) if isinstance(terminal, int) else terminal
        self._hung_up = False
        try:
            self.child_fd = self.terminal.fileno()
            os.set_blocking(self.child_fd, False)
        except TerminalError:
            # Its program ended before it had one.
            self._hung_up = True
        except OSError as error:
            raise TerminalError("the terminal cannot be read", why=str(error)) from None
        self.name = f"<terminal {self.child_fd}>"
        self.max_before = MAX_BEFORE
        self.before_truncated = False
        """Whether `before` lacks its beginning."""
        self.dropped = False
        """Whether what came since the last match does."""
        self.tail: deque[bytes] = deque()
        """The last output as it came, of at most about MAX_TAIL_BYTES."""
        self._tail_bytes = 0
        self.total_bytes = 0
        """How much output was read."""
        self._program_ended = self._awaited = False
        self._waiter: Waiter | None = None
        self.closed = False

    # ------------------------------------------------------------------------ reading
    def read_nonblocking(self, size: int = 1, timeout: float | None = -1) -> Any:  # noqa: ANN401 -- bytes or str
        """What is there, up to `size` bytes, after waiting for the first.

        Raises:
            pexpect.EOF: the output ended. pexpect.TIMEOUT: nothing came in time.
            TerminalError: the descriptor was closed.
        """
        if self.flag_eof:
            raise EOF("the output has ended")
        data = self._take(size, thorough=timeout == 0)
        if data is None:
            self._await_input(self.timeout if timeout == -1 else timeout)
            data = self._take(size, thorough=False)
        if data is None:
            raise TIMEOUT("no output in time")
        if data:
            text = self._decoder.decode(data)
        else:
            self.flag_eof = True
            # Half a character, then the end: the incremental decoder still holds it.
            text = self._decoder.decode(b"", True)  # noqa: FBT003 -- pexpect's bytes have no keyword
            if not text:
                raise EOF("the output has ended")
        self._log(text, "read")
        return text

    def _take(self, size: int, *, thorough: bool) -> bytes | None:
        """What is there, up to `size` bytes; None: nothing yet; empty: the end."""
        pieces: list[bytes] = []
        missing = size
        while missing > 0 and not self._hung_up:
            piece = self._open().read_some(missing)
            # Of a program that has ended nothing more comes, whoever holds its terminal open.
            self._hung_up = piece == b"" or (piece is None and self._program_ended)
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
            if len(piece) < SMALL_BYTES and not thorough:
                break
        data = b"".join(pieces)
        if data:
            self._remember(data)
            return data
        return b"" if self._hung_up else None

    def _remember(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._tail_bytes += len(data)
        self.tail.append(data)
        while self._tail_bytes - len(self.tail[0]) >= MAX_TAIL_BYTES:
            self._tail_bytes -= len(self.tail.popleft())

    def _open(self) -> RawTerminal:
        if self.closed:
            raise TerminalError("the terminal was closed")
        return self.terminal

    def _await_input(self, timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        while not is_over(until) and not self._poll(select.POLLIN, turn(until)):
            if self._has_ended():
                return

    def _poll(self, events: int, timeout: float) -> int:
        poll = select.poll()
        poll.register(self._open().fileno(), events)
        found = poll.poll(timeout * 1000)
        return found[0][1] if found else 0

    async def await_input(self, timeout: float | None) -> None:
        """Let other tasks go on until there is something to read, or the time is over.

        Raises InvalidState: another task waits for this terminal already.
        """
        if self._hung_up:
            return
        if self._awaited:
            raise InvalidState("another task waits for this terminal's output")
        self._awaited = True
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not is_over(until):
                self._waiter = Waiter(self._open().fileno())
                if await self._waiter.wait(turn(until)) or self._has_ended():
                    return
        finally:
            self._awaited, self._waiter = False, None

    def wake(self) -> None:
        """Have the task that waits for output look for it now."""
        if self._waiter is not None:
            self._waiter.wake()

    def end_reading(self) -> None:
        """Nothing more is read: who waits for output is told its end."""
        self._hung_up = True
        self.wake()

    def _has_ended(self) -> bool:
        self._program_ended = bool(self._ending())
        return self._program_ended

    def how_ended(self) -> str:
        """How a program ended whose output has, in words, which is given a moment to; empty: it
        has not, or nobody can tell."""
        until = time.monotonic() + LOOK_S
        while self.terminal.ending() is None and not is_over(until):
            time.sleep(END_S)
        return self._ending()

    async def await_ending(self) -> str:
        """how_ended(), while other tasks of the event loop go on."""
        until = time.monotonic() + LOOK_S
        while self.terminal.ending() is None and not is_over(until):
            await asyncio.sleep(END_S)
        return self._ending()

    def _ending(self) -> str:
        ending = self.terminal.ending()
        return "" if ending is None else ending.how

    def absorb(self, timeout: float | None = 0, most: int = -1) -> bool:
        """Take output into the buffer without looking for anything, until it holds `most`
        characters; whether some came. Where a task waits for it, it is that task's."""
        size = self.maxread if most < 0 else min(self.maxread, most - self.unread)
        if self._awaited or size <= 0:
            return False
        try:
            text = self.read_nonblocking(size, timeout)
        except (EOF, TIMEOUT):
            return False
        self.feed(text)
        return True

    def take_in(self, data: bytes) -> None:
        """Output that somebody else read from the terminal, as if it had been read here."""
        self._remember(data)
        self.feed(self._decoder.decode(data))

    def feed(self, text: Any) -> None:  # noqa: ANN401 -- bytes or str
        """Append to what the next expect looks at."""
        self._before.write(text)
        self._buffer.write(text)
        if self.unread > self.max_before:
            self.drop_before(self.max_before // 2)
            self.replace_window(self.unread_text)

    def check_count(self, count: int) -> None:
        """Raises ConfigError: so many characters are not kept for who reads them at once."""
        if count > self.max_before:
            raise ConfigError(
                f"{count} characters cannot be read at once",
                why=f"at most {self.max_before} are kept",
                remedy="read them in pieces",
            )

    def take(self, count: int) -> Any:  # noqa: ANN401 -- bytes or str
        """The first `count` characters since the last match, which are then behind it."""
        text = self.unread_text
        self.before_truncated, self.dropped = self.dropped, False
        self._before = self.buffer_type()
        self._before.write(text[count:])
        self.replace_window(text[count:])
        return text[:count]

    @property
    def unread(self) -> int:
        """How many characters came since the last match."""
        count: int = self._before.tell()
        return count

    @property
    def unread_text(self) -> Any:  # noqa: ANN401 -- bytes or str
        """What came since the last match."""
        return self._before.getvalue()

    def drop_before(self, kept: int) -> None:
        """Forget all but the last `kept` characters since the last match."""
        text = self.unread_text[-kept:]
        self._before = self.buffer_type()
        self._before.write(text)
        self.dropped = True

    def replace_window(self, window: Any) -> None:  # noqa: ANN401 -- bytes or str
        """What is searched: an end of what came since the last match."""
        self._buffer = self.buffer_type()
        self._buffer.write(window)

    # ------------------------------------------------------------------------ state
    @property
    def echo(self) -> bool:
        """Whether the kernel shows what is typed; off at a password prompt."""
        return get_modes(self._open().fileno()).echo

    def isatty(self) -> bool:
        """Whether the descriptor is a terminal's."""
        return self.child_fd >= 0 and os.isatty(self.child_fd)

    def isalive(self) -> bool:
        """Whether the descriptor is open."""
        try:
            os.fstat(self.child_fd)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let go of the terminal; a descriptor that came as a number is closed."""
        self.wake()
        if self.child_fd >= 0 and isinstance(self.terminal, Descriptor):
            os.close(self.child_fd)
        self.child_fd = -1
        self.closed = True
