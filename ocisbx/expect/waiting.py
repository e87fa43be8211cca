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


async def readable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read by then; the event loop has one reader of a descriptor."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _settle, ready)
    try:
        await asyncio.wait([ready], timeout=timeout_s)
    finally:
        loop.remove_reader(descriptor)
    return ready.done()


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
