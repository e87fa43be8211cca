"""Programs of a session on terminals that the caller holds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from ocisbx import (
    AsyncSession,
    ConfigError,
    ExpectEOF,
    InvalidState,
    Session,
    TerminalError,
    Unsupported,
)
from ocisbx.background.container import Container
from ocisbx.probe.processes import children
from tests.box import Box, eventually
from tests.sessions.conftest import ABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.runtime

every_runtime = pytest.mark.parametrize("runtime", ABLE.values(), ids=ABLE)


def look(session: Session) -> bytes:
    return session.run(["ps", "ax"]).stdout


@every_runtime
def test_driven_as_by_a_person(house: Box) -> None:
    with house.session() as session:
        if house.runtime.name == "runsc":
            with pytest.raises(Unsupported, match="no terminal to be held on runsc"):
                session.spawn(["tty"])
            return
        with session.spawn(["sh", "-c", "PS1='$ ' exec sh -i"], size=(12, 34)) as terminal:
            terminal.expect_exact("$ ", timeout_s=20)
            terminal.sendline("stty size; touch /tmp/here")
            terminal.expect_exact("12 34\r\n", timeout_s=20)
            terminal.resize(20, 60)
            terminal.sendline("stty size")
            terminal.expect_exact("20 60\r\n", timeout_s=20)
            terminal.sendline("stty -echo; echo off")
            terminal.expect("off\r\n", timeout_s=20)
            assert eventually(lambda: not terminal.echo)
            # It is the session's, beside whatever else runs there.
            assert session.run(["ls", "/tmp/here"]).exit_code == 0
            terminal.sendline("exit 7")
            result = terminal.wait(20)
        assert result is not None
        assert (result.termination, result.exit_code) == ("exited", 7)
        assert session.run(["true"]).exit_code == 0


def test_the_end_of_the_context_takes_its_tree_along(house: Box) -> None:
    with house.session() as session:
        script = "setsid sleep 68231 & echo up; sleep 68231"
        with session.spawn(["sh", "-c", script]) as terminal:
            terminal.expect("up", timeout_s=20)
            assert eventually(lambda: look(session).count(b"68231") >= 2)
        assert eventually(lambda: b"68231" not in look(session))


def test_how_else_it_ends(house: Box) -> None:
    with house.session() as session:
        with session.spawn(["nosuchprogram"]) as terminal:
            result = terminal.wait(20)
            assert result is not None
            assert result.termination == "not_found"
        with session.spawn(["sleep", "60"], timeout_s=0.3) as terminal:
            result = terminal.wait(20)
            assert result is not None
            assert result.termination == "timed_out"
        with pytest.raises(ConfigError, match="/nowhere"):
            session.spawn(["true"], workdir="/nowhere")
        with pytest.raises(ConfigError, match="rows"):
            session.spawn(["true"], size=(0, 1))
        with session.spawn(["sh", "-c", "kill -9 $$"]) as terminal:
            result = terminal.wait(20)
            assert result is not None
            assert result.signal == 9


def first_process(session: Session) -> int:
    """Of the container; its process 1, as the host numbers it."""
    supervisor = Container.find(session.id).record.supervisor.pid
    (found,) = (
        one.pid
        for one in psutil.Process(supervisor).children(recursive=True)
        if Path(f"/proc/{one.pid}/status").read_text().partition("NSpid:")[2].split("\n")[0][-2:]
        == "\t1"
    )
    return found


@contextlib.contextmanager
def stopped(session: Session) -> Iterator[None]:
    """Process 1 and who waits for the next order, which process 1 would replace."""
    first = first_process(session)
    assert eventually(lambda: children(first))
    pids = [first, *children(first)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


def test_one_that_never_got_its_terminal_has_ended_all_the_same(house: Box) -> None:
    with house.session(grace_s=0) as session:
        with stopped(session), session.spawn(["true"], timeout_s=0.3) as terminal:
            with pytest.raises(ExpectEOF):
                terminal.expect("never", timeout_s=20)
            assert terminal.read_some() == ""
            assert terminal.screen().text.strip() == ""
            result = terminal.wait(20)
        assert result is not None
        assert result.termination == "timed_out"
        with pytest.raises(ConfigError, match="is not an encoding"):
            session.spawn(["true"], encoding="no-such")
        assert session.run(["true"]).exit_code == 0


@pytest.mark.timeout(60)
def test_one_that_is_stopped_hands_over_no_terminal(house: Box) -> None:
    """Nobody waits for ever, where no time limit says how long."""
    with house.session(start_timeout_s=2) as session:
        with (
            stopped(session),
            pytest.raises(TerminalError, match="not hand over the terminal") as refusal,
        ):
            session.spawn(["true"])
        assert refusal.value.why == "nothing came for 2 s: it is stopped, or hangs"
        assert "SIGCONT" in refusal.value.remedy
        with session.spawn(["echo", "well"]) as terminal:
            terminal.expect_exact("well", timeout_s=20)


def test_the_session_ends_before_it(house: Box) -> None:
    with house.session() as session:
        terminal = session.spawn(["sleep", "60"])
        session.end()
        with pytest.raises(InvalidState, match="has ended"):
            terminal.wait(20)
        with pytest.raises(InvalidState, match="has ended"):
            terminal.close()


def test_many_at_once(house: Box) -> None:
    with house.session() as session:
        terminals = [session.spawn(["sh", "-c", f"read x; echo {n}-$x"]) for n in range(8)]
        for number, terminal in enumerate(terminals):
            terminal.sendline(f"line{number}")
        for number, terminal in enumerate(terminals):
            terminal.expect_exact(f"{number}-line{number}\r\n", timeout_s=20)
            result = terminal.wait(20)
            assert result is not None
            assert result.exit_code == 0


def test_asyncio(house: Box) -> None:
    async def drive() -> object:
        runtime = {"names": [house.runtime.path]}
        workspace = str(house.workspace)
        async with (
            AsyncSession(runtime=runtime, workspace=workspace) as session,
            session.spawn(["sh", "-c", "read x; echo got $x; exit 5"]) as terminal,
        ):
            await terminal.sendline("this")
            await terminal.expect_exact("got this\r\n", timeout_s=20)
            result = await terminal.wait(20)
            assert result is not None
            return result.exit_code

    assert asyncio.run(drive()) == 5
