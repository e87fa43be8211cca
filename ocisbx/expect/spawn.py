"""pexpect's spawn class on a terminal's descriptor: its methods, attributes and exceptions.

The matching is pexpect's; what differs is said in ocisbx-expect(7): no sleep after a read and
before a write, bytes that are no UTF-8 are replaced, a search is bounded in time, and what is kept
is bounded in size.
"""

from __future__ import annotations

import asyncio
import re
import select
import time
from typing import TYPE_CHECKING, Any

from pexpect import EOF, TIMEOUT
from pexpect.expect import searcher_string

from ocisbx.errors import ExpectEOF, ExpectTimeout
from ocisbx.expect.intake import Intake
from ocisbx.expect.patterns import Pattern, as_pattern
from ocisbx.expect.searching import BoundedExpecter, Searcher
from ocisbx.expect.waiting import is_over, left, turn
from ocisbx.terminal.device import control_key, get_modes

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

WRITE_BYTES = 1 << 12
# How often a task looks whether a full terminal takes more.
ROOM_S = 0.01


class Spawn(Intake):
    """A program at the other end of a terminal, with pexpect's habits.

    terminal: the controller's descriptor, or a RawTerminal. The descriptor is made non-blocking,
        and closed by close() where it came as a number.
    encoding: None for bytes, else str in this encoding.
    """

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
        searcher = Searcher(self.compile_pattern_list(list(pattern_list)))
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
        expecter = BoundedExpecter(self, searcher, window)
        limit = self.timeout if timeout == -1 else timeout
        return expecter.expect_async(limit) if in_loop else expecter.expect_loop(limit)

    def read(self, size: int = -1) -> Any:  # noqa: ANN401 -- bytes or str
        """As pexpect's: the next `size` characters, fewer at the end; all until the end where it is
        negative. Raises pexpect's TIMEOUT; ConfigError: so many are not kept."""
        if size <= 0:
            return super().read(size)
        self.check_count(size)
        until = None if self.timeout is None else time.monotonic() + self.timeout
        while self.unread < size and not self.flag_eof:
            if not self.absorb(left(until), size) and is_over(until) and not self.flag_eof:
                self.before, self.after = self.unread_text, TIMEOUT
                raise TIMEOUT(f"the next {size} characters did not come in time")
        return self.take(size)

    # ------------------------------------------------------------------------ writing
    def send(self, text: Any, *, secret: bool = False, timeout: float | None = -1) -> int:  # noqa: ANN401 -- bytes or str
        """Type; returns the number of bytes. Of a `secret` text nothing is logged.

        Output that comes meanwhile is read, so that a program that waits for its reader goes on.
        Raises ExpectEOF: the program has ended; ExpectTimeout: it does not read in time.
        """
        if self.delaybeforesend is not None:
            time.sleep(self.delaybeforesend)
        try:
            data, until = self._begin(text, secret=secret, timeout=timeout)
            rest = data
            while rest := self._push(rest, secret=secret):
                self._check_room(until, len(rest))
                self._poll(select.POLLIN | select.POLLOUT, turn(until))
        except ExpectEOF:
            raise _nobody_reads(self.how_ended()) from None
        return len(data)

    async def send_async(
        self,
        text: Any,  # noqa: ANN401 -- bytes or str
        *,
        secret: bool = False,
        timeout: float | None = -1,
    ) -> int:
        """send(), while other tasks of the event loop go on."""
        if self.delaybeforesend is not None:
            await asyncio.sleep(self.delaybeforesend)
        try:
            data, until = self._begin(text, secret=secret, timeout=timeout)
            rest = data
            while rest := self._push(rest, secret=secret):
                self._check_room(until, len(rest))
                await asyncio.sleep(ROOM_S)
        except ExpectEOF:
            raise _nobody_reads(await self.await_ending()) from None
        return len(data)

    def _begin(
        self,
        text: Any,  # noqa: ANN401 -- bytes or str
        *,
        secret: bool,
        timeout: float | None,
    ) -> tuple[memoryview, float | None]:
        """What is to be typed, and until when."""
        text = self._coerce_send_string(text)
        if self.flag_eof:
            # The kernel would take it, for nobody to read.
            raise _nobody_reads()
        if not secret:
            self._log(text, "send")
        limit = self.timeout if timeout == -1 else timeout
        until = None if limit is None else time.monotonic() + limit
        return memoryview(self._encoder.encode(text)), until

    def _push(self, rest: memoryview, *, secret: bool) -> memoryview:
        """Type what is taken now; what is left."""
        while rest:
            written = self._open().write_some(bytes(rest[:WRITE_BYTES]), secret=secret)
            if not written:
                return rest
            rest = rest[written:]
        return rest

    def _check_room(self, until: float | None, missing: int) -> None:
        """The program may wait for its reader, have ended, or not read at all."""
        if not self.absorb() and (self.flag_eof or self._ending()):
            raise _nobody_reads()
        if is_over(until):
            why = f"{missing} bytes were not read in time"
            raise ExpectTimeout("the program does not read what is typed", why=why)

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
        return self.send(self.key(key))

    def sendeof(self) -> int:
        """Type what ends the input in canonical mode, at the beginning of a line."""
        return self.send(self.end_key())

    def key(self, name: str) -> Any:  # noqa: ANN401 -- bytes or str
        """What Ctrl with a key types. Raises ConfigError."""
        return self._as_sent(control_key(name))

    def end_key(self) -> Any:  # noqa: ANN401 -- bytes or str
        """What ends the input, as the terminal is set. Raises TerminalError."""
        return self._as_sent(get_modes(self._open().fileno()).end_of_file)

    def _as_sent(self, data: bytes) -> Any:  # noqa: ANN401 -- bytes or str
        return data if self.encoding is None else data.decode("latin-1")


def _nobody_reads(ending: str = "") -> ExpectEOF:
    return ExpectEOF("nothing can be typed: the program has ended", why=ending)
