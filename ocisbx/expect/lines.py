"""Where each key and each element of a list stands in a TOML document: tomllib does not tell."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Path = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
# Up to two quotes may stand right before the three that end a long text.
_TEXT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL
)
_BARE = re.compile(r"[^,\]}#\r\n]*")


def locate(text: str) -> dict[Path, int]:
    """Path of a key or an element: its line, from 1. `text` is valid TOML (tomllib takes it)."""
    return _Scan(text).found


def line_of(found: dict[Path, int], path: Iterable[str | int]) -> int:
    """The line of the deepest part of `path` that stands in the document; 0: of none.

    What is no key there is passed over: pydantic names the kind of a step between its keys.
    """
    known: Path = ()
    line = 0
    for part in path:
        if (*known, part) in found:
            known = (*known, part)
            line = found[known]
    return line


class _Scan:
    """One walk over a document."""

    def __init__(self, text: str) -> None:
        self.found: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._line = 1
        self._tables: dict[Path, int] = {}
        """How many elements each list of tables ([[...]]) has."""
        table: Path = ()
        self._skip(_GAP)
        while self._at < len(text):
            if text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
            self._skip(_GAP)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        """What the pattern matches here, and go behind it."""
        match = pattern.match(self._text, self._at)
        piece = match[0] if match else ""
        self._at += len(piece)
        self._line += piece.count("\n")
        return piece

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip(_BLANK)
            key = self._skip(_KEY)
            keys.append(tomllib.loads(f"key = {key}")["key"] if key[:1] in "\"'" else key)
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _header(self) -> Path:
        several = self._text.startswith("[[", self._at)
        line = self._line
        self._at += 1 + several
        path: Path = ()
        *above, last = self._keys()
        self._at += 1 + several
        for key in above:
            self.found.setdefault((*path, key), line)
            path = self._inside((*path, key))
        path = (*path, last)
        if several:
            self.found.setdefault(path, line)
            self._tables[path] = self._tables.get(path, -1) + 1
            path = (*path, self._tables[path])
        self.found.setdefault(path, line)
        return path

    def _inside(self, path: Path) -> Path:
        return (*path, self._tables[path]) if path in self._tables else path

    def _pair(self, table: Path) -> None:
        path = table
        line = self._line
        for key in self._keys():
            path = (*path, key)
            self.found.setdefault(path, line)
        self._at += 1  # =
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        self.found.setdefault(path, self._line)
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            self._list(path)
        elif opening == "{":
            self._inline(path)
        elif opening in ("'", '"'):
            self._skip(_TEXT)
        else:
            self._skip(_BARE)

    def _list(self, path: Path) -> None:
        self._at += 1
        number = 0
        while True:
            self._skip(_GAP)
            if self._ends("]"):
                return
            self._value((*path, number))
            number += 1
            self._skip(_GAP)
            self._ends(",")

    def _inline(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_GAP)
            if self._ends("}"):
                return
            self._pair(path)
            self._skip(_GAP)
            self._ends(",")

    def _ends(self, mark: str) -> bool:
        if self._at >= len(self._text):
            return True
        there = self._text.startswith(mark, self._at)
        self._at += there
        return there
