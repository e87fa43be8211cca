"""A terminal's controlling end: reading, writing, size and modes. Never blocks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import termios
from typing import TYPE_CHECKING, Final, NamedTuple

from ocisbx.errors import ConfigError, TerminalError
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Iterator

# What n_tty.c hands out at once, and somewhat more where a flip buffer was waiting.
READ_BYTES: Final = 65536
# struct winsize (ioctl_tty(2)) has 16 bits for each.
SIZE_MAX: Final = 65535


class Size(NamedTuple):
    """In characters."""

    rows: int
    columns: int


DEFAULT_SIZE: Final = Size(24, 80)


def check_size(rows: object, columns: object) -> Size:
    """Two whole numbers that a terminal can have.

    Raises:
        ConfigError: they are not.
    """
    for value, noun in ((rows, "rows"), (columns, "columns")):
        if type(value) is not int or not 1 <= value <= SIZE_MAX:
            raise ConfigError(
                f"{show(value)} is not a terminal's number of {noun}",
                why=f"expected a whole number from 1 to {SIZE_MAX}",
            )
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    return Size(rows, columns)


def read_some(controller_fd: int, size: int = READ_BYTES) -> bytes | None:
    """What was printed, at most `size` bytes; None: nothing now; empty: the end, nobody has the
    terminal open any more (EIO, which Linux says of a controlling end then; ECONNRESET of a relay
    that ended with keys unread).

    Raises:
        TerminalError: the descriptor is not a terminal's (any more).
    """
    with _told("read"):
        try:
            return os.read(controller_fd, size)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ECONNRESET):
                raise
            return b""


def write_some(controller_fd: int, data: bytes | memoryview) -> int | None:
    """Type as much of `data` as goes; how much that was, 0: none now; None: nobody has the terminal
    open any more (or the other end of what is none).

    Raises:
        TerminalError: as `read_some`.
    """
    with _told("written"):
        try:
            return os.write(controller_fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE, errno.ECONNRESET):
                raise
            return None


def set_size(controller_fd: int, size: Size) -> None:
    """Where that is another than before, the foreground gets SIGWINCH. Raises TerminalError."""
    with _told("resized"):
        fcntl.ioctl(controller_fd, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))


def get_size(controller_fd: int) -> Size:
    """Raises TerminalError."""
    with _told("asked for its size"):
        told = fcntl.ioctl(controller_fd, termios.TIOCGWINSZ, bytes(8))
    return Size(*struct.unpack("4H", told)[:2])


class Modes(NamedTuple):
    """What termios(3) says of who types. `echo`: the kernel shows it, which it does not at a
    password prompt, and where a program shows it by itself (editors, readline); `end_of_file`: the
    character that means it, Ctrl-D unless it was changed."""

    echo: bool
    canonical: bool
    end_of_file: bytes

    @property
    def hides_input(self) -> bool:
        """A line is read and not shown: a password is asked for."""
        return self.canonical and not self.echo


def get_modes(controller_fd: int) -> Modes:
    """As the payload has set them. Raises TerminalError."""
    with _told("asked for its modes"):
        try:
            found = termios.tcgetattr(controller_fd)
        except termios.error as error:
            raise OSError(*error.args) from error
    flags, characters = found[3], found[6]
    return Modes(bool(flags & termios.ECHO), bool(flags & termios.ICANON), characters[termios.VEOF])


@contextlib.contextmanager
def _told(verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TerminalError(
            f"the terminal cannot be {verb}",
            why=error.strerror or str(error),
            remedy="somebody closed its descriptor, or it is closed already",
        ) from error


def control_key(character: str) -> bytes:
    """What Ctrl and this types: `c` is 0x03, `[` Escape, `?` DEL.

    Raises:
        ConfigError: there is no such key.
    """
    upper = character.upper()
    if len(upper) != 1 or not ("@" <= upper <= "_" or upper == "?"):
        raise ConfigError(
            f"there is no key Ctrl and {show(character)}",
            why="expected a letter, or one of @[\\]^_?",
            remedy="c interrupts, d ends the input, z stops, [ is Escape, m is Enter of a keyboard",
        )
    return bytes([ord(upper) ^ 0x40])
