"""asyncio: many at once, cancellation at any time, a loop that stays responsive."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import ocisbx
from ocisbx.errors import ConfigError, RuntimeMissing
from tests.box import eventually, nap, running

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime


def test_many_at_once(box: Box) -> None:
    async def main() -> list[ocisbx.RunResult]:
        sandbox = box.sandbox()
        return list(await asyncio.gather(*(sandbox.arun(["echo", str(n)]) for n in range(12))))

    results = asyncio.run(main())
    assert [result.stdout for result in results] == [f"{n}\n".encode() for n in range(12)]


def test_the_loop_goes_on(box: Box) -> None:
    async def main() -> tuple[float, int]:
        gaps: list[float] = []
        task = asyncio.create_task(box.sandbox().arun(["sleep", "0.5"]))
        while not task.done():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)
        await task
        return sorted(gaps)[len(gaps) // 2], len(gaps)

    median_s, turns = asyncio.run(main())
    assert median_s < 0.1
    # One that stands still turns once.
    assert turns > 3


@pytest.mark.parametrize("delay_ms", [0, 1, 5, 20, 60])
def test_cancellation_at_any_time(box: Box, delay_ms: int) -> None:
    mark = nap()

    async def main() -> None:
        task = asyncio.create_task(box.sandbox(grace_s=0.2).arun(["sleep", mark]))
        await asyncio.sleep(delay_ms / 1000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert running(mark) == []


def test_cancelled_again_it_is_killed_and_waited_for(box: Box) -> None:
    mark = nap()
    script = f"trap '' TERM; echo up; sleep {mark} & wait; wait"

    async def main() -> None:
        up = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell(_: bytes) -> None:
            loop.call_soon_threadsafe(up.set)

        sandbox = box.sandbox(grace_s=3600)
        task = asyncio.create_task(sandbox.arun(script, shell=True, on_stdout=tell))
        await up.wait()
        task.cancel()
        # It hears of the first before it is told of the second.
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running(mark) == []

    asyncio.run(main())


def test_who_is_left_when_the_loop_ends_has_its_grace(box: Box) -> None:
    """asyncio.run cancels all tasks then."""
    mark = nap()
    script = f"trap 'sleep 0.3; echo saved >kept; exit' TERM; echo up; sleep {mark} & wait"

    async def main() -> None:
        up = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell(_: bytes) -> None:
            loop.call_soon_threadsafe(up.set)

        sandbox = box.sandbox(workspace=f"{box.base}/ws:rw", grace_s=60)
        left.append(asyncio.create_task(sandbox.arun(script, shell=True, on_stdout=tell)))
        await up.wait()

    left: list[asyncio.Task[ocisbx.RunResult]] = []
    asyncio.run(main())
    assert left[0].cancelled()
    assert (box.base / "ws/kept").read_text() == "saved\n"
    assert running(mark) == []


def test_a_timeout_of_asyncio(box: Box) -> None:
    mark = nap()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await box.sandbox().arun(["sleep", mark])

    asyncio.run(main())
    assert running(mark) == []


def test_errors_come_out(box: Box) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError):
            await ocisbx.arun(["true"], workspace="/etc")
        with pytest.raises(RuntimeMissing):
            await ocisbx.arun(["true"], runtime={"names": ["/no/runtime"]}, workspace="none")

    asyncio.run(main())


def test_the_async_twin(box: Box) -> None:
    async def main() -> int | None:
        names = [box.runtime.path]
        async with ocisbx.AsyncSandbox(runtime={"names": names}, workspace="none") as sandbox:
            return (await sandbox.run(["sh", "-c", "exit 7"])).exit_code

    assert asyncio.run(main()) == 7


def test_a_command_in_the_background(box: Box) -> None:
    async def main() -> None:
        async with ocisbx.AsyncSandbox(box.sandbox().config) as sandbox:
            async with sandbox.start(["sh", "-c", "echo up; exec sleep 60"]) as one:
                while one.logs() != b"up\n":
                    assert await one.wait(0.01) is None
                assert one.poll() is None
                one.kill()
                result = await one.wait()
                assert result is not None
                assert (result.id, result.signal) == (one.id, 9)
            other = await sandbox.start(["true"])
            ended = await other.wait(60)
            assert ended is not None
            assert ended.exit_code == 0
            with pytest.raises(ConfigError):
                (await sandbox.start([])).cancel()

    asyncio.run(main())


@pytest.mark.parametrize("delay_ms", [0, 2, 10, 60])
def test_leaving_the_background_ends_it(box: Box, delay_ms: int) -> None:
    mark = nap()

    async def main() -> None:
        async def background() -> None:
            sandbox = ocisbx.AsyncSandbox(box.sandbox(grace_s=0.2).config)
            async with sandbox.start(["sleep", mark]) as one:
                await one.wait()

        task = asyncio.create_task(background())
        await asyncio.sleep(delay_ms / 1000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert eventually(lambda: running(mark) == [])
