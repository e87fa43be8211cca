"""Where and how a terminal writes next: its state but for the characters."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Final, NamedTuple

from pyte.charsets import LAT1_MAP, MAPS, VT100_MAP

from ocisbx.expect.looks import BLANK, Cell, changed

# Attributes of Pen, by the numbers of SM and RM, and after `?`.
_MODES: Final = {4: "inserts", 20: "returns"}
_PRIVATE_MODES: Final = {5: "is_turned", 6: "is_relative", 7: "wraps", 25: "is_visible"}
TAB: Final = 8


class _Saved(NamedTuple):
    y: int
    x: int
    look: Cell
    charsets: tuple[str, str]
    charset: int
    is_relative: bool
    wraps: bool


class Pen:
    """Lines and columns are counted from 0 here, and from 1 in what a program sends; there 0, and
    what is left out, is as good as 1."""

    def __init__(self, rows: int, columns: int) -> None:
        self.lines, self.columns = rows, columns
        self.reset()

    def reset(self) -> None:
        """As when the terminal was switched on."""
        self.y = self.x = 0
        """x may be behind the last column: what is written next wraps."""
        self.look = BLANK
        self.title = ""
        self.margins: tuple[int, int] | None = None
        self.charsets = (LAT1_MAP, VT100_MAP)
        self.charset = 0
        self.inserts = self.returns = self.is_turned = self.is_relative = False
        self.wraps = self.is_visible = True
        # Every eighth, and where they were changed.
        self._stops: list[int] | None = None
        self.save_cursor()

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
        """As G0, `(`, or G1, `)`."""
        if code in MAPS:
            first, second = self.charsets
            self.charsets = (MAPS[code], second) if place == "(" else (first, MAPS[code])

    def shift_in(self) -> None:
        """G0 counts."""
        self.charset = 0

    def shift_out(self) -> None:
        """G1 counts."""
        self.charset = 1

    # ------------------------------------------------------------------------ where
    def save_cursor(self) -> None:
        """In the one place there is."""
        self._saved = _Saved(
            self.y, self.x, self.look, self.charsets, self.charset, self.is_relative, self.wraps
        )

    def restore_cursor(self) -> None:
        """As it was saved last, however often that is asked for."""
        y, x, self.look, self.charsets, self.charset, self.is_relative, self.wraps = self._saved
        self.y, self.x = min(y, self.lines - 1), min(x, self.columns)

    def cursor_position(self, line: int = 1, column: int = 1) -> None:
        """Of a screen, or (DECOM) of what scrolls."""
        first, last = self.region if self.is_relative else (0, self.lines - 1)
        self.y = min(first + max(line, 1) - 1, last)
        self.cursor_to_column(column)

    def cursor_to_column(self, column: int = 1) -> None:
        """In the same line."""
        self.x = min(max(column, 1), self.columns) - 1

    def cursor_to_line(self, line: int = 1) -> None:
        """In the same column, counted as cursor_position does."""
        self.cursor_position(line, self.x + 1)

    def cursor_up(self, count: int = 1) -> None:
        """It stops at the top of what scrolls, and above that at the screen's."""
        top = self.region[0]
        self._go(max(self.y - (count or 1), top if self.y >= top else 0))

    def cursor_down(self, count: int = 1) -> None:
        """It stops at the bottom of what scrolls, and below that at the screen's."""
        bottom = self.region[1]
        last = bottom if self.y <= bottom else self.lines - 1
        self._go(min(self.y + (count or 1), last))

    def _go(self, line: int) -> None:
        self.y, self.x = line, min(self.x, self.columns - 1)

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
        self.x = min(self.x + (count or 1), self.columns - 1)

    def cursor_back(self, count: int = 1) -> None:
        """At most to the first column."""
        self.x = max(min(self.x, self.columns - 1) - (count or 1), 0)

    def backspace(self) -> None:
        """One column back."""
        self.cursor_back()

    def carriage_return(self) -> None:
        """To the first column."""
        self.x = 0

    # ------------------------------------------------------------------------ stops
    def tab(self) -> None:
        """To the next stop, or the last column."""
        if self._stops is None:
            stop = self.x // TAB * TAB + TAB
        else:
            at = bisect_right(self._stops, self.x)
            stop = self._stops[at] if at < len(self._stops) else self.columns
        self.x = min(stop, self.columns - 1)

    def set_tab_stop(self) -> None:
        """Where the cursor is."""
        stops = self._own_stops()
        if self.x not in stops[bisect_right(stops, self.x) - 1 :][:1]:
            insort(stops, self.x)

    def clear_tab_stop(self, how: int = 0) -> None:
        """Where the cursor is (0), or all (3)."""
        stops = self._own_stops()
        at = bisect_right(stops, self.x) - 1
        if how == 3:
            self._stops = []
        elif how == 0 and self.x in stops[at:][:1]:
            del stops[at]

    def _own_stops(self) -> list[int]:
        if self._stops is None:
            self._stops = list(range(TAB, self.columns, TAB))
        return self._stops
