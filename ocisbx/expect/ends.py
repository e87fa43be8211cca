"""What expect needs of a terminal, and that for any descriptor that the caller holds."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ocisbx.errors import ExpectEOF, TerminalError
from ocisbx.terminal.device import check_size, read_some, set_size, write_some
from ocisbx.terminal.terminal import Ending

if TYPE_CHECKING:
    from collections.abc import Callable


class RawTerminal(Protocol):
    """The controller's end of a terminal, whose descriptor does not block."""

    def fileno(self) -> int:
        """What to poll. Raises TerminalError: it is closed."""

    def read_some(self, size: int) -> bytes | None:
        """What was printed, at most `size` bytes; None: nothing now; empty: the end. Never waits.
        Raises TerminalError: it is closed."""

    def write_some(self, data: bytes, *, secret: bool) -> int:
        """Type as much as goes; how many bytes that were, 0: none now. Of a `secret` nothing may be
        recorded. Raises ExpectEOF: the program has ended; TerminalError: it is closed."""

    def conceal(self, secret: str) -> None:
        """This is not to be recorded either where the program prints it."""

    def set_private(self, *, private: bool) -> None:
        """Record nothing until it is called again with False."""

    def resize(self, rows: int, columns: int) -> None:
        """Set the size; the program hears SIGWINCH."""

    def signal(self, number: int) -> None:
        """Signal the program."""

    def ending(self) -> Ending | None:
        """How the program ended; None while it runs. Where nobody can tell it is one without words,
        which means something after the end of the output only. Never waits."""


class Descriptor(NamedTuple):
    """A RawTerminal of nothing but a descriptor; `how` tells how its program ended, None while it
    runs. Without it nobody can tell."""

    controller_fd: int
    how: Callable[[], Ending | None] = lambda: Ending("")

    def fileno(self) -> int:
        """The descriptor."""
        return self.controller_fd

    def read_some(self, size: int) -> bytes | None:
        """What is there."""
        return read_some(self.controller_fd, size)

    def write_some(self, data: bytes, *, secret: bool) -> int:  # noqa: ARG002 -- records nothing
        """Write what is taken now."""
        written = write_some(self.controller_fd, data)
        if written is None:
            raise ExpectEOF("the program has ended, nobody reads what is typed")
        return written

    def conceal(self, secret: str) -> None:
        """Nothing is recorded."""

    def set_private(self, *, private: bool) -> None:
        """Nothing is recorded."""

    def resize(self, rows: int, columns: int) -> None:
        """Set the size. Raises ConfigError, TerminalError."""
        set_size(self.controller_fd, check_size(rows, columns))

    def signal(self, number: int) -> None:
        """Signal the group in the foreground. Raises TerminalError: there is none."""
        try:
            group = os.tcgetpgrp(self.controller_fd)
            if group <= 0:
                # To killpg(2) 0 is our own.
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            os.killpg(group, number)
        except OSError as error:
            why = "nothing runs in the foreground" if error.errno == errno.ESRCH else str(error)
            raise TerminalError(f"signal {number} cannot be sent", why=why) from None

    def ending(self) -> Ending | None:
        """How the program ended."""
        return self.how()
