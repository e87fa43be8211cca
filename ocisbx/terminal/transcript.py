"""A transcript of a terminal: asciicast v2 (docs.asciinema.org/manual/asciicast/v2), so that
`asciinema play FILE` shows what a person would have seen.
"""

from __future__ import annotations

import codecs
import json
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, Self

from ocisbx.errors import ConfigError
from ocisbx.terminal.veil import Veil
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.terminal.device import Size

# In place of what was typed and not shown: its length is not told either.
HIDDEN: Final = "input was hidden"
# In place of all that was typed and shown while a person had the terminal.
PRIVATE: Final = "a person had the terminal"


class Recorder(Protocol):
    """Who is told what passes on a terminal, as it happens."""

    def shown(self, data: bytes | memoryview) -> None:
        """The program printed this."""

    def typed(self, data: bytes | memoryview, *, hidden: bool) -> None:
        """This was typed; `hidden`: nothing of it may be told but that there was some."""

    def resized(self, size: Size) -> None:
        """The terminal has this size now."""


def check_terminal(*, has_one: bool) -> None:
    """Whether there can be a transcript. Raises ConfigError."""
    if not has_one:
        raise ConfigError("a transcript is of a terminal", remedy="add -t (`terminal=True`)")


def make_file(path: str) -> int:
    """A descriptor for a transcript: of a file of mode 0600 that did not exist before.

    Raises:
        ConfigError: the file exists, or cannot be made.
    """
    # Appended: one who begins anew in it (`launch`) cuts it off, wherever another had come to.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise ConfigError(
            f"the transcript {show(path)} cannot be made",
            why=(error.strerror or "").lower(),
            remedy="give a name that is free, in a directory that you may write",
        ) from error


@contextmanager
def new_file(path: str | None, *, has_terminal: bool) -> Iterator[int | None]:
    """A descriptor as of `make_file`, for another process to write to; after an error there is no
    such file. None: none is wanted.

    Raises:
        ConfigError: there is no terminal, or the file cannot be made.
    """
    if path is None:
        yield None
        return
    check_terminal(has_one=has_terminal)
    descriptor = make_file(path)
    try:
        yield descriptor
    except BaseException:
        _take_away(descriptor, path)
        raise
    finally:
        os.close(descriptor)


def _take_away(descriptor: int, path: str) -> None:
    """Unless it is gone, or another has its name by now."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            os.unlink(path)


class Transcript:
    """Each event is in the file as soon as it happened."""

    def __init__(self, fd: int, size: Size, term: str, *, path: str | None = None) -> None:
        """Takes ownership of `fd`, as of `make_file`. As a context it is closed at the end; after
        an error, where nothing has passed, there is no file at `path` either."""
        self._fd = fd
        self._path = path
        self._is_empty = True
        self._size = size
        self._started = time.monotonic()
        # A character may come in two parts.
        self._shown = codecs.getincrementaldecoder("utf-8")("replace")
        self._typed = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_hidden = False
        self._is_private = False
        # Of what is shown, and of what is typed: each may come in pieces.
        self._veil, self._keys = Veil(), Veil()
        self._write(
            {
                "version": 2,
                "width": size.columns,
                "height": size.rows,
                "timestamp": int(time.time()),
                "env": {"TERM": term},
            }
        )

    @classmethod
    def into(cls, path: str, size: Size, term: str) -> Self:
        """Into a new file. Raises ConfigError: it exists, or cannot be made."""
        return cls(make_file(path), size, term, path=path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if error is not None and self._is_empty and self._path is not None:
            _take_away(self._fd, self._path)
        self.close()

    def shown(self, data: bytes | memoryview) -> None:
        """The program printed this."""
        text = self._shown.decode(bytes(data))
        if not self._is_private:
            self._event("o", self._veil.pass_on(text))

    def conceal(self, secret: str) -> None:
        """From now on this is left out."""
        self._veil.add(secret)
        self._keys.add(secret)

    def set_private(self, *, private: bool) -> None:
        """Until it is called again with False, nothing is kept but that there was something."""
        if private and not self._is_private:
            self._flush()
            self._event("m", PRIVATE)
        self._is_private = private

    def typed(self, data: bytes | memoryview, *, hidden: bool) -> None:
        """This was typed; `hidden`: nothing of it may be told but that there was some."""
        if self._is_private:
            return
        if not hidden:
            self._event("i", self._keys.pass_on(self._typed.decode(bytes(data))))
        elif not self._is_hidden:
            self._event("m", HIDDEN)
        self._is_hidden = hidden

    def resized(self, size: Size) -> None:
        """The terminal has this size now."""
        # Who has it drawn anew puts back the size that it had.
        if size != self._size:
            self._size = size
            self._event("r", f"{size.columns}x{size.rows}")

    def close(self) -> None:
        """Idempotent."""
        self._flush()
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _flush(self) -> None:
        if self._fd >= 0:
            self._event("i", self._keys.rest())
            self._event("o", self._veil.rest())

    def _event(self, code: str, data: str) -> None:
        if data:
            self._is_empty = False
            self._write([round(time.monotonic() - self._started, 6), code, data])

    def _write(self, line: object) -> None:
        rest = memoryview(json.dumps(line, ensure_ascii=True).encode() + b"\n")
        while rest and self._fd >= 0:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except OSError:
                # A full disk ends the transcript, not the program that it is of.
                self.close()
