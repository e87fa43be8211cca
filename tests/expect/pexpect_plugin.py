"""Loaded into the run of pexpect's own tests: their spawn classes become ours.

The program is started by pexpect; the terminal that it made is all that ours is given.
"""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pexpect
from pexpect import fdpexpect

from ocisbx.expect.spawn import Spawn

START = pexpect.spawn
# What concerns the process: asked of pexpect's own object, which started it.
OF_THE_PROCESS = frozenset({
    "args", "command", "close", "delayafterclose", "delayafterterminate", "echo", "eof",
    "exitstatus",
    "getecho", "getwinsize", "isalive", "pid", "ptyproc", "sendintr", "setecho",
    "setwinsize", "signalstatus", "status", "terminate", "terminated", "wait", "waitnoecho",
})  # fmt: skip


class Started(Spawn):
    """pexpect.spawn, but that all reading, matching and typing is ours."""

    def __init__(self, command: Any, args: Any = (), **keywords: Any) -> None:
        names = ("timeout", "maxread", "searchwindowsize", "logfile", "encoding")
        ours = {name: keywords[name] for name in names if name in keywords}
        keywords.pop("use_poll", None)
        self._started = START(command, list(args), **keywords)
        super().__init__(self._started.child_fd, **ours)
        # pexpect's own. Without it replwrap's cases signal bash, now and then, between its prompt
        # and the moment at which it listens.
        self.delayafterread = 0.0001

    def kill(self, number: int) -> None:
        """pexpect's. What has just printed a prompt may not listen yet, as replwrap's bash: it does
        when it sleeps."""
        with suppress(FileNotFoundError):
            for _ in range(5000):
                stat = Path(f"/proc/{self._started.pid}/stat").read_text(encoding="latin-1")
                if stat.rpartition(")")[2].split()[0] != "R":
                    break
                time.sleep(0.001)
        self._started.kill(number)

    def __getattribute__(self, name: str) -> Any:
        if name in OF_THE_PROCESS:
            started = object.__getattribute__(self, "_started")
            started.flag_eof = object.__getattribute__(self, "flag_eof")
            return getattr(started, name)
        return object.__getattribute__(self, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_ending: object) -> None:
        self._started.close()


def started_text(*arguments: Any, **keywords: Any) -> Started:
    """pexpect.spawnu."""
    return Started(*arguments, **{"encoding": "utf-8", **keywords})


class Given(Spawn):
    """fdpexpect.fdspawn."""

    def __init__(self, fd: Any, args: Any = None, **keywords: Any) -> None:
        keywords.pop("use_poll", None)
        number = fd if isinstance(fd, int) else fd.fileno()
        super().__init__(number, **keywords)


pexpect.spawn = Started  # type: ignore[assignment,misc]
pexpect.spawnu = started_text  # type: ignore[assignment]
fdpexpect.fdspawn = Given  # type: ignore[assignment,misc]
