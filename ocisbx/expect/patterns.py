"""Patterns: Python's `re` syntax, searched by PyPI's `regex`, which bounds the time of a search.

`re` cannot be interrupted: `(\\w|\\w\\w)+\\d$` on thirty letters takes it minutes, and the letters
are the payload's to choose. What `regex` alone understands is refused or escaped, so that a pattern
means what Python's manual says.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import regex

from ocisbx.errors import ConfigError
from ocisbx.values import show

# Of processor time, for each MiB that is searched: regex takes microseconds for a prompt.
SEARCH_LIMIT_S = 1.0
MEBIBYTE = 1 << 20
MAX_PATTERN = 1 << 16
# regex writes repetitions out: a{1000000000} would take all memory before anything is searched.
MAX_STEPS = 100_000
SYNTAX_REMEDY = "patterns are those of Python's re module; expect_exact takes plain text"
_OPERATION = re.compile(r"--|&&|~~|\|\|")
_REPEAT = re.compile(r"\{(?:(\d{1,10})(?:,(\d{0,10}))?|,(\d{1,10}))\}")
# re's flags by regex's names: their numbers differ.
_FLAGS = {
    re.ASCII: regex.ASCII,
    re.IGNORECASE: regex.IGNORECASE,
    re.MULTILINE: regex.MULTILINE,
    re.DOTALL: regex.DOTALL,
    re.VERBOSE: regex.VERBOSE,
}


class PatternError(ConfigError):
    """A pattern does not compile, or its search takes too long; `pattern` stands in `what`."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        remedy: str = "",
        exit_code: int | None = None,
        pattern: str | bytes = "",
    ) -> None:
        super().__init__(what, why=why, remedy=remedy, exit_code=exit_code)
        self.pattern = pattern


class Pattern:
    """A compiled pattern with the members that pexpect's searcher asks for.

    `pattern` is the text or the bytes as given, `groups` the number of captures, `groupindex` their
    names.
    """

    __slots__ = ("_search", "groupindex", "groups", "pattern")

    def __init__(self, text: str | bytes, compiled: re.Pattern[Any], inner: Any) -> None:  # noqa: ANN401 -- untyped
        self.pattern = text
        self.groups = compiled.groups
        self.groupindex = dict(compiled.groupindex)
        self._search = inner.search

    def search(self, text: Any, position: int = 0) -> re.Match[Any] | None:  # noqa: ANN401 -- both
        """The first match from `position` on. Raises PatternError: it takes too long."""
        match: re.Match[Any] | None
        try:
            # On the way from a prompt to its match: nothing is looked up that need not be.
            match = self._search(text, position, timeout=_limit_s(text))
        except TimeoutError:
            raise self._too_slow(text) from None
        return match

    def may_begin(self, text: Any, position: int) -> int:  # noqa: ANN401 -- str or bytes
        """Where in `text`, which holds no match, the earliest match that more text makes begins."""
        try:
            match = self._search(text, position, partial=True, timeout=_limit_s(text))
        except TimeoutError:
            raise self._too_slow(text) from None
        return len(text) if match is None else match.start()

    def _too_slow(self, text: Any) -> PatternError:  # noqa: ANN401 -- str or bytes
        return PatternError(
            f"the pattern {show(self.pattern)} took over {_limit_s(text):g} s",
            why=f"it was searched for in {len(text)} characters of output",
            remedy="it backtracks: let no two parts of it match the same text, as in (a+)+ or "
            "(\\w|\\w\\w)+",
            pattern=self.pattern,
        )


