"""Expect, with our names and errors, and its twin for asyncio; the work is done by Spawn.

`patterns` is one pattern or several: text in `re` syntax, a compiled pattern, pexpect.EOF or
pexpect.TIMEOUT, which match the end of the output and of the time instead of raising.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pexpect import EOF, TIMEOUT

from ocisbx.errors import TerminalError
from ocisbx.expect.hidden import Hidden
from ocisbx.expect.sought import OnScreen, as_ours, several
from ocisbx.expect.spawn import Spawn
from ocisbx.expect.waiting import is_over, left
from ocisbx.terminal.device import DEFAULT_SIZE, get_modes, get_size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from ocisbx.expect.ends import RawTerminal
    from ocisbx.expect.screen import Canvas, View
    from ocisbx.terminal.device import Modes, Size

T = TypeVar("T")

TIMEOUT_S = 30.0
"""pexpect's default."""


class _Face:
    """What both twins share: looking at what is there."""

    def __init__(
        self,
        terminal: int | RawTerminal,
        *,
        encoding: str | None = "utf-8",
    ) -> None:
        """A program at the other end of `terminal`; without `encoding` all is bytes."""
        self.spawn = Spawn(terminal, encoding=encoding)
        self.hidden = Hidden(self.spawn.terminal.conceal)
        # What an author wrote in a script is no secret, though it looks like one of its secrets.
        self.typed = Hidden()
        self._sought: OnScreen | None = None
        self._canvas: Canvas | None = None
        self._last_size = DEFAULT_SIZE
        self.note_size()

    def _hide(self, text: str | bytes, *, secret: bool) -> None:
        if secret:
            for texts in (self.hidden, self.typed):
                texts.add(text if isinstance(text, str) else text.decode(errors="replace"))

    def _line(self, text: str | bytes) -> Any:  # noqa: ANN401 -- str or bytes
        return self.spawn._coerce_send_string(text) + self.spawn.linesep  # noqa: SLF001 -- as pexpect's

    # ------------------------------------------------------------------------ the terminal
    def fileno(self) -> int:
        """Readable when there is something to read, its end too. Raises TerminalError: it is
        closed."""
        return self.spawn.terminal.fileno()

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
        return get_modes(self.fileno())

    @property
    def size(self) -> Size:
        """Rows and columns. Raises TerminalError."""
        return get_size(self.fileno())

    def resize(self, rows: int, columns: int) -> None:
        """The foreground gets SIGWINCH.

        Raises:
            ConfigError: no terminal has that size.
            TerminalError: it is closed.
        """
        self.spawn.terminal.resize(rows, columns)

    def note_size(self) -> Size:
        """The terminal's, for a look at what it showed when it is closed; the last one then."""
        with suppress(TerminalError):
            self._last_size = self.size
        return self._last_size

    def signal(self, number: int) -> None:
        """Signal the program; of a bare descriptor the group in the foreground."""
        self.spawn.terminal.signal(number)

    # ------------------------------------------------------------------------ what came
    @property
    def before(self) -> Any:  # noqa: ANN401 -- str or bytes, as the encoding says
        """What came before the last match; after an error all that came."""
        return self.spawn.before

    @property
    def after(self) -> Any:  # noqa: ANN401 -- str or bytes, EOF or TIMEOUT
        """What the last match covers."""
        return self.spawn.after

    @property
    def match(self) -> Any:  # noqa: ANN401 -- a match, a text (expect_exact), EOF or TIMEOUT
        """The last match, with its groups."""
        return self.spawn.match

    @property
    def before_truncated(self) -> bool:
        """Whether `before`, or what was read last, lacks its beginning: more came than is kept."""
        return self.spawn.before_truncated

    @property
    def screen_match(self) -> Any:  # noqa: ANN401 -- a match, EOF or TIMEOUT
        """The last match of expect_screen."""
        return None if self._sought is None else self._sought.match

    def read_some(self) -> Any:  # noqa: ANN401 -- str or bytes
        """What came and was not looked for; None: nothing now; empty: the end. Never waits.

        Raises TerminalError: the terminal was closed.
        """
        if not self.spawn.unread:
            self.spawn.absorb()
        if not self.spawn.unread and not self.spawn.flag_eof:
            # Half a character may have come.
            return None
        return self.spawn.take(self.spawn.unread)

    @property
    def buffer(self) -> Any:  # noqa: ANN401 -- str or bytes
        """What came since, and the next expect looks at first."""
        return self.spawn.buffer

    def screen(self, *, colours: bool = False) -> View:
        """What a person would see now, drawn from the last MiB of the output; of a terminal that is
        huge, a part."""
        self.spawn.absorb()
        return self._draw().view(colours=colours)

    def _draw(self) -> Canvas:
        from ocisbx.expect.screen import (  # noqa: PLC0415 -- pyte, for who looks at the screen
            Canvas,
            last_bytes,
        )

        rows, columns = self.note_size()
        # Nobody has set them.
        rows, columns = rows or DEFAULT_SIZE.rows, columns or DEFAULT_SIZE.columns
        if self._canvas is None:
            self._canvas = Canvas(rows, columns)
        canvas, spawn = self._canvas, self.spawn
        canvas.resize(rows, columns)
        missing = spawn.total_bytes - canvas.fed_bytes
        data = last_bytes(spawn.tail, missing)
        if len(data) < missing:
            canvas.restart()
            canvas.fed_bytes += missing - len(data)
        canvas.feed(data)
        return canvas

    # ------------------------------------------------------------------------ for both twins
    def _patterns(self, patterns: Any) -> list[Any]:  # noqa: ANN401 -- one or several
        return self.spawn.compile_pattern_list(several(patterns))

    def _look_for(self, patterns: Any) -> tuple[OnScreen, Callable[[], int | None]]:  # noqa: ANN401 -- as above
        self._sought = sought = OnScreen(patterns)
        return sought, lambda: sought.find(self._draw().view().text)

    def _enough(self, size: int) -> Callable[[], bool | None]:
        spawn = self.spawn
        spawn.check_count(size)
        return lambda: True if spawn.flag_eof or (size >= 0 and spawn.unread >= size) else None


