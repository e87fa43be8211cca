"""What is looked for: by its name in an error, with secrets masked, and on a screen."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pexpect import EOF, TIMEOUT

from ocisbx.errors import ConfigError, ExpectEOF, ExpectTimeout
from ocisbx.expect.patterns import Pattern, PatternError, as_pattern
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.errors import TerminalError
    from ocisbx.expect.face import Face
    from ocisbx.expect.hidden import Hidden

SHOWN_CHARACTERS = 200


def several(patterns: Any) -> list[Any]:  # noqa: ANN401 -- one or several
    """All of them."""
    return list(patterns) if isinstance(patterns, (list, tuple)) else [patterns]


class OnScreen:
    """Patterns that are looked for on a screen."""

    def __init__(self, patterns: Any) -> None:  # noqa: ANN401 -- one or several
        """Raises ConfigError: one does not compile."""
        self._given = several(patterns)
        self._compiled = [
            (index, as_pattern(given))
            for index, given in enumerate(self._given)
            if given not in (EOF, TIMEOUT)
        ]
        self.match: Any = None
        """The last match, EOF or TIMEOUT; None: there is none."""

    def find(self, text: str) -> int | None:
        """The index of the first in the list that is there."""
        for index, pattern in self._compiled:
            self.match = pattern.search(text)
            if self.match is not None:
                return index
        return None

    def over(self, error: EOF | TIMEOUT) -> int:
        """The index of the end, or of the time, where one of the patterns is that."""
        kind = type(error)
        if kind not in self._given:
            raise error
        self.match = kind
        return self._given.index(kind)


def as_ours(
    error: EOF | TIMEOUT, face: Face, wanted: object, timeout_s: float | None, ending: str
) -> TerminalError:
    """pexpect's two exceptions as ours, with what came instead; `ending`: how the program ended."""
    name, came = _name(wanted, face.typed), _came(face.spawn.before, face.hidden)
    if isinstance(error, TIMEOUT):
        return ExpectTimeout(
            f"{name} did not appear in {round(timeout_s or 0.0, 2):g} s",
            why=came,
            remedy="give it more time (timeout_s), or look at `before` for what came instead",
        )
    return ExpectEOF(
        f"the output ended before {name} appeared", why=", ".join(filter(None, [ending, came]))
    )


@contextmanager
def without_secrets(hidden: Hidden) -> Iterator[None]:
    """What goes wrong with a pattern is told without the secrets that it holds."""
    try:
        yield
    except PatternError as error:
        what = error.what.replace(show(error.pattern), _shown(error.pattern, hidden))
        raise ConfigError(what, why=hidden.mask(error.why), remedy=error.remedy) from None


def _name(wanted: object, hidden: Hidden) -> str:
    names = [
        item.__name__ if isinstance(item, type) else _shown(item, hidden)
        for item in several(wanted)
    ]
    return " or ".join(names) or "anything"


def _shown(item: object, hidden: Hidden) -> str:
    """A text or a pattern; one that was typed as a secret stands in it masked, escaped or not."""
    given = item.pattern if isinstance(item, (Pattern, re.Pattern)) else item
    if not isinstance(given, (str, bytes)):
        return show(given)
    text = given if isinstance(given, str) else given.decode(errors="replace")
    masked = hidden.mask(text)
    # What is left may hold others that are escaped.
    plain = re.sub(r"\\(\W)", r"\1", masked)
    if hidden.stands_in(plain):
        return show(hidden.mask(plain))
    return show(given if masked == text else masked)


def _came(before: Any, hidden: Hidden) -> str:  # noqa: ANN401 -- str or bytes
    text = before if isinstance(before, str) else (before or b"").decode(errors="replace")
    if not text:
        return "there was no output"
    return f"the output ends with {hidden.tail(text, SHOWN_CHARACTERS)!r}"
