"""The screen that a person would see, drawn by PyPI's pyte from the last output."""

from __future__ import annotations

import codecs
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import pyte

if TYPE_CHECKING:
    from collections.abc import Iterable

REPLACEMENT = "\ufffd"


class Run(NamedTuple):
    """Neighbouring characters that look the same.

    Colours are names (`red`, `brightblue`), six hexadecimal digits, or `default`.
    """

    text: str
    foreground: str
    background: str
    bold: bool
    italic: bool
    underlined: bool
    reverse: bool


class View(NamedTuple):
    """What stands on a screen: text only, nothing in it steers a terminal."""

    rows: int
    columns: int
    lines: tuple[str, ...]
    """From top to bottom, without the blanks at their ends; a wide character is one character."""
    cursor: tuple[int, int]
    """Row and column, counted from 0."""
    cursor_visible: bool
    title: str
    """What the program calls the window; empty unless it does."""
    runs: tuple[tuple[Run, ...], ...]
    """The lines once more with colours, where they were asked for."""

    @property
    def text(self) -> str:
        """The lines, joined by newlines; what expect_screen searches."""
        return "\n".join(self.lines)


class _Stream(pyte.Stream):
    """UTF-8 in which a program may still choose VT100's line graphics, as curses does: what pyte
    takes for UTF-8 shows a frame as `lqqk`, where terminals show lines."""

    def __init__(self, screen: pyte.Screen) -> None:
        super().__init__(screen)
        self.use_utf8 = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed_bytes(self, data: bytes) -> None:
        """Draw what these complete; half a character waits."""
        self.feed(self._decoder.decode(data))


class Canvas:
    """Draws bytes as they come; `feed` and `view` may be called in any order."""

    def __init__(self, rows: int, columns: int) -> None:
        self._size = (rows, columns)
        self._screen = self._make(rows, columns)
        self._stream = _Stream(self._screen)
        self.fed_bytes = 0
        """How much of the program's output is drawn, or was lost before it could be."""

    def _make(self, rows: int, columns: int) -> pyte.Screen:
        return pyte.Screen(columns, rows)

    def resize(self, rows: int, columns: int) -> None:
        """A new size, as the terminal has it."""
        self._size = (rows, columns)
        if self._size != (self._screen.lines, self._screen.columns):
            self._screen.resize(rows, columns)

    def restart(self) -> None:
        """Forget what is drawn: output in between is lost."""
        self._screen.reset()
        self._stream = _Stream(self._screen)

    def feed(self, data: bytes) -> None:
        """Draw what a program printed; nothing that it prints can make this fail."""
        self.fed_bytes += len(data)
        try:
            self._stream.feed_bytes(data)
        except Exception:  # noqa: BLE001 -- pyte 0.8 trips over some sequences, as over long numbers
            # Drawn up to there; what follows is drawn from a fresh state of the parser.
            self._stream = _Stream(self._screen)
        # A program can ask for 132 columns (DECCOLM), which terminals refuse to give.
        self.resize(*self._size)

    def view(self, *, colours: bool = False) -> View:
        """The screen as it stands."""
        screen = self._screen
        return View(
            rows=screen.lines,
            columns=screen.columns,
            lines=tuple(inert(line).rstrip(" ") for line in screen.display),
            cursor=(screen.cursor.y, min(screen.cursor.x, screen.columns - 1)),
            cursor_visible=not screen.cursor.hidden,
            title=inert(screen.title),
            runs=tuple(self._runs(row) for row in range(screen.lines)) if colours else (),
        )

    def _runs(self, row: int) -> tuple[Run, ...]:
        line = self._screen.buffer[row]
        cells = [line[column] for column in range(self._screen.columns)]
        return tuple(
            Run("".join(inert(cell.data) for cell in group), *look)
            for look, group in groupby(cells, _look)
        )


def _look(cell: Any) -> tuple[str, str, bool, bool, bool, bool]:  # noqa: ANN401 -- pyte is untyped
    return (cell.fg, cell.bg, cell.bold, cell.italics, cell.underscore, cell.reverse)


def inert(text: str) -> str:
    """The text, in which nothing steers a terminal."""
    return "".join(c if c.isprintable() else REPLACEMENT for c in text)


def last_bytes(pieces: Iterable[bytes], count: int) -> bytes:
    """The last `count` bytes of pieces that follow each other."""
    return b"".join(pieces)[-count:] if count else b""
