"""A payload's standard input: bytes, or a descriptor of the caller's, copied into a pipe.

A descriptor of the host is never handed over: the payload could reopen it through /proc/self/fd
with other rights, read on after the end, or push characters into a terminal (TIOCSTI). It is also
copied, not spliced: splice(2) would put page-cache pages of the host's file into a pipe that the
payload holds (CVE-2022-0847 wrote to such pages).
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
from typing import Protocol, cast

from ocisbx.capture.forward import NOTHING, check_open
from ocisbx.capture.stream import NEW_PIPE_BYTES, grow_pipe
from ocisbx.errors import ConfigError, OcisbxError
from ocisbx.values import refusal


class SupportsFileno(Protocol):
    """An open file, a socket, a Popen's pipe: whatever has a descriptor."""

    def fileno(self) -> int: ...


Input = bytes | bytearray | memoryview | int | SupportsFileno | None


def check_input(source: Input) -> bytes | int | None:
    """What a payload's standard input is read from: bytes, or a descriptor; of a file its own.

    Raises:
        ConfigError: a text, or a file that has no descriptor.
    """
    if source is None or type(source) is int:
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    try:
        return cast("SupportsFileno", source).fileno()
    except (AttributeError, OSError, ValueError):
        remedy = "encode a text: input=text.encode(); of a file without a descriptor: file.read()"
        why = f"expected bytes, a descriptor or an open file, not {type(source).__name__}"
        raise refusal(source, "an input", why, remedy=remedy) from None


class InputFeeder:
    """Owns the write end of a pipe and feeds it, at most one buffer a `pump()`.

    It is `closed`, and the payload sees the end of its input, when all has been written, or the
    payload has closed its end: that is its right and no error.
    """

    def __init__(self, fd: int, source: bytes | int, head: bytes = b"") -> None:
        """Takes ownership of `fd`; a descriptor as `source` is borrowed and stays open. `head` is
        what comes before it.

        Bytes that fit in the pipe are written at once, before the payload starts. Raises
        ConfigError, with `fd` closed, when `source` is not open for reading or is a directory.
        """
        self.total_bytes = 0
        self._fd: int | None = fd
        self._source: int | None = None
        self._rest = NOTHING
        self._grown = False
        # Safe: this open file description is ours alone, the payload has the other end's.
        os.set_blocking(fd, False)
        if isinstance(source, int):
            self._open_source(source)
            self._rest = memoryview(head)
        else:
            self._rest = memoryview(head + source if head else source)
            if len(self._rest) > NEW_PIPE_BYTES:
                self._grow()
            self._write()

    @property
    def closed(self) -> bool:
        return self._fd is None

    def fileno(self) -> int:
        """The pipe's write end, -1 when closed. To poll, use `watch()`."""
        return -1 if self._fd is None else self._fd

    def watch(self) -> tuple[int, int] | None:
        """The descriptor and poll mask to wait for now; None: nothing, it is `closed`."""
        if self._fd is None:
            return None
        if self._rest or self._source is None:
            return self._fd, select.POLLOUT
        return self._source, select.POLLIN

    def pump(self) -> None:
        """Move what is ready; never blocks. Raises OcisbxError when the source cannot be read."""
        if self._fd is None:
            return
        if self._source is not None and not self._rest:
            self._read(self._source)
        if self._rest:
            self._write()

    def close(self) -> None:
        """Close the pipe, and let go of the source; idempotent."""
        self._rest = NOTHING
        fd, self._fd = self._fd, None
        source, self._source = self._source, None
        for number in (fd, source):
            if number is not None:
                os.close(number)

    def _open_source(self, source: int) -> None:
        try:
            check_open(source, os.O_RDONLY, "input")
            if stat.S_ISDIR(os.fstat(source).st_mode):
                raise ConfigError(
                    f"the input descriptor {source} is a directory",
                    remedy="give a file, a pipe, a terminal or /dev/null",
                )
            # A number of our own: the poll set may hold the caller's under another event.
            self._source = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, 3)
        except BaseException:
            self.close()
            raise
        self._number = source
        self._tty = os.isatty(source)

    def _read(self, source: int) -> None:
        # The description is the caller's and may block; asked first, it does not, unless another
        # process reads the same pipe at this moment.
        poller = select.poll()
        poller.register(source, select.POLLIN)
        if not poller.poll(0):
            return
        try:
            data = os.read(source, NEW_PIPE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.close()
            # tty_ioctl(4), read(2): EIO is a terminal that was hung up, or that this process may
            # not read from the background; either way nothing more comes.
            if error.errno == errno.EIO and self._tty:
                return
            raise OcisbxError(
                f"cannot read the input descriptor {self._number}",
                why=os.strerror(error.errno or 0),
                remedy="give another input, or none",
            ) from error
        if data:
            self._rest = memoryview(data)
        else:
            self._end()

    def _write(self) -> None:
        assert self._fd is not None
        try:
            size = self._put(self._fd, self._rest)
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.close()
            return
        self.total_bytes += size
        self._rest = self._rest[size:]
        if self._rest and not self._grown:
            self._grow()
        if not self._rest and self._source is None:
            self._end()

    def _put(self, fd: int, data: memoryview) -> int:
        """How much was written. Raises BlockingIOError; BrokenPipeError: nobody reads any more."""
        return os.write(fd, data)

    def _end(self) -> None:
        """All has been written."""
        self.close()

    def _grow(self) -> None:
        self._grown = True
        assert self._fd is not None
        grow_pipe(self._fd)
