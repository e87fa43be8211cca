"""Characters as they look: what SGR (ECMA-48, ISO 8613-6) says of them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pyte.graphics import BG_ANSI, FG_AIXTERM, FG_ANSI, FG_BG_256

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NUMBER: Final = 9999

_ON: Final = {1: "bold", 3: "italic", 4: "underlined", 7: "reverse", 8: "concealed"}
_OFF: Final = {22: "bold", 23: "italic", 24: "underlined", 27: "reverse", 28: "concealed"}
# 58 is the colour of what underlines, which nobody is told.
_COLOURS: Final = {38: "foreground", 48: "background", 58: ""}


class Cell(NamedTuple):
    """A character on a screen, with the marks on it. A wide one's second cell is empty."""

    text: str = " "
    foreground: str = "default"
    background: str = "default"
    bold: bool = False
    italic: bool = False
    underlined: bool = False
    reverse: bool = False
    concealed: bool = False


BLANK: Final = Cell()


@lru_cache(256)
def erased(look: Cell) -> Cell:
    """A blank where something was erased: it has the pen's background only (terminfo's bce)."""
    return BLANK._replace(background=look.background)


def number(text: str) -> int:
    """A sequence's parameter; what is left out is 0."""
    return min(int(text[:5] or 0), MAX_NUMBER)


def changed(cell: Cell, parameters: str) -> Cell:
    """What SGR with these makes of a cell."""
    parts = iter(parameters.split(";"))
    look = cell._asdict()
    for part in parts:
        head, *rest = [number(one) for one in part.split(":")]
        if head in _COLOURS:
            colour = _joined(rest) if rest else _separate(parts)
            if colour:
                look[_COLOURS[head]] = colour
        elif head == 0:
            look.update(BLANK._asdict())
        elif head in _ON:
            # `4:0` is no underlining, `4:3` a wavy one.
            look[_ON[head]] = rest != [0]
        elif head in _OFF:
            look[_OFF[head]] = False
        elif head in FG_ANSI:
            look["foreground"] = FG_ANSI[head]
        elif head in BG_ANSI:
            look["background"] = BG_ANSI[head]
        elif head in FG_AIXTERM:
            look["foreground"] = FG_AIXTERM[head]
        elif head - 10 in FG_AIXTERM:
            look["background"] = FG_AIXTERM[head - 10]
    return Cell(*(look[name] for name in Cell._fields))


def _joined(numbers: list[int]) -> str | None:
    """`5:N`, `2:R:G:B`, and with a colour space `2:SPACE:R:G:B`."""
    kind, *values = numbers
    return _colour(kind, values[1:4] if len(values) > 3 else values)


def _separate(parts: Iterator[str]) -> str | None:
    """`5;N` and `2;R;G;B`, which are parameters of their own."""
    kind = number(next(parts, "").partition(":")[0])
    count = {5: 1, 2: 3}.get(kind, 0)
    return _colour(kind, [number(next(parts, "").partition(":")[0]) for _ in range(count)])


def _colour(kind: int, values: list[int]) -> str | None:
    if any(value > 0xFF for value in values):
        return None
    match kind, values:
        case 5, [index]:
            return FG_BG_256[index]
        case 2, [red, green, blue]:
            return f"{red:02x}{green:02x}{blue:02x}"
        case _:
            return None
