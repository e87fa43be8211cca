"""The characters of a screen, in rows that make each operation cheap.

pyte 0.8 has a cell as an entry of a dictionary: three bytes may rewrite thousands of them, and each
mark on a character composes it anew. Here a row is a tuple that is replaced, never changed: rows
are shared, and an operation costs what it takes to copy some pointers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from unicodedata import normalize

from pyte.screens import wcwidth

from ocisbx.expect.looks import BLANK, Cell, erased
from ocisbx.expect.pen import MAX_COLUMNS, Pen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
Row: TypeAlias = tuple[Cell, ...]

# And MAX_COLUMNS.
MAX_ROWS: Final = 1000
MAX_CELLS: Final = 200_000
# On one character; text has a few, what has more is meant to be much.
MAX_MARKS: Final = 16

_RUN = re.compile(r"[ -~]+|.", re.DOTALL)


def drawn_size(rows: int, columns: int) -> tuple[int, int]:
    """How much is drawn of a terminal: at most MAX_CELLS."""
    columns = min(columns, MAX_COLUMNS)
    return min(rows, MAX_ROWS, MAX_CELLS // columns), columns


@lru_cache(4096)
def _cell(char: str, look: Cell) -> Cell:
    return look._replace(text=char)


class Grid(Pen):
    """`rows` holds the cells."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows: list[Row] = []
        super().__init__(rows, columns)

    def reset(self) -> None:
        """As when the terminal was switched on."""
        super().reset()
        self.wiped(self.rows)
        self.rows = [self._blank()] * self.lines
        self.repeated: Row = ()
        """What REP repeats: the character that came last, until something else does."""

    def left(self, rows: list[Row]) -> None:
        """These leave the screen at its top."""

    def wiped(self, rows: list[Row]) -> None:
        """These are all, and are wiped off."""

    def _blank(self, count: int | None = None) -> Row:
        return (erased(self.look),) * (self.columns if count is None else count)

    def resize(self, lines: int, columns: int) -> None:
        """A new size: what is blank below the cursor goes first, then what stands at the top."""
        surplus = self.lines - lines
        blank: Row = ()
        while surplus > 0 and self.y < len(self.rows) - 1:
            if self.rows[-1] is not blank and not _is_blank(self.rows[-1]):
                break
            blank = self.rows.pop()
            surplus -= 1
        if surplus > 0:
            self.left(self.rows[:surplus])
            del self.rows[:surplus]
            self.y = max(0, self.y - surplus)
        self.lines, self.columns = lines, columns
        blank = (BLANK,) * columns
        self.rows = for_each(lambda row: (row + blank[len(row) :])[:columns], self.rows)
        self.rows += [blank] * (lines - len(self.rows))
        self.x = min(self.x, columns - 1)
        self.margins = None

    def index(self) -> None:
        """Down; at the bottom everything goes up."""
        self.is_due = False
        if self.y == self.region[1]:
            self.scroll_up()
        else:
            self.y = min(self.y + 1, self.lines - 1)

    def reverse_index(self) -> None:
        """Up; at the top everything goes down."""
        self.is_due = False
        if self.y == self.region[0]:
            self.scroll_down()
        else:
            self.y = max(self.y - 1, 0)

    def linefeed(self) -> None:
        """Down, and with LNM to the beginning of the line."""
        self.index()
        if self.returns:
            self.carriage_return()

    def next_line(self) -> None:
        """To the beginning of the next line."""
        self.carriage_return()
        self.index()

    # ------------------------------------------------------------------------ text
    def draw(self, text: str) -> None:
        """Write, without what steers."""
        look = self.look
        for run in _RUN.findall(self.graphic(text)):
            if run.isascii():
                cells = tuple([_cell(char, look) for char in run])
                self._put(cells)
                self.repeated = cells[-1:]
            else:
                self._draw_one(run)

    def _draw_one(self, char: str) -> None:
        width = wcwidth(char)
        if width > 0:
            cell = _cell(char, self.look)
            if width == 1 or self.columns == 1:
                self.repeated = (cell,)
                self._put(self.repeated)
            else:
                self.repeated = (cell, cell._replace(text=""))
                self._put_wide(self.repeated)
        elif char.isprintable():
            self._mark(char)

    def repeat(self, count: int = 1) -> None:
        """The last character (REP), at most for a line, and a wide one up to its end: curses, which
        knows where that is."""
        width = len(self.repeated)
        if width:
            room = self.columns if width == 1 else self.columns - self.x
            self._put(self.repeated * min(count or 1, room // width))

    def _put(self, cells: Row) -> None:
        at = 0
        while at < len(cells):
            if self.is_due:
                self.is_due = False
                if self.wraps:
                    self.next_line()
                elif self.x == self.columns - 1:
                    # Each overwrites the one before it, at the right margin.
                    at = len(cells) - 1
            part = cells[at : at + self.columns - self.x]
            if self.inserts:
                self.insert_characters(len(part))
            self._write(self.x, part)
            at += len(part)
            self.x += len(part)
            if self.x == self.columns:
                self.x, self.is_due = self.columns - 1, True

    def _put_wide(self, cells: Row) -> None:
        if self.is_due or self.x > self.columns - 2:
            if self.wraps:
                self.next_line()
            else:
                self.x = min(self.x, self.columns - 2)
        self._put(cells)

    def _mark(self, char: str) -> None:
        """An accent, a vowel sign or the like, on the character before it in the line."""
        row, x = self.rows[self.y], self.x if self.is_due else self.x - 1
        if x > 0 and not row[x].text:
            x -= 1
        if x >= 0 and len(row[x].text) <= MAX_MARKS:
            composed = normalize("NFC", (row[x].text or " ") + char)
            self._write(x, (row[x]._replace(text=composed),))

    def _write(self, x: int, cells: Row) -> None:
        row = self.rows[self.y]
        self.rows[self.y] = row[:x] + cells + row[x + len(cells) :]

    # ------------------------------------------------------------------------ moving and erasing
    def scroll_up(self, count: int = 1) -> None:
        """The region; what leaves it at the top of the screen is told to `left`."""
        top, bottom = self.region
        count = min(count or 1, bottom - top + 1)
        if top == 0:
            self.left(self.rows[:count])
        self._delete(top, bottom, count)

    def scroll_down(self, count: int = 1) -> None:
        """The region."""
        self._insert(*self.region, count)

    def insert_lines(self, count: int = 1) -> None:
        """Above the cursor's."""
        top, bottom = self.region
        if top <= self.y <= bottom:
            self._insert(self.y, bottom, count)
            self.carriage_return()

    def delete_lines(self, count: int = 1) -> None:
        """From the cursor's on."""
        top, bottom = self.region
        if top <= self.y <= bottom:
            self._delete(self.y, bottom, count)
            self.carriage_return()

    def _insert(self, top: int, bottom: int, count: int) -> None:
        count = min(count or 1, bottom - top + 1)
        kept = self.rows[top : bottom + 1 - count]
        self.rows[top : bottom + 1] = [self._blank()] * count + kept

    def _delete(self, top: int, bottom: int, count: int) -> None:
        count = min(count or 1, bottom - top + 1)
        kept = self.rows[top + count : bottom + 1]
        self.rows[top : bottom + 1] = kept + [self._blank()] * count

    def insert_characters(self, count: int = 1) -> None:
        """Before the cursor's; what does not fit is lost."""
        row, x = self.rows[self.y], self.x
        blanks = self._blank(min(count or 1, self.columns - x))
        self._replace(x, (blanks + row[x:])[: self.columns - x])

    def delete_characters(self, count: int = 1) -> None:
        """From the cursor's on."""
        row, x = self.rows[self.y], self.x
        count = min(count or 1, self.columns - x)
        self._replace(x, row[x + count :] + self._blank(count))

    def erase_characters(self, count: int = 1) -> None:
        """From the cursor's on."""
        self._replace(self.x, self._blank(min(count or 1, self.columns - self.x)))

    def erase_in_line(self, how: int = 0) -> None:
        """From the cursor on (0), up to it (1), or all (2)."""
        if how == 0:
            self.erase_characters(self.columns)
        elif how == 1:
            self._replace(0, self._blank(self.x + 1))
        elif how == 2:
            self._replace(0, self._blank())

    def _replace(self, x: int, cells: Row) -> None:
        """What stands there. As with xterm, nothing is due to wrap any more."""
        self.is_due = False
        self._write(x, cells)

    def erase_in_display(self, how: int = 0) -> None:
        """From the cursor on (0), up to it (1), or all (2); 3 is what has scrolled off."""
        y, blank = self.y, self._blank()
        if how == 2:
            self.is_due = False
            self.wiped(self.rows)
            self.rows = [blank] * self.lines
        elif how == 0:
            self.rows[y + 1 :] = [blank] * (self.lines - y - 1)
            self.erase_in_line(0)
        elif how == 1:
            self.rows[:y] = [blank] * y
            self.erase_in_line(1)

    def alignment_display(self) -> None:
        """E everywhere (DECALN). All of it scrolls again, and of the pen the colours stay."""
        self.margins, self.is_relative = None, False
        self.cursor_position()
        self.look = BLANK._replace(foreground=self.look.foreground, background=self.look.background)
        self.rows = [(Cell("E"),) * self.columns] * self.lines


def for_each(work: Callable[[Row], T], rows: Sequence[Row]) -> list[T]:
    """What comes of each row, worked out once for one that stands there often."""
    distinct = {id(row): row for row in rows}
    done = {key: work(row) for key, row in distinct.items()}
    return [done[id(row)] for row in rows]


def _is_blank(row: Row) -> bool:
    return all(cell.text in (" ", "") for cell in row)


def seen(row: Row) -> list[str]:
    """What is seen in each cell: of half a wide character nothing, nor of what is concealed."""
    data = [cell.text and " " if cell.concealed else cell.text for cell in row]
    if all(data) and "".join(data).isascii():
        return data
    wide = [bool(text) and wcwidth(text[0]) == 2 for text in data]
    found = []
    for x, text in enumerate(data):
        if not text:
            text = "" if x and wide[x - 1] else " "
        elif wide[x] and x + 1 < len(data) and data[x + 1]:
            text = " "
        found.append(text)
    return found
