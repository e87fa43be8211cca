"""The asyncio twin: many terminals at once, one thread."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from pexpect import EOF, TIMEOUT

from ocisbx.errors import ConfigError, ExpectEOF, ExpectTimeout, InvalidState, TerminalError
from ocisbx.expect.ends import Descriptor
from ocisbx.expect.expecting import AsyncExpect
from ocisbx.expect.waiting import LOOK_S
from ocisbx.terminal.terminal import Ending
from tests.expect.programs import awaited, driven, python

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 60.0


def test_the_same_names_and_errors() -> None:
    async def go() -> None:
        with awaited(*python("print('hello ' + input('name? ') * 2); input()")) as terminal:
            assert await terminal.expect(r"(\w+)\? ", WAIT_S) == 0
            await terminal.sendline("Ada")
            assert await terminal.expect_exact(["x", "AdaAda"], WAIT_S) == 1
            assert await terminal.expect_screen("hello Ada", WAIT_S) == 0
            with pytest.raises(ExpectTimeout, match="'more' did not appear"):
                await terminal.expect("more", 0.1)
            assert await terminal.expect([TIMEOUT, "more"], 0) == 0
            with pytest.raises(ConfigError):
                await terminal.expect("(", WAIT_S)
            await terminal.sendline()
            assert (await terminal.read(-1, WAIT_S)).endswith("\r\n")
            with pytest.raises(ExpectEOF):
                await terminal.expect("more", WAIT_S)
            assert await terminal.expect(EOF, WAIT_S) == 0

    asyncio.run(go())


def test_a_hundred_at_once_in_one_thread() -> None:
    async def talk(number: int, stack: ExitStack) -> None:
        terminal = stack.enter_context(awaited("cat", echo=False))
        for turn in range(3):
            await terminal.sendline(f"{number}.{turn}")
            await terminal.expect(rf"^{number}\.{turn}\r\n", WAIT_S)

    async def go() -> None:
        with ExitStack() as stack:
            await asyncio.gather(*(talk(number, stack) for number in range(100)))
            assert threading.active_count() == 1

    asyncio.run(go())


def test_a_cancelled_wait_loses_nothing() -> None:
    async def go() -> None:
        with awaited("sh", "-c", "printf one; sleep 0.5; printf two; sleep 60") as terminal:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(terminal.expect("never", None), 0.2)
            assert await terminal.expect("onetwo", WAIT_S) == 0

    asyncio.run(go())


def test_other_tasks_go_on_meanwhile() -> None:
    async def go() -> None:
        with awaited("sleep", "60") as terminal:
            waiting = asyncio.create_task(terminal.expect("x", 1))
            turns = 0
            while not waiting.done():
                await asyncio.sleep(0.01)
                turns += 1
            assert turns > 5
            with pytest.raises(ExpectTimeout):
                await waiting

    asyncio.run(go())


def test_two_tasks_cannot_wait_for_one_terminal() -> None:
    async def go() -> None:
        with awaited("cat", echo=False) as terminal:
            waiting = asyncio.create_task(terminal.expect("line", WAIT_S))
            await asyncio.sleep(0.05)
            with pytest.raises(InvalidState, match="another task"):
                await terminal.expect("x", WAIT_S)
            await terminal.sendline("line")
            assert await waiting == 0

    asyncio.run(go())


def test_a_terminal_that_outlives_its_program_is_at_its_end() -> None:
    """Whoever holds it open: what the program started, or a runtime's own process."""

    async def go() -> None:
        with awaited("sh", "-c", "trap '' HUP; sleep 60 & printf last") as terminal:
            assert await terminal.expect([EOF, "never"], WAIT_S) == 0
            assert terminal.before == "last"
            assert terminal.spawn.how_ended() == "exited with code 0"

    asyncio.run(go())
    with driven("sh", "-c", "trap '' HUP; sleep 60 & printf last") as terminal:
        assert terminal.expect([EOF, "never"], WAIT_S) == 0
        assert terminal.before == "last"


def slow(seconds: float) -> Callable[[], Ending | None]:
    """The end of a program that is a while in coming, as a container's is."""
    at = time.monotonic() + seconds
    return lambda: Ending("exit code 3", 3) if time.monotonic() > at else None


def test_a_program_that_takes_its_time_to_end_holds_no_other_task_back() -> None:
    async def go() -> list[float]:
        controller, terminal = os.openpty()
        expect = AsyncExpect(Descriptor(controller, slow(0.45)))
        gaps = [0.0]

        async def turn() -> None:
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.01)
                gaps.append(time.monotonic() - began)

        turning = asyncio.create_task(turn())
        os.close(terminal)
        with pytest.raises(ExpectEOF, match="exit code 3"):
            await expect.expect("never", WAIT_S)
        expect = AsyncExpect(Descriptor(controller, slow(0.45)))
        expect.spawn.absorb()
        with pytest.raises(ExpectEOF, match="exit code 3"):
            await expect.sendline("anybody?")
        turning.cancel()
        os.close(controller)
        return gaps

    gaps = asyncio.run(go())
    assert sum(gaps) > 0.8
    assert max(gaps) < 0.3


def test_a_closed_one_leaves_no_reader_to_the_next_with_its_number() -> None:
    async def go() -> None:
        controller, terminal = os.openpty()
        first = AsyncExpect(controller)
        looking = asyncio.create_task(first.expect("never", WAIT_S))
        await asyncio.sleep(0.05)
        first.spawn.close()
        second_controller, second_terminal = os.openpty()
        assert second_controller == controller
        second = AsyncExpect(second_controller)
        asyncio.get_running_loop().call_later(0.05, os.write, second_terminal, b"prompt> ")
        started = time.monotonic()
        assert await second.expect("prompt> ", WAIT_S) == 0
        # Without a reader it is looked for every half second.
        assert time.monotonic() - started < LOOK_S - 0.1
        with pytest.raises(TerminalError, match="was closed"):
            await looking
        second.spawn.close()
        os.close(terminal)
        os.close(second_terminal)

    asyncio.run(go())
