"""Secrets in what a terminal shows: found also where they come in pieces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK: Final = "[secret]"
# How a screen, or readline, goes on in the next line; bounded, or a flood would be held back.
_LINE_END: Final = r"[\r\n]{1,4}"
_BREAK: Final = rf"(?: ?{_LINE_END})?"
# The longest that each character of a secret can become with a break behind it.
_SPREAD: Final = 6


def pattern_of(secrets: Iterable[str]) -> str:
    """What finds any of them, also where a terminal broke the line in the middle of one."""
    # The longest first: one may be the beginning of another. All at once: of MASK, too.
    return "|".join(map(_broken, sorted(secrets, key=len, reverse=True)))


def _broken(secret: str) -> str:
    if secret.isspace():
        return re.escape(secret)
    found = ""
    for part in re.findall(r" +|[^ ]+", secret):
        if part[0] == " ":
            # At the end of a line, and at the beginning of the next, blanks may be missing.
            few = f" {{0,{len(part)}}}"
            found += f"(?: {{{len(part)}}}|{few}{_LINE_END}{few})"
        else:
            found += _BREAK.join(map(re.escape, part))
    return found


class Veil:
    """Passes a text on as it comes, with MASK in the place of secrets. What may be the beginning of
    one is held back until it is known."""

    def __init__(self) -> None:
        self._each: dict[str, Any] = {}
        self._any: Any = None
        self._held = ""

    def add(self, secret: str) -> None:
        """From now on this is a secret."""
        import regex  # noqa: PLC0415 -- finds what may go on; for who has secrets only

        self._each[secret] = regex.compile(_broken(secret))
        self._any = regex.compile(pattern_of(self._each))

    def pass_on(self, text: str) -> str:
        """What can be shown by now."""
        if self._any is None:
            return text
        whole, shown, done = self._held + text, "", 0
        while True:
            match = self._any.search(whole, done)
            begin = self._unfinished(whole, done, match.start() if match else len(whole) - 1)
            if begin is not None or match is None:
                break
            shown, done = shown + whole[done : match.start()] + MASK, match.end()
        begin = len(whole) if begin is None else begin
        self._held = whole[begin:]
        return shown + whole[done:begin]

    def _unfinished(self, whole: str, first: int, last: int) -> int | None:
        """Where, of these places, the first begins at which a secret may go on beyond the text."""
        found = []
        for secret, pattern in self._each.items():
            at = whole.find(secret[0], max(first, len(whole) - _SPREAD * len(secret)), last + 1)
            while at >= 0:
                match = pattern.fullmatch(whole, at, partial=True)
                if match is not None and match.partial:
                    found.append(at)
                    break
                at = whole.find(secret[0], at + 1, last + 1)
        return min(found, default=None)

    def rest(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return held if self._any is None else self._any.sub(MASK, held)
