"""Where captured bytes go: the protocol that a stream writes to, a file of ours, or nowhere."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Protocol

from ocisbx.errors import OcisbxError
from ocisbx.result import Captured

FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Sink(Protocol):
    """What an `OutputStream` writes to. Nothing here may block for longer than a disk does."""

    @property
    def pending(self) -> bool:
        """Whether bytes of an earlier `write` still wait; until they went, nothing is written."""

    @property
    def broken(self) -> bool:
        """Whether the far end is gone (EPIPE): the payload is then to get its SIGPIPE."""

    def watch(self) -> tuple[int, int] | None:
        """While `pending`: the descriptor and the poll mask to wait for."""

    def write(self, data: memoryview) -> None:
        """Take all of `data`, which stays unchanged while `pending`. Raises OcisbxError."""

    def flush(self) -> None:
        """Move on with what is pending. Raises OcisbxError."""

    def end(self) -> None:
        """No more bytes come; may leave some `pending`. Raises OcisbxError."""

    def finish(self, *, keep: bool, total_bytes: int, truncated: bool) -> Captured:
        """Close and hand over what was captured."""

    def close(self) -> None:
        """Give everything up; idempotent."""


class NullSink:
    """Keeps nothing: the stream counts, and calls its callback."""

    pending = False
    broken = False

    def watch(self) -> None:
        return None

    def write(self, data: memoryview) -> None:
        """Nothing to do."""

    def flush(self) -> None:
        """Nothing to do."""

    def end(self) -> None:
        """Nothing to do."""

    def finish(self, *, keep: bool, total_bytes: int, truncated: bool) -> Captured:  # noqa: ARG002 - a Sink
        return Captured(total_bytes=total_bytes, truncated=truncated)

    def close(self) -> None:
        """Nothing to do."""


class FileSink:
    """A capture file of our own, mode 0600, which the payload never holds.

    It is made when the first byte comes: most streams stay empty, and a file costs 50 us each way.
    `path` can be read by `ocisbx.capture.reader` from then on. A file that is not kept is unlinked
    at the end; its bytes live on in the Captured's descriptor.
    """

    pending = False
    broken = False

    def __init__(self, directory: str, name: str, *, lasting: bool = False) -> None:
        """`directory` is absolute and ours alone. `lasting`: the file is made at once, and what it
        holds is worth keeping however it ends. Raises OcisbxError."""
        self._lasting = lasting
        self.path = f"{directory}/{name}"
        self._fd: int | None = self._make() if lasting else None

    def _make(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self.path, flags, 0o600)
        except OSError as error:
            raise file_error(f"cannot make the capture file {self.path!r}", error) from error

    def watch(self) -> None:
        return None

    def write(self, data: memoryview) -> None:
        """Write all of `data`. Raises OcisbxError; the file is closed, and removed unless it is
        lasting."""
        if self._fd is None:
            self._fd = self._make()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self.close()
            raise file_error(f"cannot write the capture file {self.path!r}", error) from error

    def flush(self) -> None:
        """Nothing to do: a file takes all at once."""

    def end(self) -> None:
        """Nothing to do."""

    def finish(self, *, keep: bool, total_bytes: int, truncated: bool) -> Captured:
        """Hand the descriptor over; the name stays only where `keep` says so."""
        if keep and self._fd is None:
            # What is kept is there also when it is empty.
            with contextlib.suppress(OcisbxError):
                self._fd = self._make()
        fd, self._fd = self._fd, None
        if fd is None:
            return Captured(total_bytes=total_bytes, truncated=truncated)
        if not keep:
            self._unlink()
        path = self.path if keep else None
        return Captured(fd=fd, total_bytes=total_bytes, truncated=truncated, path=path)

    def close(self) -> None:
        """Close the file and, unless it is lasting, remove it; nothing after `finish`."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
            if not self._lasting:
                self._unlink()

    def _unlink(self) -> None:
        # What cannot be removed now (gone already, a dying disk) falls to gc with its directory;
        # raising would hide the error that led here.
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def file_error(what: str, error: OSError) -> OcisbxError:
    """The error for a file that cannot take the payload's output."""
    if error.errno in FULL_ERRNOS:
        remedy = "free space there, or lower --max-output (capture.max_bytes)"
    else:
        remedy = "check that the directory exists, is yours and is writable (XDG_RUNTIME_DIR)"
    return OcisbxError(what, why=os.strerror(error.errno or 0), remedy=remedy)
