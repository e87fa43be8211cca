"""What cannot be ended half-way, for asyncio: in a thread, and waited for whoever is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def whole(act: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Do it in a thread, and be cancelled only when it is done; `undo` what came of it then.

    However often it is cancelled: nobody else would know of what came of it.
    """
    doing = _begin(act)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await _settle(doing)
        made = doing.result()
        if undo is not None:
            undoing = _begin(lambda: undo(made))
            await _settle(undoing)
            undoing.result()
        raise


def _begin(act: Callable[[], T]) -> asyncio.Future[T]:
    # No task: asyncio.run cancels every task at its end, and what the thread makes would be lost.
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(None, contextvars.copy_context().run, act)


async def _settle(doing: asyncio.Future[T]) -> None:
    while not doing.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([doing])
