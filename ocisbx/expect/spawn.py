"""pexpect's spawn class on a terminal's descriptor: its methods, attributes and exceptions.

The matching is pexpect's; what differs is said in ocisbx-expect(7): no sleep after a read and
before a write, bytes that are no UTF-8 are replaced, a search is bounded in time, and what is kept
is bounded in size.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from pexpect import EOF, TIMEOUT
from pexpect.expect import searcher_string
from pexpect.spawnbase import SpawnBase

from ocisbx.errors import ExpectEOF, InvalidState, TerminalError
from ocisbx.expect.ends import Descriptor, Terminal, control_character, echoes, end_of_file
from ocisbx.expect.patterns import Pattern, as_pattern
from ocisbx.expect.searching import BoundedExpecter, Searcher
from ocisbx.expect.waiting import is_over, readable, turn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    # Generic in the stubs only.
    _SpawnBase = SpawnBase[Any]
else:
    _SpawnBase = SpawnBase

# All that a terminal holds (N_TTY's buffer and those before it, drivers/tty/tty_buffer.c).
READ_BYTES = 1 << 16
# As of a stream that is captured (--max-output).
MAX_BEFORE = 64 << 20
# What the screen is drawn from.
MAX_TAIL_BYTES = 1 << 20
WRITE_BYTES = 1 << 12


class Spawn(_SpawnBase):
    """A program at the other end of a terminal, with pexpect's habits.

    terminal: the controller's descriptor, an object with fileno(), or a Terminal. It is made
        non-blocking, and never closed but by close() of one that came as a number.
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
        terminal: int | Terminal,
        *,
        timeout: float | None = 30,
        maxread: int = READ_BYTES,
        searchwindowsize: int | None = None,
        logfile: Any = None,  # noqa: ANN401 -- as pexpect: a file of bytes or of text
        encoding: str | None = None,
        codec_errors: str = "replace",
    ) -> None:
        super().__init__(timeout, maxread, searchwindowsize, logfile, encoding, codec_errors)
        self.delayafterread = self.delaybeforesend = None
        self.terminal: Terminal = Descriptor(terminal) if isinstance(terminal, int) else terminal
        self.child_fd = self.terminal.fileno()
        self.name = f"<terminal {self.child_fd}>"
        self.max_before = MAX_BEFORE
        self.before_truncated = False
        """Whether the beginning of `before` was dropped since the last match."""
        self.tail: deque[bytes] = deque()
        """The last output as it came, of at most about MAX_TAIL_BYTES."""
        self._tail_bytes = 0
        self.total_bytes = 0
        """How much output was read."""
        self._hung_up = self._program_ended = self._awaited = False
        try:
            os.set_blocking(self.child_fd, False)
        except OSError as error:
            raise TerminalError("the terminal cannot be read", why=str(error)) from None
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
        data = self._take(size)
        if data is None:
            self._await_input(self.timeout if timeout == -1 else timeout)
            data = self._take(size)
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

    def _take(self, size: int) -> bytes | None:
        """All bytes that are there, up to `size`; None: none yet; empty: the end."""
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

    def _open(self) -> Terminal:
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
        if self._awaited:
            raise InvalidState("another task waits for this terminal's output")
        self._awaited = True
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not is_over(until) and not await readable(self._open().fileno(), turn(until)):
                if self._has_ended():
                    return
        finally:
            self._awaited = False

    def _has_ended(self) -> bool:
        self._program_ended = bool(self.terminal.ended())
        return self._program_ended

    def absorb(self, timeout: float | None = 0) -> bool:
        """Take output into the buffer without looking for anything; whether some came."""
        try:
            text = self.read_nonblocking(self.maxread, timeout)
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

    def take(self, count: int) -> Any:  # noqa: ANN401 -- bytes or str
        """The first `count` characters since the last match, which are then behind it."""
        text = self.unread_text
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
        self.before_truncated = True

    def replace_window(self, window: Any) -> None:  # noqa: ANN401 -- bytes or str
        """What is searched: an end of what came since the last match."""
        self._buffer = self.buffer_type()
        self._buffer.write(window)

    # ------------------------------------------------------------------------ matching
    def compile_pattern_list(self, patterns: Any) -> list[Any]:  # noqa: ANN401 -- as pexpect's
        """Patterns as `expect_list` takes them. Raises ConfigError: one does not compile."""
        if patterns is None:
            return []
        if not isinstance(patterns, list):
            patterns = [patterns]
        return [self._compile(pattern) for pattern in patterns]

    def _compile(self, pattern: Any) -> Any:  # noqa: ANN401 -- as pexpect's
        if pattern in (EOF, TIMEOUT):
            return pattern
        if not isinstance(pattern, (*self.allowed_string_types, re.Pattern, Pattern)):
            self._pattern_type_err(pattern)
        flags = re.DOTALL | (re.IGNORECASE if self.ignorecase else 0)
        return as_pattern(pattern, flags, text=self.encoding is not None)

    def expect_list(  # type: ignore[override]
        self,
        pattern_list: list[Any],
        timeout: float | None = -1,
        searchwindowsize: int | None = -1,
        async_: bool = False,  # noqa: FBT001, FBT002 -- pexpect's parameter
        **others: bool,
    ) -> int | Coroutine[Any, Any, int]:
        """As pexpect's: the index of the pattern that matched; a coroutine with `async_`."""
        searcher = Searcher(pattern_list)
        return self._expect(searcher, timeout, searchwindowsize, others.get("async", async_))

    def expect_exact(  # type: ignore[override]
        self,
        pattern_list: Any,  # noqa: ANN401 -- as pexpect's: one, or several
        timeout: float | None = -1,
        searchwindowsize: int | None = -1,
        async_: bool = False,  # noqa: FBT001, FBT002 -- pexpect's parameter
        **others: bool,
    ) -> int | Coroutine[Any, Any, int]:
        """As pexpect's: plain texts instead of patterns."""
        single = (*self.allowed_string_types, type)
        if isinstance(pattern_list, single):
            pattern_list = [pattern_list]
        elif not hasattr(pattern_list, "__iter__"):
            self._pattern_type_err(pattern_list)
        searcher = searcher_string(list(self._exact(pattern_list)))
        return self._expect(searcher, timeout, searchwindowsize, others.get("async", async_))

    def _exact(self, texts: Iterable[Any]) -> Iterable[Any]:
        for text in texts:
            if text in (EOF, TIMEOUT):
                yield text
            elif isinstance(text, self.allowed_string_types):
                yield self._coerce_expect_string(text)
            else:
                self._pattern_type_err(text)

    def _expect(
        self,
        searcher: Any,  # noqa: ANN401 -- either of pexpect's
        timeout: float | None,
        window: int | None,
        in_loop: bool,  # noqa: FBT001 -- pexpect's parameter
    ) -> int | Coroutine[Any, Any, int]:
        self.before_truncated = False
        expecter = BoundedExpecter(self, searcher, window)
        limit = self.timeout if timeout == -1 else timeout
        return expecter.expect_async(limit) if in_loop else expecter.expect_loop(limit)

    # ------------------------------------------------------------------------ writing
    def send(self, text: Any, *, secret: bool = False) -> int:  # noqa: ANN401 -- bytes or str
        """Type; returns the number of bytes. Of a `secret` text nothing is logged.

        Output that comes meanwhile is read, so that a program that waits for its reader goes on.
        Raises TerminalError: the program has ended, or does not read within `timeout`.
        """
        text = self._coerce_send_string(text)
        if self.flag_eof:
            # The kernel would take it, for nobody to read.
            raise self._nobody_reads()
        if not secret:
            self._log(text, "send")
        data = memoryview(self._encoder.encode(text))
        until = None if self.timeout is None else time.monotonic() + self.timeout
        rest = data
        while rest:
            try:
                written = self._open().write_some(bytes(rest[:WRITE_BYTES]), secret=secret)
            except ExpectEOF:
                raise self._nobody_reads() from None
            rest = rest[written:]
            if not written:
                self._await_room(until, len(rest))
        return len(data)

    def _nobody_reads(self) -> TerminalError:
        what = "nothing can be typed: the program has ended"
        return TerminalError(what, why=self.terminal.ended())

    def _await_room(self, until: float | None, missing: int) -> None:
        found = self._poll(select.POLLIN | select.POLLOUT, turn(until))
        if found & select.POLLIN:
            self.absorb()
        if not found and self.terminal.ended():
            raise self._nobody_reads()
        if is_over(until) and not found & select.POLLOUT:
            why = f"it has not read {missing} bytes in {self.timeout:g} s"
            raise TerminalError("the program does not read what is typed", why=why)

    def sendline(self, text: Any = "") -> int:  # noqa: ANN401 -- bytes or str
        """Type a line and its end."""
        return self.send(self._coerce_send_string(text) + self.linesep)

    def write(self, text: Any) -> None:  # noqa: ANN401 -- bytes or str
        """send(), as a file."""
        self.send(text)

    def writelines(self, texts: Iterable[Any]) -> None:
        """write() for each."""
        for text in texts:
            self.write(text)

    def sendcontrol(self, key: str) -> int:
        """Type Ctrl with a key: `c`, `d`, `z`, `[` (Escape). Raises ConfigError for another."""
        return self._send_bytes(control_character(key))

    def sendeof(self) -> int:
        """Type what ends the input in canonical mode, at the beginning of a line."""
        return self._send_bytes(end_of_file(self.child_fd))

    def _send_bytes(self, data: bytes) -> int:
        return self.send(data if self.encoding is None else data.decode("latin-1"))

    # ------------------------------------------------------------------------ state
    @property
    def echo(self) -> bool:
        """Whether the kernel shows what is typed; off at a password prompt."""
        return echoes(self.child_fd)

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
        if self.child_fd >= 0 and isinstance(self.terminal, Descriptor):
            os.close(self.child_fd)
        self.child_fd = -1
        self.closed = True
