"""AsyncTerminal: Terminal for asyncio. The loop's own reader waits, no thread does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

from ocisbx.errors import ExpectTimeout
from ocisbx.terminal.device import READ_BYTES, control_key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ocisbx.result import RunResult
    from ocisbx.terminal.device import Size
    from ocisbx.terminal.terminal import Terminal


class AsyncTerminal:
    """It is awaited, or used as an async context whose exit ends what runs.

    `read`, `send`, `sendline`, `sendcontrol`, `sendeof`, `wait` and `close` are awaited; `resize`,
    `signal`, `echo`, `read_some` and the like return at once.
    """

    def __init__(self, begin: Callable[[], Terminal]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[None, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        beginning = asyncio.ensure_future(asyncio.to_thread(self._begin))
        try:
            self.terminal = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # Once begun, nobody else would end its container.
            self.terminal = await beginning
            await self.close()
            raise
        self._ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            # A loop that was closed meanwhile has nobody left to wake.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended.set)

        self.terminal.then(wake)
        self.fileno, self.ended = self.terminal.fileno, self.terminal.ended
        self.read_some, self.write_some = self.terminal.read_some, self.terminal.write_some
        self.resize, self.signal = self.terminal.resize, self.terminal.signal
        self.modes = self.terminal.modes
        self.id, self.pid = self.terminal.id, self.terminal.pid
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def echo(self) -> bool:
        """As `Terminal.echo`."""
        return self.terminal.echo

    @property
    def hides_input(self) -> bool:
        """As `Terminal.hides_input`."""
        return self.terminal.hides_input

    @property
    def size(self) -> Size:
        """As `Terminal.size`."""
        return self.terminal.size

    async def read(self, size: int = -1, *, timeout_s: float | None = None) -> bytes:
        """As `Terminal.read`."""
        found = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                while size < 0 or len(found) < size:
                    data = self.read_some(READ_BYTES if size < 0 else size - len(found))
                    if data == b"":
                        break
                    if data is None:
                        await self._event(writing=False)
                    else:
                        found += data
        except BaseException as error:
            self.terminal.unread(found)
            if not isinstance(error, TimeoutError):
                raise
            message = f"{len(found)} bytes came within {timeout_s:g} s"
            raise ExpectTimeout(message, why="the program has not printed more") from None
        return bytes(found)

    async def send(
        self, text: str | bytes, *, timeout_s: float | None = None, secret: bool = False
    ) -> int:
        """As `Terminal.send`."""
        data = text.encode() if isinstance(text, str) else text
        rest = memoryview(data)
        try:
            async with asyncio.timeout(timeout_s):
                while rest:
                    written = self.terminal.write_some(rest, secret=secret)
                    rest = rest[written:]
                    if not written:
                        await self._event(writing=True)
                    if rest:
                        self.terminal.set_aside()
        except TimeoutError:
            message = (
                f"{len(data) - len(rest)} of {len(data)} bytes were typed within {timeout_s:g} s"
            )
            raise ExpectTimeout(message, why="the program does not read them") from None
        return len(data)

    async def sendline(
        self, text: str | bytes = "", *, timeout_s: float | None = None, secret: bool = False
    ) -> int:
        """As `Terminal.sendline`."""
        data = text.encode() if isinstance(text, str) else text
        return await self.send(data + b"\n", timeout_s=timeout_s, secret=secret)

    async def sendcontrol(self, character: str) -> int:
        """As `Terminal.sendcontrol`."""
        return await self.send(control_key(character))

    async def sendeof(self) -> int:
        """As `Terminal.sendeof`."""
        return await self.send(self.modes().end_of_file)

    async def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """As `Terminal.wait`; one that is cancelled leaves the program running."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._ended.is_set():
                    if self.terminal.is_at_end:
                        await self._ended.wait()
                    elif self.terminal.set_aside():
                        await asyncio.sleep(0)
                    else:
                        await self._event(writing=False)
        except TimeoutError:
            return None
        # Taking the container away takes a while.
        return await asyncio.shield(asyncio.to_thread(self.terminal.wait))

    async def close(self) -> None:
        """As `Terminal.close`."""
        await asyncio.shield(asyncio.to_thread(self.terminal.close))

    async def _event(self, *, writing: bool) -> None:
        """Something to read (or room to type), or the end of the program."""
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        descriptor = self.fileno()
        loop.add_reader(descriptor, came.set)
        if writing:
            loop.add_writer(descriptor, came.set)
        waits = [asyncio.ensure_future(one.wait()) for one in (came, self._ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            loop.remove_reader(descriptor)
            if writing:
                loop.remove_writer(descriptor)
