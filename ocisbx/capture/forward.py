"""Output that goes to a descriptor of the caller: a terminal, a pipe, a socket or a file.

The caller's open file description is shared with others (the shell, the next command), so it is
never switched to O_NONBLOCK; and a caller that does not read must not stop the driver's loop,
whose timeouts would stop with it. What is used instead, by kind:

    regular file, block device   plain writes: they wait for a disk, not for a reader
    pipe, terminal               a description of our own of the same object, opened through
                                 /proc/self/fd with O_NONBLOCK
    anything else, and where     POLLOUT, then one write that is small enough to fit whenever
    that is refused              POLLOUT was true (a pipe of another user's, `su`)

The last one can block in one case: another process fills the same object between the two calls.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
from typing import TYPE_CHECKING

from ocisbx.capture.reader import Renderer
from ocisbx.capture.sinks import file_error
from ocisbx.errors import ConfigError
from ocisbx.result import Captured

if TYPE_CHECKING:
    from collections.abc import Callable

NOTHING = memoryview(b"")
# tty_buffer.c allocates room in steps of 256 bytes, and n_tty.c stops a write at each control
# character to ask for room again: a run without any, or one alone, is what surely fits.
TTY_PIECE_BYTES = 256
FIRST_PRINTABLE = 0x20


class ForwardSink:
    """Writes to a descriptor of the caller, which stays open and as it was."""

    def __init__(self, fd: int, *, inert: bool = False) -> None:
        """`fd` is borrowed; `inert` makes terminal escapes harmless on the way (`Renderer`).

        Raises ConfigError when `fd` is not open for writing.
        """
        check_open(fd, os.O_WRONLY, "output")
        self.broken = False
        self._number = fd
        self._renderer = Renderer() if inert else None
        self._rest = NOTHING
        self._tty = os.isatty(fd)
        mode = os.fstat(fd).st_mode
        own = reopen_nonblocking(fd) if stat.S_ISFIFO(mode) or self._tty else None
        # Also where nothing is reopened the number is ours: one poll set can hold two streams
        # that go to the same place.
        self._fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) if own is None else own
        direct = own is not None or stat.S_ISREG(mode) or stat.S_ISBLK(mode)
        self._put = put_directly(self._fd) if direct else put_bounded(self._fd, tty=self._tty)
        self._open = True

    @property
    def pending(self) -> bool:
        return bool(self._rest)

    def watch(self) -> tuple[int, int] | None:
        return (self._fd, select.POLLOUT) if self._rest else None

    def write(self, data: memoryview) -> None:
        """Pass on what the far end takes now; the rest is `pending`. Raises OcisbxError."""
        if self._renderer is not None:
            data = memoryview(self._renderer.feed(bytes(data)).encode())
        self._rest = data
        self.flush()

    def flush(self) -> None:
        """Go on with the rest; a far end that is gone makes the sink `broken`."""
        try:
            while self._rest:
                size = self._put(self._rest)
                if not size:
                    return
                self._rest = self._rest[size:]
        except OSError as error:
            self._rest = NOTHING
            # EIO from a terminal: it was hung up.
            gone = {errno.EPIPE, errno.ECONNRESET} | ({errno.EIO} if self._tty else set())
            if error.errno not in gone:
                raise file_error(f"cannot write to descriptor {self._number}", error) from error
            self.broken = True

    def end(self) -> None:
        """Write what the renderer held back."""
        if self._renderer is not None:
            self._rest = memoryview(self._renderer.feed(b"", final=True).encode())
            self.flush()

    def finish(self, *, keep: bool, total_bytes: int, truncated: bool) -> Captured:  # noqa: ARG002 - a Sink
        self.close()
        return Captured(total_bytes=total_bytes, truncated=truncated)

    def close(self) -> None:
        """Let go of our descriptor, and of what is pending; the caller's stays open."""
        self._rest = NOTHING
        if self._open:
            self._open = False
            os.close(self._fd)


def reopen_nonblocking(fd: int) -> int | None:
    """A new, non-blocking description of the pipe or terminal behind `fd`; None where refused.

    Refused: without /proc, and for an object of another user's (after `su`, `sudo -u`).
    """
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{fd}", flags)
    except OSError:
        return None


def put_directly(fd: int) -> Callable[[memoryview], int]:
    """Writes as much as goes at once; 0 when nothing does."""

    def put(data: memoryview) -> int:
        try:
            return os.write(fd, data)
        except BlockingIOError:
            return 0

    return put


def put_bounded(fd: int, *, tty: bool) -> Callable[[memoryview], int]:
    """Writes one piece that fits where POLLOUT is true; 0 when it is not."""
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    first_piece = tty_piece if tty else pipe_piece

    def put(data: memoryview) -> int:
        if not poller.poll(0):
            return 0
        try:
            return os.write(fd, first_piece(data))
        except BlockingIOError:
            return 0

    return put


def pipe_piece(data: memoryview) -> memoryview:
    """pipe(7): POLLOUT means that PIPE_BUF bytes fit; sockets have far more room by then."""
    return data[: select.PIPE_BUF]


def tty_piece(data: memoryview) -> memoryview:
    for index, byte in enumerate(data[:TTY_PIECE_BYTES]):
        if byte < FIRST_PRINTABLE:
            return data[: max(index, 1)]
    return data[:TTY_PIECE_BYTES]


def check_open(fd: int, access: int, role: str) -> None:
    """Raise ConfigError unless `fd` is open with `access` (os.O_RDONLY or os.O_WRONLY)."""
    try:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    except OSError as error:
        raise ConfigError(
            f"the {role} descriptor {fd} is not open",
            why=os.strerror(error.errno or 0),
            remedy=f"open it, or redirect it to /dev/null ({fd}<>/dev/null in a shell)",
        ) from error
    if flags & os.O_ACCMODE not in (access, os.O_RDWR):
        verb = "reading" if access == os.O_RDONLY else "writing"
        raise ConfigError(
            f"the {role} descriptor {fd} is not open for {verb}",
            remedy=f"open it for {verb}, or redirect it to /dev/null",
        )