class Expect(_Face):
    """A program on a terminal, driven as by a person at a keyboard."""

    def send(
        self, text: str | bytes, *, timeout_s: float | None = TIMEOUT_S, secret: bool = False
    ) -> int:
        """Type; the number of bytes. A `secret` stands in no error, no report and no transcript.

        What the program prints meanwhile stays to be looked at.

        Raises:
            ExpectEOF: nobody has the terminal open any more.
            ExpectTimeout: the program does not read in time.
            TerminalError: it was closed under us.
        """
        self._hide(text, secret=secret)
        return self.spawn.send(text, secret=secret, timeout=timeout_s)

    def sendline(
        self, text: str | bytes = "", *, timeout_s: float | None = TIMEOUT_S, secret: bool = False
    ) -> int:
        """Type a line and its end."""
        return self.send(self._line(text), timeout_s=timeout_s, secret=secret)

    def sendcontrol(self, key: str) -> int:
        """Type Ctrl and a key: `c`, `d`, `z`, `[` (Escape). Raises ConfigError for another."""
        return self.spawn.sendcontrol(key)

    def sendeof(self) -> int:
        """Type what ends the input, Ctrl-D; it counts at the beginning of a line."""
        return self.spawn.sendeof()

    def expect(
        self,
        patterns: Any,  # noqa: ANN401 -- one or several
        timeout_s: float | None = TIMEOUT_S,
        *,
        window: int | None = None,
    ) -> int:
        """Wait for a pattern, and return the index of the one that matched first.

        timeout_s: 0 looks only at what is there; None waits for ever.
        window: how many characters of the end of the output are searched; None: all.

        Raises:
            ExpectTimeout, ExpectEOF: the time or the output ended; `before` holds what came.
            ConfigError: a pattern does not compile, or its search takes too long.
            TerminalError: the terminal was closed.
        """
        compiled = self._patterns(patterns)
        with self._errors(compiled, timeout_s):
            return self.spawn.expect_list(compiled, timeout_s, window)  # type: ignore[return-value]

    def expect_exact(
        self,
        texts: Any,  # noqa: ANN401 -- one or several
        timeout_s: float | None = TIMEOUT_S,
        *,
        window: int | None = None,
    ) -> int:
        """expect() for plain texts."""
        with self._errors(texts, timeout_s):
            return self.spawn.expect_exact(texts, timeout_s, window)  # type: ignore[return-value]

    def expect_screen(
        self,
        patterns: Any,  # noqa: ANN401 -- one or several
        timeout_s: float | None = TIMEOUT_S,
    ) -> int:
        """Wait until a pattern stands on the screen; `screen_match` is its match.

        What came stays to be looked at by expect(). It raises as expect() does.
        """
        sought, look = self._look_for(patterns)
        with self._errors(patterns, timeout_s):
            try:
                return self._until(look, timeout_s)
            except (EOF, TIMEOUT) as error:
                return sought.over(error)

    def read(self, size: int = -1, timeout_s: float | None = TIMEOUT_S) -> Any:  # noqa: ANN401 -- str or bytes
        """The next `size` characters, fewer at the end; all until the end where it is negative,
        without their beginning where that is more than is kept (`before_truncated`).

        Raises:
            ExpectTimeout: they did not come; they stay in the buffer.
            ConfigError: so many are not kept.
        """
        enough = self._enough(size)
        with self._errors(f"the next {size} characters" if size >= 0 else EOF, timeout_s):
            self._until(enough, timeout_s, size)
        return self.spawn.take(size if size >= 0 else self.spawn.unread)

    def _until(self, look: Callable[[], T | None], timeout_s: float | None, most: int = -1) -> T:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        self.spawn.absorb(0, most)
        while (found := look()) is None:
            _check(self.spawn, until)
            self.spawn.absorb(left(until), most)
        return found

    @contextmanager
    def _errors(self, wanted: object, timeout_s: float | None) -> Iterator[None]:
        try:
            yield
        except (EOF, TIMEOUT) as error:
            ending = self.spawn.how_ended() if isinstance(error, EOF) else ""
            raise as_ours(error, self, wanted, timeout_s, ending) from None


