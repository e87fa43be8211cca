"""Where and how a terminal writes next: its state but for the characters."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple, TypeAlias

from ocisbx.expect.looks import BLANK, Cell, changed

Charset: TypeAlias = dict[int, str]

# Attributes of Pen, by the numbers of SM and RM, and after `?`.
_MODES: Final = {4: "inserts", 20: "returns"}
_PRIVATE_MODES: Final = {5: "is_turned", 6: "is_relative", 7: "wraps", 25: "is_visible"}
TAB: Final = 8
# A program can set any size (TIOCSWINSZ), and what is drawn is the host's time and memory.
MAX_COLUMNS: Final = 4000
_STOPS: Final = tuple(range(TAB, MAX_COLUMNS, TAB))

_ASCII: Final[Charset] = {}
_UPPER: Final[Charset] = {code: chr(code | 0x80) for code in range(0x20, 0x7F)}
# By what designates them to xterm (379): DEC's special graphics, Latin 1's upper half, and national
# sets, which are ASCII unless DECNRCM is set. What is in none of these is ignored.
_CHARSETS: Final[dict[str, Charset]] = {
    "0": dict(enumerate(" ◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·", start=0x5F)),
    **dict.fromkeys("A<", _UPPER),
    **dict.fromkeys("B1245679=CEHKQRYZ`f", _ASCII),
}
# What designates G0 to G3.
PLACES: Final = ("(", ")", "*", "+")


class _Saved(NamedTuple):
    y: int
    x: int
    is_due: bool
    look: Cell
    charsets: tuple[Charset, ...]
    charset: int
    is_relative: bool


class Pen:
    """Lines and columns are counted from 0 here, and from 1 in what a program sends; there 0, and
    what is left out, is as good as 1."""

    def __init__(self, rows: int, columns: int) -> None:
        self.lines, self.columns = rows, columns
        self.reset()

    def reset(self) -> None:
        """As when the terminal was switched on."""
        self.y = self.x = 0
        self.is_due = False
        """Whether the last column was written: what is written next wraps."""
        self.title = ""
        self.returns = self.is_turned = False
        self._stops = list(_STOPS)
        self.soft_reset()

    def soft_reset(self) -> None:
        """How to write, as at first (DECSTR). The cursor and the stops stay where they are."""
        self.look = BLANK
        self.margins: tuple[int, int] | None = None
        self.charsets = (_ASCII,) * len(PLACES)
        self.charset = 0
        # For one character: SS2, SS3.
        self._once: int | None = None
        self.inserts = self.is_relative = False
        self.wraps = self.is_visible = True
        self._saved = _Saved(0, 0, self.is_due, BLANK, self.charsets, 0, is_relative=False)

    @property
    def region(self) -> tuple[int, int]:
        """The first and the last line of what scrolls."""
        return self.margins or (0, self.lines - 1)

    def set_margins(self, top: int = 0, bottom: int = 0) -> None:
        """Which lines scroll; 0: the first, the last."""
        first, last = max(top, 1) - 1, min(bottom or self.lines, self.lines) - 1
        if first < last:
            self.margins = (first, last)
            self.cursor_position()

    def set_title(self, title: str) -> None:
        """What the program calls the window."""
        self.title = title

    # ------------------------------------------------------------------------ how
    def select_look(self, parameters: str) -> None:
        """SGR."""
        self.look = changed(self.look, parameters)

    def set_mode(self, *numbers: int) -> None:
        """IRM and LNM count."""
        self._switch(_MODES, numbers, to=True)

    def reset_mode(self, *numbers: int) -> None:
        """Take back set_mode."""
        self._switch(_MODES, numbers, to=False)

    def set_private_mode(self, *numbers: int) -> None:
        """DECSCNM, DECOM, DECAWM and DECTCEM count. DECCOLM, 132 columns, is refused, as terminals
        do."""
        self._switch(_PRIVATE_MODES, numbers, to=True)

    def reset_private_mode(self, *numbers: int) -> None:
        """Take back set_private_mode."""
        self._switch(_PRIVATE_MODES, numbers, to=False)

    def _switch(self, names: dict[int, str], numbers: tuple[int, ...], *, to: bool) -> None:
        for number in numbers:
            if number in names:
                setattr(self, names[number], to)
                if names[number] == "is_relative":
                    self.cursor_position()

    def define_charset(self, code: str, place: str) -> None:
        """As G0 to G3: `(`, `)`, `*`, `+`."""
        if code in _CHARSETS:
            at = PLACES.index(place)
            self.charsets = (*self.charsets[:at], _CHARSETS[code], *self.charsets[at + 1 :])

    def shift_in(self) -> None:
        """G0 counts."""
        self.charset = 0

    def shift_out(self) -> None:
        """G1 counts."""
        self.charset = 1

    def lock_g2(self) -> None:
        """G2 counts (LS2)."""
        self.charset = 2

    def lock_g3(self) -> None:
        """G3 counts (LS3)."""
        self.charset = 3

    def shift_g2(self) -> None:
        """G2 counts for one character (SS2)."""
        self._once = 2

    def shift_g3(self) -> None:
        """G3 counts for one character (SS3)."""
        self._once = 3

    def graphic(self, text: str) -> str:
        """What these characters are in the sets that count."""
        once, self._once = self._once, None
        if once is not None:
            first = text[0].translate(self.charsets[once])
            return first + text[1:].translate(self.charsets[self.charset])
        charset = self.charsets[self.charset]
        return text.translate(charset) if charset else text

    # ------------------------------------------------------------------------ where
    def save_cursor(self) -> None:
        """In the one place there is."""
        where = (self.y, self.x, self.is_due)
        self._saved = _Saved(
            *where, self.look, self.charsets, self.charset, is_relative=self.is_relative
        )

    def restore_cursor(self) -> None:
        """As it was saved last, however often that is asked for."""
        y, x, is_due, self.look, self.charsets, self.charset, self.is_relative = self._saved
        first, last = self._reach
        self._go(min(max(y, first), last), min(x, self.columns - 1))
        self.is_due = is_due

    @property
    def _reach(self) -> tuple[int, int]:
        """Which lines can be gone to: of a screen, or (DECOM) of what scrolls."""
        return self.region if self.is_relative else (0, self.lines - 1)

    def _go(self, line: int, column: int) -> None:
        self.y, self.x, self.is_due = line, column, False

    def cursor_position(self, line: int = 1, column: int = 1) -> None:
        """Of a screen, or (DECOM) of what scrolls."""
        first, last = self._reach
        self.y = min(first + max(line, 1) - 1, last)
        self.cursor_to_column(column)

    def cursor_to_column(self, column: int = 1) -> None:
        """In the same line."""
        self._go(self.y, min(max(column, 1), self.columns) - 1)

    def cursor_to_line(self, line: int = 1) -> None:
        """In the same column, counted as cursor_position does."""
        self.cursor_position(line, self.x + 1)

    def cursor_lines_on(self, count: int = 1) -> None:
        """Down, past the bottom of what scrolls (VPR)."""
        self.cursor_to_line(self.y - self._reach[0] + 1 + (count or 1))

    def cursor_up(self, count: int = 1) -> None:
        """It stops at the top of what scrolls, and above that at the screen's."""
        top = self.region[0]
        self._go(max(self.y - (count or 1), top if self.y >= top else 0), self.x)

    def cursor_down(self, count: int = 1) -> None:
        """It stops at the bottom of what scrolls, and below that at the screen's."""
        bottom = self.region[1]
        last = bottom if self.y <= bottom else self.lines - 1
        self._go(min(self.y + (count or 1), last), self.x)

    def cursor_up1(self, count: int = 1) -> None:
        """To the beginning of a line above."""
        self.cursor_up(count)
        self.carriage_return()

    def cursor_down1(self, count: int = 1) -> None:
        """To the beginning of a line below."""
        self.cursor_down(count)
        self.carriage_return()

    def cursor_forward(self, count: int = 1) -> None:
        """At most to the last column."""
        self._go(self.y, min(self.x + (count or 1), self.columns - 1))

    def cursor_back(self, count: int = 1) -> None:
        """At most to the first column."""
        self._go(self.y, max(self.x - (count or 1), 0))

    def backspace(self) -> None:
        """One column back."""
        self.cursor_back()

    def carriage_return(self) -> None:
        """To the first column."""
        self._go(self.y, 0)

    # ------------------------------------------------------------------------ stops
    # As with xterm, what is due to wrap still is.
    def tab(self, count: int = 1) -> None:
        """To the next stop, or the last column."""
        at = bisect_right(self._stops, self.x) + (count or 1) - 1
        stop = self._stops[at] if at < len(self._stops) else self.columns
        self.x = min(stop, self.columns - 1)

    def back_tab(self, count: int = 1) -> None:
        """To the stop before, or the first column."""
        at = bisect_left(self._stops, self.x) - (count or 1)
        self.x = self._stops[at] if at >= 0 else 0

    def set_tab_stop(self) -> None:
        """Where the cursor is."""
        at = bisect_left(self._stops, self.x)
        if self._stops[at : at + 1] != [self.x]:
            self._stops.insert(at, self.x)

    def clear_tab_stop(self, how: int = 0) -> None:
        """Where the cursor is (0), or all (3)."""
        at = bisect_left(self._stops, self.x)
        if how == 3:
            self._stops = []
        elif how == 0 and self._stops[at : at + 1] == [self.x]:
            del self._stops[at]
