"""AsyncPool: many at once, cancellation at any time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import ocisbx
from ocisbx.errors import ConfigError, InvalidState, RuntimeMissing
from tests.box import eventually, nap, running
from tests.pool.conftest import of_each_name

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime


def test_many_at_once(box: Box) -> None:
    async def main() -> list[bytes]:
        async with ocisbx.AsyncPool(box.sandbox().config, 2) as pool:
            calls = (pool.run(["cat"], input=f"{n}".encode()) for n in range(8))
            return [result.stdout for result in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [f"{n}".encode() for n in range(8)]


@of_each_name
@pytest.mark.parametrize("delay_ms", [0, 1, 5, 60])
def test_cancellation_at_any_time(box: Box, delay_ms: int) -> None:
    mark = nap()

    async def main() -> None:
        async with ocisbx.AsyncPool(box.sandbox(grace_s=0.2).config, 2) as pool:
            task = asyncio.create_task(pool.run(["sleep", mark]))
            await asyncio.sleep(delay_ms / 1000)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert pool.counts.busy == 0
            assert (await pool.run(["true"])).exit_code == 0

    asyncio.run(main())
    assert eventually(lambda: not running(mark))


def test_an_opening_that_is_cancelled_over_and_over_leaves_nothing(box: Box) -> None:
    async def main() -> None:
        pool = ocisbx.AsyncPool(box.sandbox().config, 1)
        opening = asyncio.create_task(pool.open())
        for _ in range(3):
            # It begins, or hears of the one before.
            for _ in range(5):
                await asyncio.sleep(0)
            opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert pool.counts == (0, 0, 0)
        with pytest.raises(InvalidState):
            await pool.run(["true"])
        await pool.close()

    asyncio.run(main())


def test_a_command_in_the_background(box: Box) -> None:
    async def main() -> None:
        pool = ocisbx.AsyncPool(box.sandbox().config, 1)
        async with pool.start(["sh", "-c", "echo up; exec sleep 60"]) as one:
            while one.logs() != b"up\n":
                assert await one.wait(0.01) is None
            one.kill()
            result = await one.wait()
            assert result is not None
            assert (result.id, result.signal) == (one.id, 9)
        await pool.close()
        with pytest.raises(InvalidState):
            await pool.run(["true"])

    asyncio.run(main())


def test_errors_come_out(box: Box) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeMissing):
            async with ocisbx.AsyncPool(runtime={"names": ["/no/runtime"]}, workspace="none"):
                pass
        with pytest.raises(ConfigError):
            ocisbx.AsyncPool(size=0)
        pool = ocisbx.AsyncPool(box.sandbox().config, 1)
        with pytest.raises(ConfigError):
            await pool.run([])
        await pool.close()

    asyncio.run(main())
