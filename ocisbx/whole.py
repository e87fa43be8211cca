"""What cannot be ended half-way, for asyncio: in a thread, and waited for whoever is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def whole(act: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Do it in a thread, and be cancelled only when it is done; `undo` what came of it then.

    However often it is cancelled: nobody else would know of what came of it. Who is cancelled gets
    CancelledError, as asyncio.timeout and TaskGroup count on, whatever else fails meanwhile: that
    is told to the event loop's exception handler, as what asyncio.shield shields is from Python
    3.14 on.
    """
    doing = _begin(act)
    try:
        # Not shield: it tells the handler by itself, but on some versions only.
        await asyncio.wait([doing])
    except asyncio.CancelledError:
        failure = await _settle(doing)
        if failure is None and undo is not None:
            failure = await _settle(_begin(partial(undo, doing.result())))
        if failure is not None:
            _tell(failure)
        raise
    return doing.result()


def _begin(act: Callable[[], T]) -> asyncio.Future[T]:
    # No task: asyncio.run cancels every task at its end, and what the thread makes would be lost.
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(None, contextvars.copy_context().run, act)


async def _settle(doing: asyncio.Future[T]) -> BaseException | None:
    """Wait for its end, whoever is cancelled; what it failed with."""
    while not doing.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([doing])
    return doing.exception()


def _tell(failure: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {
            "message": "what is not ended half-way failed while its task was cancelled",
            "exception": failure,
            "task": asyncio.current_task(),
        }
    )
