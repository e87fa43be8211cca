"""The end of a terminal while others look at it, its looks afterwards, and starts that fail."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from pexpect import EOF

import ocisbx
from ocisbx import AsyncTerminal, ConfigError, ExpectEOF, Terminal
from ocisbx.expect.face import Face
from tests.terminal.conftest import of_each_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ocisbx.terminal.terminal import ContainerTerminal
    from tests.box import Box

LAST_WORDS = ["sh", "-c", "read x; echo last words"]


def fields(box: Box) -> dict[str, Any]:
    runtime = {"names": [box.runtime.path], "platform": box.runtime.platform}
    return {"runtime": runtime, "workspace": str(box.workspace), "grace_s": 0}


async def be_busy(turns: int) -> None:
    """Hold the event loop back, as a task does that computes."""
    for _ in range(turns):
        time.sleep(0.1)
        await asyncio.sleep(0)


@of_each_name
def test_who_looks_gets_the_last_words_though_another_waits_for_the_end(box: Box) -> None:
    """Also where the loop was busy, and who waits for the end hears of it first."""

    async def work() -> None:
        async with (
            ocisbx.AsyncSandbox(**fields(box)) as sandbox,
            sandbox.spawn(LAST_WORDS) as terminal,
        ):
            looking = asyncio.create_task(terminal.expect("never", 30))
            await asyncio.sleep(0.1)
            await terminal.sendline()
            while not terminal.has_ended:
                time.sleep(0.01)
            await asyncio.sleep(0)
            busy = asyncio.create_task(be_busy(10))
            result = await terminal.wait(30)
            with pytest.raises(ExpectEOF, match="last words"):
                await looking
            await busy
            assert result is not None
            assert result.exit_code == 0

    asyncio.run(work())


@of_each_name
def test_who_closes_it_ends_the_wait_of_who_looks(box: Box) -> None:
    """Before its descriptor is closed, whose number the next terminal may get."""

    async def work() -> None:
        async with ocisbx.AsyncSandbox(**fields(box)) as sandbox:
            terminal = await sandbox.spawn(["sleep", "60"])
            looking = asyncio.create_task(terminal.expect("never", 30))
            await asyncio.sleep(0.1)
            descriptor = terminal.fileno()
            closing = asyncio.create_task(terminal.close())
            await asyncio.sleep(0)
            assert not asyncio.get_running_loop().remove_reader(descriptor)
            with pytest.raises(ExpectEOF):
                await looking
            await closing

    asyncio.run(work())


@of_each_name
def test_what_it_showed_is_looked_at_after_its_end(box: Box) -> None:
    script = r"read x; printf '\033[2;90Hhere\r\n'"

    def shown(terminal: Terminal | AsyncTerminal) -> str:
        return terminal.screen().text.split("\n")[1].strip()

    with box.sandbox().spawn(["sh", "-c", script], size=(5, 80)) as terminal:
        terminal.resize(5, 100)
        terminal.sendline()
        assert terminal.wait(20) is not None
        assert shown(terminal) == "here"
        assert terminal.expect_screen([EOF, "here"], 0) == 1
        assert terminal.expect(["never", EOF], 5) == 1
    assert shown(terminal) == "here"

    async def work() -> None:
        async with ocisbx.AsyncSandbox(**fields(box)) as sandbox:
            terminal = await sandbox.spawn(["sh", "-c", script], size=(5, 80))
            terminal.resize(5, 100)
            await terminal.sendline()
            assert await terminal.wait(20) is not None
            assert shown(terminal) == "here"
            assert await terminal.expect_screen([EOF, "here"], 0) == 1
            assert await terminal.expect(["never", EOF], 5) == 1
            with pytest.raises(ExpectEOF):
                await terminal.expect("never", 5)
            await terminal.close()

    asyncio.run(work())


@of_each_name
def test_a_screen_is_looked_at_though_nobody_waited_for_the_end(box: Box) -> None:
    script = r"printf '\033[2;90Hhere'; read x"
    terminal = box.sandbox(grace_s=0).spawn(["sh", "-c", script], size=(5, 80))
    terminal.resize(5, 100)
    assert terminal.expect_exact("here", timeout_s=20) == 0
    terminal.close()
    assert terminal.screen().text.split("\n")[1].strip() == "here"

    async def work() -> None:
        async with (
            ocisbx.AsyncSandbox(**fields(box)) as sandbox,
            sandbox.spawn(["sh", "-c", script], size=(5, 80)) as terminal,
        ):
            terminal.resize(5, 100)
            assert await terminal.expect_exact("here", timeout_s=20) == 0
        assert terminal.screen().text.split("\n")[1].strip() == "here"

    asyncio.run(work())


@of_each_name
@pytest.mark.parametrize("encoding", ["no-such", "hex", "a\0b", 8])
def test_an_encoding_that_is_none_is_told_before_anything_starts(
    box: Box, encoding: Any, tmp_path: Path
) -> None:
    options = {"encoding": encoding, "transcript": str(tmp_path / "cast")}
    spawns: list[Callable[..., object]] = [
        box.sandbox().spawn,
        ocisbx.AsyncSandbox(**fields(box)).spawn,
    ]
    for spawn in spawns:
        with pytest.raises(ConfigError, match="is not an encoding"):
            spawn(["sleep", "60"], **options)
    assert list(tmp_path.glob("cast")) == []


class Refusing(Face):
    """In place of whatever may fail on a terminal that is there."""

    def __init__(self, *_: object, **__: object) -> None:
        raise MemoryError


class Refused(Terminal, Refusing):
    pass


class AsyncRefused(AsyncTerminal, Refusing):
    pass


@of_each_name
def test_a_start_that_fails_or_is_cancelled_leaves_nothing(box: Box) -> None:
    made: list[ContainerTerminal] = []

    def begin() -> ContainerTerminal:
        made.append(box.sandbox(grace_s=0).hold(["sleep", "60"]))
        return made[-1]

    async def start() -> None:
        async with AsyncTerminal(begin):
            raise AssertionError

    async def cancel_twice() -> None:
        starting = asyncio.ensure_future(start())
        for _ in range(2):
            await asyncio.sleep(0.01)
            starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    async def fail() -> None:
        with pytest.raises(MemoryError):
            async with AsyncRefused(begin):
                pass

    with pytest.raises(MemoryError):
        Refused(begin)
    asyncio.run(fail())
    asyncio.run(cancel_twice())
    assert [raw.has_ended for raw in made] == [True] * 3
