"""The asyncio twin: many terminals at once, one thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack

import pytest
from pexpect import EOF, TIMEOUT

from ocisbx.errors import ConfigError, ExpectEOF, ExpectTimeout, InvalidState
from tests.expect.programs import awaited, driven, python

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
            assert terminal.spawn.terminal.ended() == "exited with code 0"

    asyncio.run(go())
    with driven("sh", "-c", "trap '' HUP; sleep 60 & printf last") as terminal:
        assert terminal.expect([EOF, "never"], WAIT_S) == 0
        assert terminal.before == "last"
