"""Secrets in what a terminal shows: found also where they come in pieces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK: Final = "[secret]"
# How a screen, or readline, goes on in the next line; bounded, or a flood would be held back.
_BREAK: Final = r"(?: ?[\r\n]{1,4})?"
# At the end of a line a blank may be missing.
_BLANK: Final = r"(?: |(?=[\r\n]))"


def pattern_of(secrets: Iterable[str]) -> str:
    """What finds any of them, also where a terminal broke the line in the middle of one."""
    # The longest first: one may be the beginning of another. All at once: of MASK, too.
    return "|".join(map(_broken, sorted(secrets, key=len, reverse=True)))


def _broken(secret: str) -> str:
    blank = " " if secret.isspace() else _BLANK
    return _BREAK.join(blank if char == " " else re.escape(char) for char in secret)


class Veil:
    """Passes a text on as it comes, with MASK in the place of secrets. What may be the beginning of
    one is held back until it is known."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()
        self._any: Any = None
        self._held = ""

    def add(self, secret: str) -> None:
        """From now on this is a secret."""
        import regex  # noqa: PLC0415 -- finds what may go on; for who has secrets only

        self._secrets.add(secret)
        self._any = regex.compile(pattern_of(self._secrets))

    def pass_on(self, text: str) -> str:
        """What can be shown by now."""
        if self._any is None:
            return text
        whole, self._held = self._held + text, ""
        shown, done = "", 0
        for match in self._any.finditer(whole, partial=True):
            if match.partial or (match.end() == len(whole) and self._goes_on(match[0])):
                self._held = whole[match.start() :]
                return shown + whole[done : match.start()]
            shown, done = shown + whole[done : match.start()] + MASK, match.end()
        return shown + whole[done:]

    def _goes_on(self, found: str) -> bool:
        """Whether a longer one begins with this."""
        bare = re.sub(r"[\r\n]", "", found)
        return any(len(one) > len(bare) and one.startswith(bare) for one in self._secrets)

    def rest(self) -> str:
        """What was held back, at the end: no secret."""
        held, self._held = self._held, ""
        return held if self._any is None else self._any.sub(MASK, held)
