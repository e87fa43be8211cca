"""AsyncSession: many at once, and cancellation that ends the command and nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx import Container
from tests.box import eventually, nap, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.box import Box

pytestmark = pytest.mark.runtime


def session(house: Box, **options: Any) -> ocisbx.AsyncSession:
    runtime = {"names": [house.runtime.path]}
    wanted: dict[str, Any] = {"runtime": runtime, "workspace": str(house.workspace), "grace_s": 0.2}
    return ocisbx.AsyncSession(**(wanted | options))


def test_many_at_once(house: Box) -> None:
    async def main() -> list[ocisbx.RunResult]:
        async with session(house) as one:
            return list(
                await asyncio.gather(
                    *(
                        one.run("cat; exit $N", shell=True, input=b"x", env={"N": str(number)})
                        for number in range(20)
                    )
                )
            )

    results = asyncio.run(main())
    assert [result.exit_code for result in results] == list(range(20))
    assert {result.stdout for result in results} == {b"x"}
    assert Container.all() == []


@pytest.mark.parametrize("delay_ms", [0, 1, 5, 20, 60, 200])
def test_cancellation_ends_the_command_and_not_the_session(house: Box, delay_ms: int) -> None:
    mark = nap()

    async def main() -> None:
        async with session(house) as one:
            task = asyncio.create_task(one.run(f"setsid sleep {mark} & sleep {mark}", shell=True))
            await asyncio.sleep(delay_ms / 1000)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(eventually, lambda: running(mark) == [])
            assert (await one.run(["echo", "on"])).stdout == b"on\n"

    asyncio.run(main())


@pytest.mark.parametrize("delay_ms", [0, 5, 50, 100, 200])
def test_an_opening_that_is_cancelled_leaves_nothing(house: Box, delay_ms: int) -> None:
    async def main() -> None:
        async def use() -> None:
            async with session(house):
                await asyncio.sleep(60)

        task = asyncio.create_task(use())
        await asyncio.sleep(delay_ms / 1000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert Container.all() == []


def test_the_same_names(house: Box, tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "f").write_text("data")
        async with session(house, name="it", keep=True) as one:
            await one.put(tmp_path / "f", "/tmp/f")
            await one.get("/tmp/f", tmp_path / "g")
            async with one.start("echo up; sleep 60", shell=True) as beside:
                assert await beside.wait(0.05) is None
            found = await ocisbx.AsyncSession.find("it")
            assert (found.id, found.name, found.is_running) == (one.id, "it", True)
            child = one.child(runtime={"names": [house.runtime.path]}, workspace="none")
            async with child:
                assert [other.id for other in await one.children()] == [child.id]
                with pytest.raises(ocisbx.PolicyDenied):
                    await child.end_child("it")
            await found.close()
            await one.end()
        with pytest.raises(ocisbx.ConfigError):
            await ocisbx.AsyncSession.find("it")

    asyncio.run(main())
    assert (tmp_path / "g").read_text() == "data"
