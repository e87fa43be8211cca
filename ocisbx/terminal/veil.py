"""Secrets in what a terminal shows: found also where they come in pieces, overlap, or stand there
as a terminal or a program writes them."""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Span = tuple[int, int]

MASK: Final = "[secret]"
# How a screen, or readline, goes on in the next line; bounded, or a flood would be held back.
_LINE_END: Final = r"[\r\n]{1,4}"
_BREAK: Final = rf"(?: ?{_LINE_END})?"
# The longest that each character of a secret can become with a break behind it.
_SPREAD: Final = 6
# What a terminal shows as ^ and a character (ECHOCTL of termios(3)), as line editors do.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# What is written in one encoding, and read in the other; errors="replace" gives the last.
_ENCODINGS: Final = (("latin-1", "utf-8"), ("utf-8", "latin-1"))
_REPLACED: Final = "\ufffd"


class Secrets:
    """Texts of which nothing may be shown."""

    def __init__(self) -> None:
        self._patterns: dict[str, Any] = {}
        # All of them at once; of those that begin at the same place it finds the longest.
        self._any: Any = None

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def add(self, secret: str) -> None:
        """From now on this is one."""
        import regex  # noqa: PLC0415 -- finds what may go on; for who has secrets only

        new = _forms(secret) - self._patterns.keys()
        # Anew: another thread may be looking through them.
        self._patterns = self._patterns | {form: regex.compile(_broken(form)) for form in new}
        longest_first = sorted(self._patterns, key=len, reverse=True)
        self._any = regex.compile("|".join(map(_broken, longest_first)))

    def find(self, text: str) -> list[Span]:
        """Where they stand in it, also one in another."""
        if self._any is None:
            return []
        return [match.span() for match in self._any.finditer(text, overlapped=True)]

    def unfinished(self, text: str) -> int:
        """The first place at which one begins that goes on beyond the text; else its length."""
        return min(
            (at for form in self._patterns for at in self._begun(form, text)), default=len(text)
        )

    def _begun(self, form: str, text: str) -> Iterator[int]:
        pattern = self._patterns[form]
        # Blanks may be missing at the beginning of a line.
        firsts = " \r\n" if form[0] == " " else form[0]
        for at in range(max(0, len(text) - _SPREAD * len(form)), len(text)):
            if text[at] in firsts:
                match = pattern.fullmatch(text, at, partial=True)
                if match is not None and match.partial:
                    yield at
                    return


def united(spans: Iterable[Span]) -> list[Span]:
    """In their order, those that overlap as one."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _forms(secret: str) -> set[str]:
    """The secret, and what becomes of it: composed, decomposed, its control characters as ^A, in
    another encoding than the reader's. What is all replaced then tells nothing."""
    written = {secret, *(unicodedata.normalize(form, secret) for form in ("NFC", "NFD"))}
    written |= {_CONTROL.sub(_caret, text) for text in written}
    forms = set(written)
    for text in written:
        for theirs, ours in _ENCODINGS:
            with suppress(UnicodeEncodeError):
                read = text.encode(theirs).decode(ours, errors="replace")
                if read.strip(_REPLACED):
                    forms.add(read)
    return forms


def _caret(control: re.Match[str]) -> str:
    return "^" + chr(ord(control[0]) ^ 0x40)


def _broken(secret: str) -> str:
    """What finds it also where a terminal broke the line in the middle."""
    if secret.isspace():
        return re.escape(secret)
    found = ""
    parts = re.findall(r" +|[^ ]+", secret)
    for number, part in enumerate(parts):
        if part[0] != " ":
            found += _BREAK.join(map(re.escape, part))
            continue
        # At the end of a line, and at the beginning of the next, blanks may be missing.
        few = f" {{0,{len(part)}}}"
        # What may go on after its last character would never be known to be over.
        is_last = number == len(parts) - 1
        broken = rf"{few}[\r\n]" if is_last else f"{few}{_LINE_END}{few}"
        found += f"(?: {{{len(part)}}}|{broken})"
    return found


class Veil:
    """Passes a text on as it comes, with MASK in the place of secrets. What may be the beginning of
    one is held back until it is known."""

    def __init__(self) -> None:
        self._secrets = Secrets()
        self._held = ""
        # So much of what is held belongs to a secret in whose place MASK was passed on.
        self._covered = 0

    def add(self, secret: str) -> None:
        """From now on this is a secret."""
        self._secrets.add(secret)

    def pass_on(self, text: str) -> str:
        """What can be shown by now."""
        if not self._secrets:
            return text
        whole = self._held + text
        return self._show(whole, self._secrets.unfinished(whole))

    def rest(self) -> str:
        """What was held back, at the end."""
        return self._show(self._held, len(self._held))

    def _show(self, whole: str, end: int) -> str:
        """What comes before `end`; the rest is held back."""
        spans = [span for span in self._secrets.find(whole) if span[0] < end]
        if self._covered:
            spans.append((0, self._covered))
        shown, done = "", 0
        for start, stop in united(spans):
            goes_on = start == 0 and self._covered
            shown += whole[done:start] + ("" if goes_on else MASK)
            done = stop
        shown += whole[done:end]
        self._held, self._covered = whole[end:], max(0, done - end)
        return shown
