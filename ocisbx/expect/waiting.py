"""Waiting for a terminal's output: moments on a clock that never jumps, one turn of a wait."""

from __future__ import annotations

import asyncio
import time

# How long a wait may be before it is looked whether the program has ended: its terminal may be held
# open by nobody whom we see.
LOOK_S = 0.5


def left(until: float | None) -> float | None:
    """Seconds until a moment of time.monotonic(), at least 0; None: for ever."""
    return None if until is None else max(0.0, until - time.monotonic())


def is_over(until: float | None) -> bool:
    """Whether a moment of time.monotonic() is past."""
    return until is not None and time.monotonic() >= until


def turn(until: float | None) -> float:
    """Seconds of one turn of a wait that ends at `until`."""
    seconds = left(until)
    return LOOK_S if seconds is None else min(LOOK_S, seconds)


class Waiter:
    """A wait of one task for something to read; the event loop has one reader of a descriptor.

    Who closes the descriptor ends the wait before, in the loop: its number may be another
    terminal's at once, of which the loop would hear nothing.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(descriptor, self.wake)

    async def wait(self, timeout_s: float) -> bool:
        """Whether there is something to read, or the wait was ended, by then."""
        try:
            await asyncio.wait([self._woken], timeout=timeout_s)
            return self._woken.done()
        finally:
            self.wake()

    def wake(self) -> None:
        """End the wait, and let go of the descriptor."""
        if not self._woken.done():
            self._loop.remove_reader(self._descriptor)
            self._woken.set_result(None)
