"""A transcript as plain text: what a person could have read, from top to bottom."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.errors import ConfigError
from ocisbx.expect.grid import Grid, for_each
from ocisbx.expect.screen import Canvas, line_of
from ocisbx.terminal.device import check_size
from ocisbx.terminal.transcript import HIDDEN
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ocisbx.expect.grid import Row

# The text is about as long as what was shown, but a few bytes may move the cursor far, or fill the
# screen. It may be longer by so much, which is memory.
MAX_DRAWN_BYTES = 64 << 20
_SIZE = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")
# The end of the year 9999.
LAST_S = 253_402_300_799


class Typed(NamedTuple):
    """What was typed at once; None: it was hidden."""

    at_s: float
    text: str | None


class Playback(NamedTuple):
    """A transcript, played to its end."""

    rows: int
    columns: int
    started_at_s: int | None
    """Seconds since 1970."""
    duration_s: float
    text: str
    """Every line that scrolled away or was wiped off, and what stood there at the end."""
    text_truncated: bool
    """Whether the text lacks its beginning: it was MAX_DRAWN_BYTES longer than what was shown."""
    typed: tuple[Typed, ...]


class _Scroll(Grid):
    """A screen whose lines are kept when they leave it."""

    def __init__(self, rows: int, columns: int, keep: Callable[[list[str]], None]) -> None:
        self._keep = keep
        super().__init__(rows, columns)

    def left(self, rows: list[Row]) -> None:
        """Whoever looked has read them."""
        self._keep(for_each(line_of, rows))

    def wiped(self, rows: list[Row]) -> None:
        """Whoever looked has read what stood there."""
        self._keep(trimmed(for_each(line_of, rows)))


class _Paper(Canvas):
    def __init__(self, rows: int, columns: int) -> None:
        self._kept = bytearray()
        self.is_cut = False
        super().__init__(rows, columns)

    def _make(self, rows: int, columns: int) -> Grid:
        return _Scroll(rows, columns, self._keep)

    def _keep(self, lines: list[str]) -> None:
        self._kept += "".join(f"{line}\n" for line in lines).encode()
        surplus = len(self._kept) - self.fed_bytes - MAX_DRAWN_BYTES
        if surplus > 0:
            self.is_cut = True
            del self._kept[: self._kept.find(b"\n", surplus - 1) + 1]

    def text(self) -> str:
        self._keep(trimmed(self.view().lines))
        return self._kept.decode()


def trimmed(lines: Iterable[str]) -> list[str]:
    """Without the empty ones at the end."""
    found = list(lines)
    while found and not found[-1]:
        found.pop()
    return found


def play(lines: Iterable[bytes], name: str) -> Playback:
    """Read an asciicast v2 line by line. The last line may be cut: its writer was killed.

    Raises:
        ConfigError: it is none; `name` and the line are told.
    """
    numbered = enumerate(lines, start=1)
    header = _header(next(numbered, (1, b""))[1], name)
    paper = _Paper(header["height"], header["width"])
    typed: list[Typed] = []
    at_s = 0.0
    for number, line in numbered:
        if not line.endswith(b"\n"):
            break
        at_s, code, data = _event(line, f"{name}:{number}")
        if code == "o":
            paper.feed(data.encode(errors="replace"))
        elif code == "i":
            typed.append(Typed(at_s, data))
        elif code == "m" and data == HIDDEN:
            typed.append(Typed(at_s, None))
        elif code == "r":
            paper.resize(*_size(data, f"{name}:{number}"))
    # asciicast v2: "Unix timestamp of the beginning", an integer.
    began = header.get("timestamp")
    return Playback(
        rows=header["height"],
        columns=header["width"],
        started_at_s=began if isinstance(began, int) and 0 <= began <= LAST_S else None,
        duration_s=at_s,
        text=paper.text(),
        text_truncated=paper.is_cut,
        typed=tuple(typed),
    )


def _header(line: bytes, name: str) -> dict[str, Any]:
    found = _json(line, f"{name}:1")
    if not isinstance(found, dict) or found.get("version") != 2:
        raise ConfigError(f"{name} is no transcript", why="expected an asciicast of version 2")
    check_size(found.get("height"), found.get("width"))
    return found


def _event(line: bytes, place: str) -> tuple[float, str, str]:
    match _json(line, place):
        case [int() | float() as at_s, str() as code, str() as data] if 0 <= at_s <= LAST_S:
            return float(at_s), code, data
    raise ConfigError(f"{place}: not an event", why="expected [SECONDS, CODE, TEXT]")


def _size(text: str, place: str) -> tuple[int, int]:
    found = _SIZE.fullmatch(text)
    if not found:
        raise ConfigError(f"{place}: {show(text)} is no size", why="expected COLUMNSxROWS")
    return check_size(int(found[2]), int(found[1]))


def _json(line: bytes, place: str) -> Any:  # noqa: ANN401 -- whatever stands there
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not JSON", why=str(error)) from None
