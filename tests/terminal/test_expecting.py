"""expect() on the terminals of containers, by threads and by tasks."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx import ExpectEOF, ExpectTimeout
from tests.box import PYTHON

if TYPE_CHECKING:
    from tests.box import Box

ASKS = "printf 'name? '; read name; echo \"hello $name\"; exit 3"


def fields(box: Box) -> dict[str, Any]:
    runtime = {"names": [box.runtime.path], "platform": box.runtime.platform}
    return {"runtime": runtime, "workspace": str(box.workspace), "grace_s": 0}


def test_a_prompt_is_answered(box: Box) -> None:
    with box.sandbox().spawn(["sh", "-c", ASKS], size=(40, 120)) as terminal:
        assert terminal.expect([r"password: ", r"(\w+)\? "], timeout_s=20) == 1
        assert (terminal.before, terminal.after) == ("", "name? ")
        assert terminal.match.group(1) == "name"
        terminal.sendline("you")
        assert terminal.expect_exact("hello you\r\n", timeout_s=20) == 0
        with pytest.raises(ExpectEOF) as told:
            terminal.expect("more", timeout_s=20)
        assert "exited with code 3" in told.value.why
        result = terminal.wait(20)
    assert result is not None
    assert result.exit_code == 3


def test_too_late_is_told_with_what_came(box: Box) -> None:
    with box.sandbox(grace_s=0).spawn(["sh", "-c", "printf 'wait...'; sleep 60"]) as terminal:
        terminal.expect("wait", timeout_s=20)
        with pytest.raises(ExpectTimeout, match="'ready' did not appear in") as told:
            terminal.expect("ready", timeout_s=0.1)
        assert "..." in told.value.why
        assert terminal.before == "..."


def test_what_came_while_its_end_was_waited_for_is_looked_at_afterwards(box: Box) -> None:
    with box.sandbox().spawn(["sh", "-c", "seq 30000; echo over"]) as terminal:
        assert terminal.wait(30) is not None
        assert terminal.expect(r"\r\n(2999\d)\r\n", timeout_s=0) == 0
        assert terminal.match.group(1) == "29990"
        assert terminal.read().endswith("30000\r\nover\r\n")
        assert terminal.read_some() == ""


def test_bytes(box: Box) -> None:
    with box.sandbox().spawn(["printf", r"\377\303"], encoding=None) as terminal:
        terminal.expect(b"\xff", timeout_s=20)
        assert terminal.read(timeout_s=20) == b"\xc3"


def test_a_full_screen_is_read(box: Box) -> None:
    script = r"printf '\033[2J\033[5;10Hhere'; read x"
    with box.sandbox(grace_s=0).spawn(["sh", "-c", script], size=(10, 40)) as terminal:
        assert terminal.expect_screen("here", timeout_s=20) == 0
        lines = terminal.screen().text.split("\n")
        assert lines[4] == " " * 9 + "here"


def test_a_task_may_wait_for_the_end_while_another_looks(box: Box) -> None:
    script = 'for n in 1 2 3; do read x; seq 20000; echo "got $x"; done'

    async def work() -> None:
        async with (
            ocisbx.AsyncSandbox(**fields(box)) as sandbox,
            sandbox.spawn(["sh", "-c", script]) as terminal,
        ):
            waiting = asyncio.ensure_future(terminal.wait(60))
            for word in ("a", "b", "c"):
                await terminal.sendline(word)
                await terminal.expect(f"got {word}\r\n", timeout_s=30)
            result = await waiting
            assert result is not None
            assert result.exit_code == 0

    asyncio.run(work())


def test_many_terminals_in_one_loop(box: Box) -> None:
    async def one(sandbox: ocisbx.AsyncSandbox, number: int) -> str:
        async with sandbox.spawn(["sh", "-c", ASKS]) as terminal:
            await terminal.expect(r"\? ", timeout_s=60)
            await terminal.sendline(f"n{number}")
            await terminal.expect(r"hello (\w+)\r\n", timeout_s=60)
            return str(terminal.match.group(1))

    async def all_of_them() -> list[str]:
        async with ocisbx.AsyncSandbox(**fields(box)) as sandbox:
            return await asyncio.gather(*(one(sandbox, number) for number in range(8)))

    assert asyncio.run(all_of_them()) == [f"n{number}" for number in range(8)]


def test_a_secret_stands_nowhere(box: Box) -> None:
    path = box.base / "cast"
    script = "import getpass; print(len(getpass.getpass()), flush=True); input()"
    with box.sandbox(grace_s=0).spawn(
        [PYTHON, "-I", "-S", "-c", script], transcript=str(path)
    ) as terminal:
        terminal.expect("Password: ", timeout_s=20)
        assert terminal.hides_input
        terminal.sendline("swordfish", secret=True)
        terminal.expect_exact("9", timeout_s=20)
        terminal.sendline("swordfish", secret=True)
        with pytest.raises(ExpectEOF) as told:
            terminal.expect("no such", timeout_s=20)
    assert "swordfish" not in str(told.value)
    events = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert "m" in [code for _, code, _ in events]
    assert not any("swordfish" in data for _, code, data in events if code != "o")
