"""Expect, with our names and errors, and its twin for asyncio; the work is done by Spawn.

`patterns` is one pattern or several: text in `re` syntax, a compiled pattern, pexpect.EOF or
pexpect.TIMEOUT, which match the end of the output and of the time instead of raising.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pexpect import EOF, TIMEOUT

from ocisbx.expect.face import Face
from ocisbx.expect.sought import as_ours, without_secrets
from ocisbx.expect.waiting import is_over, left

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from ocisbx.expect.spawn import Spawn

T = TypeVar("T")

TIMEOUT_S = 30.0
"""pexpect's default."""


class Expect(Face):
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
        secret = self._hide(text, secret=secret)
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
            with without_secrets(self.typed):
                yield
        except (EOF, TIMEOUT) as error:
            ending = self.spawn.how_ended() if isinstance(error, EOF) else ""
            raise as_ours(error, self, wanted, timeout_s, ending) from None


class AsyncExpect(Face):
    """Expect for asyncio: the same names; other tasks go on while it waits."""

    async def send(
        self, text: str | bytes, *, timeout_s: float | None = TIMEOUT_S, secret: bool = False
    ) -> int:
        """As Expect.send."""
        secret = self._hide(text, secret=secret)
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
            with without_secrets(self.typed):
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