class AsyncExpect(_Face):
    """Expect for asyncio: the same names; other tasks go on while it waits."""

    async def send(
        self, text: str | bytes, *, timeout_s: float | None = TIMEOUT_S, secret: bool = False
    ) -> int:
        """As Expect.send."""
        self._hide(text, secret=secret)
        return await self.spawn.send_async(text, secret=secret, timeout=timeout_s)

    async def sendline(
        self, text: str | bytes = "", *, timeout_s: float | None = TIMEOUT_S, secret: bool = False
    ) -> int:
        """As Expect.sendline."""
        return await self.send(self._line(text), timeout_s=timeout_s, secret=secret)

    async def sendcontrol(self, key: str) -> int:
        """As Expect.sendcontrol."""
        return await self.spawn.send_async(self.spawn.key(key))

    async def sendeof(self) -> int:
        """As Expect.sendeof."""
        return await self.spawn.send_async(self.spawn.end_key())

    async def expect(
        self,
        patterns: Any,  # noqa: ANN401 -- one or several
        timeout_s: float | None = TIMEOUT_S,
        *,
        window: int | None = None,
    ) -> int:
        """As Expect.expect."""
        compiled = self._patterns(patterns)
        async with self._errors(compiled, timeout_s):
            found: Awaitable[int] = self.spawn.expect_list(  # type: ignore[assignment]
                compiled, timeout_s, window, async_=True
            )
            return await found

    async def expect_exact(
        self,
        texts: Any,  # noqa: ANN401 -- one or several
        timeout_s: float | None = TIMEOUT_S,
        *,
        window: int | None = None,
    ) -> int:
        """As Expect.expect_exact."""
        async with self._errors(texts, timeout_s):
            found: Awaitable[int] = self.spawn.expect_exact(  # type: ignore[assignment]
                texts, timeout_s, window, async_=True
            )
            return await found

    async def expect_screen(
        self,
        patterns: Any,  # noqa: ANN401 -- one or several
        timeout_s: float | None = TIMEOUT_S,
    ) -> int:
        """As Expect.expect_screen."""
        sought, look = self._look_for(patterns)
        async with self._errors(patterns, timeout_s):
            try:
                return await self._until(look, timeout_s)
            except (EOF, TIMEOUT) as error:
                return sought.over(error)

    async def read(self, size: int = -1, timeout_s: float | None = TIMEOUT_S) -> Any:  # noqa: ANN401 -- str or bytes
        """As Expect.read."""
        enough = self._enough(size)
        async with self._errors(f"the next {size} characters" if size >= 0 else EOF, timeout_s):
            await self._until(enough, timeout_s, size)
        return self.spawn.take(size if size >= 0 else self.spawn.unread)

    async def _until(
        self, look: Callable[[], T | None], timeout_s: float | None, most: int = -1
    ) -> T:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        self.spawn.absorb(0, most)
        while (found := look()) is None:
            _check(self.spawn, until)
            await self.spawn.await_input(left(until))
            self.spawn.absorb(0, most)
        return found

    @asynccontextmanager
    async def _errors(self, wanted: object, timeout_s: float | None) -> AsyncIterator[None]:
        try:
            yield
        except (EOF, TIMEOUT) as error:
            ending = await self.spawn.await_ending() if isinstance(error, EOF) else ""
            raise as_ours(error, self, wanted, timeout_s, ending) from None


def _check(spawn: Spawn, until: float | None) -> None:
    """Raises pexpect's EOF or TIMEOUT when there is nothing more to wait for."""
    if not spawn.flag_eof and not is_over(until):
        return
    spawn.before = spawn.unread_text
    raise EOF("the output has ended") if spawn.flag_eof else TIMEOUT("nothing came in time")
