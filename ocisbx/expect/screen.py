"""The screen that a person would see, drawn from the last output."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category

from ocisbx.expect.grid import Grid, drawn_size, for_each, seen
from ocisbx.expect.sequences import Sequences

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.expect.grid import Row
    from ocisbx.expect.looks import Cell

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


class Canvas:
    """Draws bytes as they come; `feed` and `view` may be called in any order.

    Of a larger terminal what fits into MAX_ROWS, MAX_COLUMNS and MAX_CELLS of the grid is drawn.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.fed_bytes = 0
        """How much of the program's output is drawn, or was lost before it could be."""
        self._grid = self._make(*drawn_size(rows, columns))
        self._sequences = Sequences(self._grid)

    def _make(self, rows: int, columns: int) -> Grid:
        return Grid(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        """A new size, as the terminal has it."""
        size = drawn_size(rows, columns)
        if size != (self._grid.lines, self._grid.columns):
            self._grid.resize(*size)

    def restart(self) -> None:
        """Forget what is drawn: output in between is lost."""
        self._grid.reset()
        self._sequences = Sequences(self._grid)

    def feed(self, data: bytes) -> None:
        """Draw what a program printed; nothing that it prints can make this fail, or take longer
        than its length allows."""
        self.fed_bytes += len(data)
        self._sequences.feed(data)

    def view(self, *, colours: bool = False) -> View:
        """The screen as it stands."""
        grid = self._grid
        return View(
            rows=grid.lines,
            columns=grid.columns,
            lines=tuple(for_each(line_of, grid.rows)),
            cursor=(grid.y, grid.x),
            cursor_visible=grid.is_visible,
            title=inert(grid.title),
            runs=tuple(for_each(self._runs, grid.rows)) if colours else (),
        )

    def _runs(self, row: Row) -> tuple[Run, ...]:
        cells = zip(seen(row), row, strict=True)
        return tuple(
            Run(inert("".join(text for text, _ in group)), *look)
            for look, group in groupby(cells, self._look)
        )

    def _look(self, cell: tuple[str, Cell]) -> tuple[str, str, bool, bool, bool, bool]:
        look = cell[1]
        turned = look.reverse != self._grid.is_turned
        return look.foreground, look.background, look.bold, look.italic, look.underlined, turned


def line_of(row: Row) -> str:
    """What a row says, without the blanks at its end."""
    return inert("".join(seen(row))).rstrip(" ")


def inert(text: str) -> str:
    """The text, in which nothing steers a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _stand_in(c) for c in text)


def _stand_in(character: str) -> str:
    # Other blanks (NBSP, the ideographic one) are nothing that can be printed to Python.
    return " " if category(character) == "Zs" else REPLACEMENT


def last_bytes(pieces: Iterable[bytes], count: int) -> bytes:
    """The last `count` bytes of pieces that follow each other."""
    return b"".join(pieces)[-count:] if count else b""
