"""What a thread does to its end whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from ocisbx.whole import whole


async def cancelled(times: int, waiting: asyncio.Task[str], go_on: threading.Event) -> None:
    await asyncio.sleep(0)
    for _ in range(times):
        waiting.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_came_of_it_is_undone_however_often_it_is_cancelled(times: int) -> None:
    undone: list[str] = []
    go_on = threading.Event()

    def act() -> str:
        assert go_on.wait(20)
        return "made"

    async def go() -> None:
        waiting = asyncio.ensure_future(whole(act, undo=undone.append))
        await cancelled(times, waiting, go_on)

    asyncio.run(go())
    assert undone == ["made"]


def test_the_end_of_the_loop_loses_nothing_either() -> None:
    undone: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def act() -> str:
        begun.set()
        assert go_on.wait(20)
        return "made"

    async def go() -> None:
        waiting = asyncio.ensure_future(whole(act, undo=undone.append))
        await asyncio.to_thread(begun.wait)
        threading.Timer(0.1, go_on.set).start()
        assert not waiting.done()

    asyncio.run(go())
    assert undone == ["made"]


def test_what_it_gives_and_raises_is_ours() -> None:
    def fail() -> None:
        raise KeyError("no")

    async def go() -> None:
        assert await whole(lambda: "made") == "made"
        with pytest.raises(KeyError):
            await whole(fail)

    asyncio.run(go())


@pytest.mark.parametrize("failing", ["act", "undo"])
def test_who_is_cancelled_hears_that_and_a_failure_is_told(failing: str) -> None:
    """As asyncio.timeout, which makes a TimeoutError of a cancellation alone."""
    told: list[dict[str, object]] = []
    go_on = threading.Event()

    def fail(what: str) -> str:
        assert go_on.wait(20)
        if what == failing:
            raise KeyError(what)
        return "undo"

    async def go() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        async with asyncio.timeout(0):
            # In this order: it is cancelled before it fails.
            loop.call_soon(go_on.set)
            await whole(partial(fail, "act"), undo=fail)

    with pytest.raises(TimeoutError):
        asyncio.run(go())
    (context,) = told
    assert repr(context["exception"]) == f"KeyError({failing!r})"
