"""A person's seat: a terminal on the host, with `ocisbx` as the program that runs on it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Any, Self

from tests.command_line import DEFAULT_SIGNALS
from tests.terminal.driving import PATIENCE_S

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from tests.box import Box


class Seat:
    """`typed` and `shown` are those of the person."""

    def __init__(
        self,
        box: Box,
        *arguments: str,
        env: dict[str, str] | None = None,
        carrier: Callable[[str], list[str]] | None = None,
        stdout: int | None = None,
    ) -> None:
        """`carrier`: the program whose terminal it is in truth, made of the command line; `stdout`:
        where it prints, if not there."""
        self.controller_fd, self.terminal_fd = pty.openpty()
        self.resize(30, 90)
        self.modes = termios.tcgetattr(self.terminal_fd)
        self.shown = b""
        environment = {**os.environ, **box.environment, "TERM": "vt220", **(env or {})}
        argv = [sys.executable, "-P", "-m", "ocisbx", *arguments]
        self.process = subprocess.Popen(
            [*DEFAULT_SIGNALS, *(argv if carrier is None else carrier(shlex.join(argv)))],
            stdin=self.terminal_fd,
            stdout=self.terminal_fd if stdout is None else stdout,
            stderr=self.terminal_fd,
            env=environment,
            preexec_fn=sit_down,  # noqa: PLW1509 -- no thread runs meanwhile
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.drain_until_end()
        os.close(self.controller_fd)
        os.close(self.terminal_fd)

    def type(self, text: str | bytes) -> None:
        os.write(self.controller_fd, text.encode() if isinstance(text, str) else text)

    def run_cat(self) -> None:
        """Have a shell run what reads, and return once it does: then keys are its, for certain."""
        self.type("cat\r")
        self.is_read()

    def is_read(self) -> None:
        """Wait until a `cat` has said once more what the terminal shows of what is typed."""
        self.type("said\r")
        for _ in range(2):
            self.wait_for(b"said\r\n")

    def type_until_stuck(self) -> None:
        """For three seconds, as much as goes."""
        os.set_blocking(self.controller_fd, False)
        goal = time.monotonic() + 3
        while time.monotonic() < goal:
            try:
                self.type(b"x" * 4096)
            except BlockingIOError:
                self.read(0.05)

    def type_in_time(self, data: bytes) -> None:
        """All of it, reading meanwhile."""
        os.set_blocking(self.controller_fd, False)
        deadline = time.monotonic() + PATIENCE_S
        while data:
            assert time.monotonic() < deadline, data
            try:
                data = data[os.write(self.controller_fd, data) :]
            except BlockingIOError:
                self.read(0.05)

    def resize(self, rows: int, columns: int) -> None:
        size = struct.pack("4H", rows, columns, 0, 0)
        fcntl.ioctl(self.controller_fd, termios.TIOCSWINSZ, size)

    def read(self, patience_s: float) -> bool:
        """Add to `shown`; False: nothing came."""
        if not select.select([self.controller_fd], [], [], patience_s)[0]:
            return False
        self.shown += os.read(self.controller_fd, 65536)
        return True

    def wait_for(self, wanted: bytes) -> bytes:
        """What was shown until then, which is forgotten."""
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in self.shown:
            assert time.monotonic() < deadline, (wanted, self.shown)
            self.read(0.1)
        before, _, self.shown = self.shown.partition(wanted)
        return before + wanted

    def drain_until_end(self) -> int:
        """The exit code, once all that was shown is in `shown`."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self.read(0.1)
        while self.read(0.0):
            pass
        assert self.process.returncode is not None
        return self.process.returncode

    def restore(self) -> None:
        """As a shell does that has stopped its job."""
        termios.tcsetattr(self.terminal_fd, termios.TCSANOW, self.modes)

    @property
    def is_as_before(self) -> bool:
        return self.flags() == self.modes[:4]

    @property
    def is_raw(self) -> bool:
        return not self.flags()[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def flags(self) -> list[Any]:
        return termios.tcgetattr(self.terminal_fd)[:4]

    def state(self) -> str:
        """The process's, as in /proc/PID/stat: T is stopped."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0]

    def kill(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


def sit_down() -> None:
    """In a child: lead a session at the terminal that is its input."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
