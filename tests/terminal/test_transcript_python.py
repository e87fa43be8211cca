"""Transcripts by Python's `transcript=`, and that a start which is refused leaves none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx import ConfigError, Container, InvalidState, PolicyDenied, Session, Unsupported
from tests.command_line import ocisbx as command_line
from tests.terminal.conftest import of_each_name
from tests.terminal.driving import events
from tests.terminal.seat import Seat
from tests.terminal.test_transcript import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]


def started(sandbox: ocisbx.Sandbox, *words: Any, **options: Any) -> None:
    with sandbox.start(*words, **options) as running:
        running.wait()


def awaited(sandbox: ocisbx.Sandbox, *words: Any, **options: Any) -> None:
    async def work() -> None:
        await ocisbx.AsyncSandbox(sandbox.config).run(*words, **options)

    asyncio.run(work())


@pytest.mark.parametrize("carry_out", [ocisbx.Sandbox.run, started, awaited])
def test_of_a_run(box: Box, carry_out: Callable[..., object]) -> None:
    path = box.base / "cast"
    script = 'read a; echo "<$a>"; stty size'
    words = ["sh", "-c", script]
    carry_out(box.sandbox(terminal=True), words, input=b"one\n", transcript=str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    head, passed = events(path)
    assert (head["width"], head["height"], head["env"]) == (80, 24, {"TERM": "xterm"})
    assert told(path, "i") == "one\n\x04"
    assert told(path, "o").endswith("<one>\r\n24 80\r\n")
    assert passed


def test_of_what_is_created(yard: Box) -> None:
    path = yard.base / "cast"
    script = "printf 'name: '; read a; stty -echo; printf 'pass: '; read b; echo \"<$a ${#b}>\""
    words = ["sh", "-c", script]
    container = yard.sandbox(terminal=True).create(words, name="it", transcript=str(path))
    assert path.read_text() == ""
    container.start()
    with Seat(yard, "attach", "it") as seat:
        seat.wait_for(b"name: ")
        seat.type("one\r")
        seat.wait_for(b"pass: ")
        seat.type("s3cret\r")
        assert seat.drain_until_end() == 0
    container.wait()
    assert (told(path, "i"), told(path, "m"), told(path, "r")) == (
        "one\r",
        "input was hidden",
        "90x30",
    )
    assert told(path, "o").encode() == container.logs()
    assert "s3cret" not in path.read_text()


def test_of_a_session(yard: Box) -> None:
    path = yard.base / "cast"
    words = ["sh", "-c", "read a; read b; stty size"]
    with yard.session() as session:
        if yard.runtime.name == "runsc":
            with pytest.raises(Unsupported, match="no terminal to be held"):
                session.spawn(words, transcript=str(path))
            assert not path.exists()
            return
        with session.spawn(words, size=(12, 34), transcript=str(path)) as terminal:
            terminal.sendline("one")
            terminal.sendline("s3cret", secret=True)
            terminal.expect_exact("12 34\r\n", timeout_s=20)
        assert events(path)[0]["width"] == 34
        assert told(path, "i") == "one\n"
        assert told(path, "o") == "one\r\n[secret]\r\n12 34\r\n"
        asyncio.run(awaited_terminal(session, str(yard.base / "second")))
        assert told(yard.base / "second", "o") == "up\r\n"
        with pytest.raises(ConfigError, match="file exists"):
            session.spawn(words, transcript=str(path))


async def awaited_terminal(session: Session, path: str) -> None:
    same = await ocisbx.AsyncSession.find(session.id)
    async with same, same.spawn(["echo", "up"], transcript=path) as terminal:
        await terminal.expect_exact("up\r\n", timeout_s=20)


def test_without_a_terminal_there_is_none(yard: Box) -> None:
    path = yard.base / "cast"
    sandbox = yard.sandbox()
    for verb in (sandbox.run, sandbox.create, sandbox.start):
        with pytest.raises(ConfigError, match="a transcript is of a terminal"):
            verb(["true"], transcript=str(path))
    with pytest.raises(ConfigError, match="a transcript is of a terminal"):
        ocisbx.run(["true"], sandbox.config, transcript=str(path))
    assert not path.exists()
    assert Container.all() == []


def test_a_start_that_is_refused_leaves_none(yard: Box) -> None:
    path = yard.base / "cast"
    sandbox = yard.sandbox(terminal=True, commands={"deny": ["false"]})
    taken = sandbox.create(["cat"], name="it").start()
    with pytest.raises(InvalidState, match="it"):
        sandbox.create(["true"], name="it", transcript=str(path))
    for verb in (sandbox.run, sandbox.start, sandbox.create, sandbox.spawn):
        with pytest.raises(PolicyDenied):
            verb(["false"], transcript=str(path))
    refused = [
        ("run", "-d", "-t", "--name", "it", "--transcript", str(path), "--", "true"),
        ("create", "-t", "--name", "it", "--transcript", str(path), "--", "true"),
        ("exec", "-t", "-w", "/none", "--transcript", str(path), "it", "true"),
    ]
    for words in refused:
        done = command_line(yard, *words)
        assert (done.returncode, done.stdout) == (125, ""), done.stderr
        assert not path.exists(), words
    # Nor is anything taken away that is somebody's.
    path.write_text("mine")
    for words in refused:
        assert command_line(yard, *words).returncode == 125
    assert path.read_text() == "mine"
    taken.remove(force=True)


def test_what_was_shown_before_a_failure_stays(yard: Box) -> None:
    path = yard.base / "cast"
    container = yard.sandbox(grace_s=0).create(["sleep", "1000"], name="it").start()
    words = ("-t", "--transcript", str(path), "it", "sh", "-c", "echo up; sleep 1000")
    with Seat(yard, "exec", *words) as seat:
        seat.wait_for(b"up\r")
        container.remove(force=True)
        assert seat.drain_until_end() == 125
    assert "has ended while the command ran" in seat.shown.decode()
    assert told(path, "o") == "up\r\n"
