"""Terminal: a program in a container on a terminal of its own, driven as by a person; with its
twin for asyncio. What a descriptor can do is Expect's; here is the program's end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Self

from ocisbx.expect.expecting import AsyncExpect, Expect
from ocisbx.expect.face import Face
from ocisbx.expect.intake import check_encoding
from ocisbx.expect.waiting import is_over, left, turn
from ocisbx.whole import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ocisbx.result import RunResult
    from ocisbx.terminal.terminal import ContainerTerminal

# How often a task that waits for the end reads what is printed, so that a full terminal does not
# hold the program back.
READ_S = 0.05


class _Held(Face):
    """What both twins share: the container."""

    raw: ContainerTerminal

    def _hold(self, raw: ContainerTerminal, encoding: str | None) -> None:
        """From now on its end is ours to wait for."""
        self.raw = raw
        super().__init__(raw, encoding=encoding)

    @property
    def id(self) -> str:
        """The container's."""
        return self.raw.id

    @property
    def pid(self) -> int:
        """The program's pid as it sees it itself (`$$` of a shell); 0: it never ran."""
        return self.raw.pid

    @property
    def has_ended(self) -> bool:
        """Whether the program has: what it printed may still be there to be read."""
        return self.raw.has_ended


class Terminal(_Held, Expect):
    """A program and its terminal; use it as a context, whose exit ends what still runs.

    One thread reads and types at a time. What nobody reads stays in the terminal, and holds the
    program back when that is full. For many terminals in one thread: poll their `fileno()` and
    call `read_some`.
    """

    def __init__(
        self, begin: Callable[[], ContainerTerminal], *, encoding: str | None = "utf-8"
    ) -> None:
        """`begin` starts the program; without `encoding` all is bytes.

        Raises:
            ConfigError: there is no such encoding; nothing was started.
            OcisbxError: what `begin` raises.
        """
        check_encoding(encoding)
        raw = begin()
        try:
            self._hold(raw, encoding)
        except BaseException:
            # Nobody else knows of it.
            raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """Wait for the end; None when `timeout_s` passed first. What is printed meanwhile can be
        read and looked for afterwards, the last 64 MiB of it.

        Raises:
            OcisbxError: ocisbx or the runtime failed.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.raw.is_over:
            if is_over(until):
                return None
            self.spawn.absorb(turn(until))
        if not self.raw.wait(left(until)):
            return None
        while self.spawn.absorb():
            pass
        self.note_size()
        return self.raw.finish()

    def close(self) -> None:
        """End the program if it still runs (SIGTERM, the grace, SIGKILL); idempotent. What was not
        read by then is lost. Raises OcisbxError: ocisbx or the runtime failed."""
        self.note_size()
        self.raw.close()


class AsyncTerminal(_Held, AsyncExpect):
    """Terminal for asyncio: it is awaited, or used as an async context whose exit ends what runs.

    The event loop's own reader waits, no thread does. One task looks for something at a time.
    """

    def __init__(
        self, begin: Callable[[], ContainerTerminal], *, encoding: str | None = "utf-8"
    ) -> None:
        """`begin` starts the program, in a thread. Raises ConfigError: no such encoding."""
        check_encoding(encoding)
        self._begin = begin
        self._encoding = encoding

    def __await__(self) -> Generator[None, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        raw = await whole(self._begin, undo=lambda raw: raw.close())
        try:
            self._hold(raw, self._encoding)
        except BaseException:
            # As Terminal's.
            await whole(raw.close)
            raise
        self._ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            # A loop that was closed meanwhile has nobody left to wake.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended.set)

        self.raw.then(wake)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """As Terminal.wait; other tasks may look for something meanwhile, and one that is
        cancelled leaves the program running."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._ended.is_set():
            if is_over(until):
                return None
            if self.spawn.absorb():
                await asyncio.sleep(0)
                continue
            pause_s = min(READ_S, turn(until))
            # Not wait_for: until Python 3.12 it returns where it was cancelled at the same time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._ended.wait()
        while not self.spawn.flag_eof:
            # Where another task waits for output the rest of it is that task's, if it wants it.
            if not self.spawn.absorb():
                self.spawn.wake()
            await asyncio.sleep(0)
        self.note_size()
        # Taking the container away takes a while.
        return await whole(self.raw.finish)

    async def close(self) -> None:
        """As Terminal.close; a task that looks for something is told the end of the output."""
        self.note_size()
        self.spawn.end_reading()
        await whole(self.raw.close)
