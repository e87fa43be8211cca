"""What expect needs of a terminal, and that for any descriptor that the caller holds."""

from __future__ import annotations

import errno
import os
import termios
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ocisbx.errors import ConfigError, ExpectEOF, TerminalError

if TYPE_CHECKING:
    from collections.abc import Callable

# struct winsize (tty_ioctl(4)) counts in unsigned shorts; 0 means unknown to programs.
MAX_SIZE = 65_535


class Terminal(Protocol):
    """The controller's end of a terminal, whose descriptor does not block."""

    def fileno(self) -> int:
        """What to poll. Raises TerminalError: it is closed."""

    def read_some(self, size: int) -> bytes | None:
        """What was printed, at most `size` bytes; None: nothing now; empty: the end. Never waits.
        Raises TerminalError: it is closed."""

    def write_some(self, data: bytes, *, secret: bool) -> int:
        """Type as much as goes; how many bytes that were, 0: none now. Of a `secret` nothing may be
        recorded. Raises ExpectEOF: the program has ended; TerminalError: it is closed."""

    def resize(self, rows: int, columns: int) -> None:
        """Set the size; the program hears SIGWINCH."""

    def signal(self, number: int) -> None:
        """Signal the program."""

    def ended(self) -> str:
        """How the program ended (`exit code 1`, `signal 9`); empty while it runs or is unknown."""


class Descriptor(NamedTuple):
    """A Terminal of nothing but a descriptor; `how` tells how its program ended."""

    controller_fd: int
    how: Callable[[], str] = str

    def fileno(self) -> int:
        """The descriptor."""
        return self.controller_fd

    def read_some(self, size: int) -> bytes | None:
        """What is there; EIO is what Linux says when nobody has the other end open any more."""
        try:
            return os.read(self.controller_fd, size)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EIO:
                return b""
            raise _gone(error) from None

    def write_some(self, data: bytes, *, secret: bool) -> int:  # noqa: ARG002 -- records nothing
        """Write what is taken now."""
        try:
            return os.write(self.controller_fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno in (errno.EIO, errno.EPIPE):
                raise ExpectEOF("the program has ended, nobody reads what is typed") from None
            raise _gone(error) from None

    def resize(self, rows: int, columns: int) -> None:
        """Set the size. Raises ConfigError, TerminalError."""
        check_size(rows, columns)
        try:
            termios.tcsetwinsize(self.controller_fd, (rows, columns))
        except (termios.error, ValueError, OSError) as error:
            raise TerminalError("the terminal cannot be resized", why=str(error)) from None

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

    def ended(self) -> str:
        """How the program ended."""
        return self.how()


def _gone(error: OSError) -> TerminalError:
    what = "the terminal was closed" if error.errno == errno.EBADF else "the terminal is gone"
    return TerminalError(what, why=error.strerror or "")


def check_size(rows: int, columns: int) -> None:
    """Raises ConfigError for what is no size of a terminal."""
    if not (1 <= rows <= MAX_SIZE and 1 <= columns <= MAX_SIZE):
        raise ConfigError(
            f"{rows} rows and {columns} columns are no size of a terminal",
            why=f"each is 1 to {MAX_SIZE}",
        )


def size_of(descriptor: int) -> tuple[int, int]:
    """Rows and columns; 24 and 80 where nobody has set them. Raises TerminalError."""
    try:
        rows, columns = termios.tcgetwinsize(descriptor)
    except (termios.error, ValueError, OSError) as error:
        raise TerminalError("the terminal's size cannot be read", why=str(error)) from None
    return rows or 24, columns or 80


def echoes(descriptor: int) -> bool:
    """Whether what is typed is shown by the kernel (ECHO of the terminal's line discipline).

    False at a password prompt, and where a program echoes by itself (editors, readline).
    Raises TerminalError: it is no terminal, or closed.
    """
    return bool(_local_modes(descriptor) & termios.ECHO)


def end_of_file(descriptor: int) -> bytes:
    """The character that ends the input in canonical mode (VEOF), Ctrl-D unless it was changed."""
    _local_modes(descriptor)
    character: bytes = termios.tcgetattr(descriptor)[6][termios.VEOF]
    return character


def _local_modes(descriptor: int) -> int:
    try:
        modes: int = termios.tcgetattr(descriptor)[3]
    except (termios.error, ValueError, OSError) as error:
        raise TerminalError("the terminal's modes cannot be read", why=str(error)) from None
    return modes


def control_character(name: str) -> bytes:
    """What Ctrl with the key `name` types: `c` is 0x03, `[` Escape, `?` DEL.

    Raises ConfigError for a key that makes none.
    """
    key = name.upper()
    if len(key) == 1 and "@" <= key <= "_":
        return bytes([ord(key) & 0x1F])
    if key == "?":
        return b"\x7f"
    raise ConfigError(
        f"{name!r} makes no control character",
        why="expected one of a to z, @ [ \\ ] ^ _ ?",
        remedy="c interrupts, d ends the input, z stops, [ is Escape, m is Enter of a keyboard",
    )
