"""Secrets of a script: where they come from, and that no text of ours shows one."""

from __future__ import annotations

import re

MASK = "[secret]"
# How a screen, or readline, goes on in the next line.
BREAK = r"(?: ?[\r\n]+)?"


class Hidden:
    """Texts that were typed as secrets; what is shown has MASK in their place."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def add(self, text: str) -> None:
        """From now on `text` is masked; the end of a line is no part of it."""
        if stripped := text.strip("\r\n"):
            self._texts.add(stripped)

    def mask(self, text: str) -> str:
        """`text` without secrets, also where a terminal broke the line in the middle of one."""
        # The longest first: one may be part of another.
        for secret in sorted(self._texts, key=len, reverse=True):
            text = re.sub(BREAK.join(map(re.escape, secret)), MASK, text)
        return text

    def tail(self, text: str, count: int) -> str:
        """The last `count` characters, masked before they are cut."""
        masked = self.mask(text)
        return masked if len(masked) <= count else "..." + masked[-count:]
