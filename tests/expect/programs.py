"""Real programs on real pseudo terminals, started by pexpect; only the descriptor is ours."""

from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pexpect

from ocisbx.expect.ends import Descriptor
from ocisbx.expect.expecting import AsyncExpect, Expect
from ocisbx.expect.file import build_script
from ocisbx.expect.runner import run_script
from ocisbx.terminal.terminal import Ending

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ocisbx.expect.report import ScriptReport
    from ocisbx.expect.runner import AsyncScriptRun

WAIT_S = 30
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm"}


def _hear_signals() -> None:
    # Who started the tests may ignore them, as a shell does for what it runs in the background.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


class Program:
    """One program and the controller's end of its terminal."""

    def __init__(self, argv: Sequence[str], *, echo: bool, size: tuple[int, int]) -> None:
        self._started = pexpect.spawn(
            argv[0],
            list(argv[1:]),
            echo=echo,
            dimensions=size,
            env=ENVIRONMENT,
            preexec_fn=_hear_signals,
        )
        self.pid = self._started.pid
        self.terminal = Descriptor(self._started.child_fd, self.ending)

    def ending(self) -> Ending | None:
        """As a container's terminal tells it."""
        if self._started.isalive():
            return None
        if self._started.signalstatus:
            return Ending(f"was killed by signal {self._started.signalstatus}")
        code = self._started.exitstatus
        return Ending(f"exited with code {code}", code)

    def close(self) -> None:
        self._started.close(force=True)


@contextmanager
def program(*argv: str, echo: bool = True, size: tuple[int, int] = (24, 80)) -> Iterator[Program]:
    """A program with its own session and terminal, ended at the end."""
    started = Program(argv, echo=echo, size=size)
    try:
        yield started
    finally:
        started.close()


def python(source: str) -> tuple[str, ...]:
    """The command line of a Python program."""
    return sys.executable, "-I", "-u", "-c", textwrap.dedent(source)


@contextmanager
def driven(
    *argv: str, encoding: str | None = "utf-8", echo: bool = True, size: tuple[int, int] = (24, 80)
) -> Iterator[Expect]:
    """A program that expect drives."""
    with program(*argv, echo=echo, size=size) as started:
        yield Expect(started.terminal, encoding=encoding)


@contextmanager
def awaited(*argv: str, echo: bool = True) -> Iterator[AsyncExpect]:
    """The same for asyncio."""
    with program(*argv, echo=echo) as started:
        yield AsyncExpect(started.terminal)


def carry_out(argv: Sequence[str], steps: list[dict[str, Any]], **rest: Any) -> ScriptReport:
    """What a script did with a program; `secrets` are texts, `given` its parameters."""
    secrets, given = rest.pop("secrets", {}), rest.pop("given", {})
    document = {
        "timeout_s": WAIT_S,
        "steps": steps,
        "secrets": {name: {"env": "ANY"} for name in secrets},
        **rest,
    }
    with driven(*argv) as terminal:
        return run_script(build_script(document), terminal, secrets, params=given)


async def turns_of(run: AsyncScriptRun) -> int:
    """How often the event loop comes round while a script goes on to its end."""
    turns = 0
    advancing = asyncio.create_task(run.advance())
    while not advancing.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert await advancing is None
    return turns
