"""What a thread does to its end whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import threading

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
        waiting = asyncio.ensure_future(whole(fail))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(KeyError):
            await waiting

    asyncio.run(go())
