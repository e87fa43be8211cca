"""What a program prints, taken apart as terminals do (ECMA-48, and xterm's ctlseqs), at a cost in
proportion to its length.

pyte 0.8's parser raises for what it does not expect, and loses what follows; takes `ESC[>4;2m` for
underlining; and draws what a program asks its terminal in a DCS.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Final

from ocisbx.expect.looks import number
from ocisbx.expect.pen import PLACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.expect.grid import Grid

# As VT500s do with what is longer, a sequence is ignored.
MAX_SEQUENCE: Final = 256
MAX_TITLE: Final = 1024

_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PARAMETERS = re.compile(r"[ -?]+")
_CSI = re.compile(r"([<-?]?)([0-9:;]*)([ -/]*)")
# What xterm ends a string at: BEL only one that begins with `ESC ]`.
_COMMAND = re.compile(r"[^\x07\x18\x1a\x1b\x9c]+")
_STRING = re.compile(r"[^\x18\x1a\x1b\x9c]+")
# What Linux' console sets its palette with (console_codes(4)) begins with `ESC ]`, and nothing ends
# it: xterm (its brokenLinuxOSC) counts so many characters, `Pnrrggbb` and `R`.
_PALETTE: Final = {"P": 8, "R": 1}

# Methods of Grid.
_CONTROLS: Final = {
    "\b": "backspace",
    "\t": "tab",
    "\n": "linefeed",
    "\v": "linefeed",
    "\f": "linefeed",
    "\r": "carriage_return",
    "\x0e": "shift_out",
    "\x0f": "shift_in",
}
_ESCAPES: Final = {
    "N": "shift_g2",
    "O": "shift_g3",
    "n": "lock_g2",
    "o": "lock_g3",
    "7": "save_cursor",
    "8": "restore_cursor",
    "D": "index",
    "E": "next_line",
    "H": "set_tab_stop",
    "M": "reverse_index",
    "c": "reset",
    "#8": "alignment_display",
}
# By what stands around the numbers, with how many of them count.
_FUNCTIONS: Final = {
    "@": ("insert_characters", 1),
    "A": ("cursor_up", 1),
    "B": ("cursor_down", 1),
    "C": ("cursor_forward", 1),
    "D": ("cursor_back", 1),
    "E": ("cursor_down1", 1),
    "F": ("cursor_up1", 1),
    "G": ("cursor_to_column", 1),
    "H": ("cursor_position", 2),
    "I": ("tab", 1),
    "J": ("erase_in_display", 1),
    "?J": ("erase_in_display", 1),
    "K": ("erase_in_line", 1),
    "?K": ("erase_in_line", 1),
    "L": ("insert_lines", 1),
    "M": ("delete_lines", 1),
    "P": ("delete_characters", 1),
    "S": ("scroll_up", 1),
    "T": ("scroll_down", 1),
    "X": ("erase_characters", 1),
    "Z": ("back_tab", 1),
    "^": ("scroll_down", 1),
    "`": ("cursor_to_column", 1),
    "a": ("cursor_forward", 1),
    "b": ("repeat", 1),
    "d": ("cursor_to_line", 1),
    "e": ("cursor_lines_on", 1),
    "f": ("cursor_position", 2),
    "g": ("clear_tab_stop", 1),
    "h": ("set_mode", MAX_SEQUENCE),
    "l": ("reset_mode", MAX_SEQUENCE),
    "?h": ("set_private_mode", MAX_SEQUENCE),
    "?l": ("reset_private_mode", MAX_SEQUENCE),
    "r": ("set_margins", 2),
    "s": ("save_cursor", 0),
    "u": ("restore_cursor", 0),
    "!p": ("soft_reset", 0),
}


class Sequences:
    """Bytes as they come, as calls of a grid. Nothing in them can make this fail."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state: Callable[[str, int], int] = self._plain
        # What came of the sequence that is not complete.
        self._kept = ""

    def feed(self, data: bytes) -> None:
        """Carry out what these complete; half a character or sequence waits."""
        text = self._decoder.decode(data)
        at = 0
        while at < len(text):
            at = self._state(text, at)

    # Each state takes something of the text, or leaves it to the next, and returns where that is.
    def _plain(self, text: str, at: int) -> int:
        if found := _TEXT.match(text, at):
            self._grid.draw(found[0])
            return found.end()
        return self._control(text, at)

    def _control(self, text: str, at: int) -> int:
        """In the middle of a sequence, too, where it does not end that."""
        char = text[at]
        if char == "\x1b":
            self._begin(self._escape)
        elif char >= "\x80":
            # What ESC and a letter are in 7 bits (ECMA-35).
            self._begin(self._escape)
            self._escape(chr(ord(char) - 0x40), 0)
        else:
            self._grid.repeated = ()
            if char in "\x18\x1a":
                self._state = self._plain
            elif char in _CONTROLS:
                getattr(self._grid, _CONTROLS[char])()
        return at + 1

    def _begin(self, state: Callable[[str, int], int]) -> None:
        self._state, self._kept = state, ""

    def _escape(self, text: str, at: int) -> int:
        char = text[at]
        if _CONTROL.match(char):
            return self._control(text, at)
        if " " <= char <= "/":
            self._kept = (self._kept + char)[:MAX_SEQUENCE]
            return at + 1
        self._state = self._plain
        if char > "~":
            return at
        if char == "[" and not self._kept:
            # It may be REP.
            self._begin(self._csi)
            return at + 1
        self._grid.repeated = ()
        opened = self._command if char == "]" else self._string
        if char in "]PX^_" and not self._kept:
            self._begin(opened)
        elif self._kept in PLACES:
            self._grid.define_charset(char, self._kept)
        elif method := _ESCAPES.get(self._kept + char):
            getattr(self._grid, method)()
        return at + 1

    def _csi(self, text: str, at: int) -> int:
        if found := _PARAMETERS.match(text, at):
            self._kept += found[0][: MAX_SEQUENCE + 1 - len(self._kept)]
            return found.end()
        char = text[at]
        if _CONTROL.match(char):
            return self._control(text, at)
        self._state = self._plain
        if char > "~":
            return at
        found = _CSI.fullmatch(self._kept)
        if found and len(self._kept) <= MAX_SEQUENCE:
            self._carry_out(found[1] + found[3] + char, found[2])
        self._grid.repeated = ()
        return at + 1

    def _carry_out(self, name: str, parameters: str) -> None:
        if name == "m":
            self._grid.select_look(parameters)
        elif name in _FUNCTIONS:
            method, count = _FUNCTIONS[name]
            numbers = [number(one.partition(":")[0]) for one in parameters.split(";")]
            getattr(self._grid, method)(*numbers[:count])

    def _command(self, text: str, at: int) -> int:
        if found := _COMMAND.match(text, at):
            length = _PALETTE.get((self._kept or text[at])[0])
            if length:
                taken = found[0][: length - len(self._kept)]
                self._kept += taken
                if len(self._kept) == length:
                    self._state = self._plain
                return at + len(taken)
            self._kept += found[0][: MAX_TITLE - len(self._kept)]
            return found.end()
        kind, _, title = self._kept.partition(";")
        if kind in ("0", "2"):
            self._grid.set_title(title)
        return self._end(text, at)

    def _string(self, text: str, at: int) -> int:
        """What is meant for the terminal itself, and stands on no screen."""
        found = _STRING.match(text, at)
        return found.end() if found else self._end(text, at)

    def _end(self, text: str, at: int) -> int:
        """Of a string: ST, or whatever begins instead."""
        self._begin(self._escape if text[at] == "\x1b" else self._plain)
        return at + 1