def _limit_s(text: Any) -> float:  # noqa: ANN401 -- str or bytes
    return SEARCH_LIMIT_S * (1 + len(text) // MEBIBYTE)


@lru_cache(maxsize=512)
def compile_pattern(text: str | bytes, flags: int = re.DOTALL) -> Pattern:
    """A pattern; `flags` are re's. DOTALL is pexpect's habit.

    Raises:
        PatternError: it does not compile, or is too large.
    """
    if len(text) > MAX_PATTERN:
        raise _refused(text, f"it has {len(text)} characters, more than {MAX_PATTERN}")
    form = _scan(text.decode("latin-1") if isinstance(text, bytes) else text, flags)
    if form.steps > MAX_STEPS:
        why = f"its repetitions come to {form.steps} steps; at most {MAX_STEPS}"
        raise _refused(text, why, "use + or * where the number does not matter")
    if form.operation:
        why = f"{form.operation} in a class may come to mean a set's operation"
        raise _refused(text, why, f"write \\{form.operation[0]} for the character")
    try:
        source = form.text.encode("latin-1") if isinstance(text, bytes) else form.text
        compiled = re.compile(source, flags)
        known = sum(ours for theirs, ours in _FLAGS.items() if compiled.flags & theirs)
        return Pattern(text, compiled, regex.compile(source, known | regex.VERSION0))
    except (re.error, regex.error) as error:
        raise _refused(text, str(error)) from None
    except (RecursionError, OverflowError, MemoryError):
        raise _refused(text, "it is nested too deeply, or too large") from None


def as_pattern(given: Any, flags: int = re.DOTALL, *, text: bool = True) -> Pattern:  # noqa: ANN401 -- as pexpect's
    """A pattern of a text, of bytes, or of a compiled one, for a `text` or for bytes.

    `flags` are for what is not compiled. Raises ConfigError.
    """
    if isinstance(given, Pattern):
        return given
    if isinstance(given, re.Pattern):
        given, flags = given.pattern, given.flags & ~re.UNICODE
    if text and isinstance(given, bytes):
        given = given.decode()
    elif not text and isinstance(given, str):
        given = given.encode()
    return compile_pattern(given, flags)


def _refused(text: str | bytes, why: str, remedy: str = SYNTAX_REMEDY) -> PatternError:
    what = f"{show(text)} is not a pattern"
    return PatternError(what, why=why, remedy=remedy, pattern=text)


class _Form(NamedTuple):
    """`text`: what regex reads as re reads the original; `steps`: its size with repetitions;
    `operation`: what re warns of in a class."""

    text: str
    steps: int
    operation: str


def _scan(text: str, flags: int) -> _Form:
    """Walk once over a pattern, which need not be a valid one.

    `{` that is no repetition is plain to re, and a fuzzy match to regex; `[` inside a class is
    plain to re, and may begin a POSIX class to regex.
    """
    out: list[str] = []
    operation = ""
    # Steps of each open group so far, and of the item before, which a repetition multiplies.
    groups, last = [0], 0
    at, length = 0, len(text)
    while at < length:
        character, begin = text[at], at
        repeat = _REPEAT.match(text, at) if character == "{" else None
        if repeat is not None:
            counts = [int(count) for count in repeat.groups() if count]
            groups[-1] += last * max(0, max(counts) - 1)
            last *= max(counts)
            at = repeat.end()
            out.append(text[begin:at])
            continue
        piece, at = _piece(text, at, flags)
        out.append(piece)
        if character == "[" and (doubled := _OPERATION.search(piece)):
            operation = doubled[0]
        if character == "(":
            groups.append(0)
        elif character == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif character not in "*+?|)":
            last = 1
            groups[-1] += 1
    return _Form("".join(out), sum(groups), operation)


def _piece(text: str, at: int, flags: int) -> tuple[str, int]:
    """One item of a pattern as regex needs it, and where the next begins."""
    character = text[at]
    if character == "\\":
        return text[at : at + 2], at + 2
    if character == "[":
        return _class(text, at)
    if character == "#" and flags & re.VERBOSE:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        return text[at:end], end
    if text.startswith("(?#", at):
        end = text.find(")", at)
        end = len(text) if end < 0 else end
        return text[at:end], end
    return ("\\{" if character == "{" else character), at + 1


def _class(text: str, at: int) -> tuple[str, int]:
    """A class, `[` to `]`, with every `[` inside escaped."""
    out, at = ["["], at + 1
    if text.startswith("^", at):
        out.append("^")
        at += 1
    first = True
    while at < len(text) and (first or text[at] != "]"):
        size = 2 if text[at] == "\\" else 1
        piece = text[at : at + size]
        out.append({"[": "\\[", "]": "\\]"}.get(piece, piece))
        at, first = at + size, False
    return "".join([*out, text[at : at + 1]]), at + 1
