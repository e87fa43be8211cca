"""Waiting for a slot in threads and asyncio: nothing else stands still, all can be called off."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ocisbx import AsyncSandbox
from ocisbx.running import CalledOff
from tests.runtimes.capped import capped, no_cap_around, runtime

if TYPE_CHECKING:
    from tests.box import Box

__all__ = ["no_cap_around", "runtime"]

pytestmark = pytest.mark.runtime


def test_who_waits_in_start_can_be_interrupted(box: Box) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    sender = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def wait_in_start() -> None:
        sender.start()
        capped(box).start(["true"])

    try:
        with capped(box).start(["sleep", "60"]):
            with pytest.raises(KeyboardInterrupt):
                wait_in_start()
            assert len(list(box.bundles.iterdir())) == 1
    finally:
        sender.join()
        signal.signal(signal.SIGINT, before)


def test_who_is_called_off_does_not_start(box: Box) -> None:
    with capped(box).start(["sleep", "60"]):
        running = capped(box).begin(["true"])
        time.sleep(0.1)
        running.cancel()
        with pytest.raises(CalledOff):
            running.started()


def test_the_loop_goes_on_while_calls_wait(box: Box) -> None:
    async def main() -> tuple[float, list[int | None]]:
        sandbox = capped(box)
        sandbox.resolve()
        gaps: list[float] = []
        tasks = [asyncio.create_task(sandbox.arun(["sleep", "0.1"])) for _ in range(6)]
        while not all(task.done() for task in tasks):
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)
        return sorted(gaps)[len(gaps) // 2], [task.result().exit_code for task in tasks]

    median_s, codes = asyncio.run(main())
    assert codes == [0] * 6
    assert median_s < 0.1


def test_a_waiting_call_can_be_cancelled(box: Box) -> None:
    async def main() -> None:
        async with AsyncSandbox(capped(box).config) as sandbox:
            async with sandbox.start(["sleep", "60"]):
                task = asyncio.create_task(sandbox.run(["true"]))
                background = asyncio.create_task(sandbox.start(["true"]).__aenter__())
                await asyncio.sleep(0.2)
                started = time.monotonic()
                for waiting in (task, background):
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                assert time.monotonic() - started < 20
            result = await sandbox.run(["true"])
            assert result.exit_code == 0

    asyncio.run(main())


def test_more_wait_than_the_loop_has_threads(box: Box) -> None:
    """The one that runs must be able to end while all the others wait."""

    async def main() -> list[int | None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        sandbox = AsyncSandbox(capped(box).config)

        async def one() -> int | None:
            async with sandbox.start(["true"]) as running:
                result = await running.wait()
                assert result is not None
                return result.exit_code

        async with sandbox.start(["sleep", "60"]):
            tasks = [asyncio.create_task(one()) for _ in range(8)]
            await asyncio.sleep(0.3)
        async with asyncio.timeout(60):
            return list(await asyncio.gather(*tasks))

    assert asyncio.run(main()) == [0] * 8
