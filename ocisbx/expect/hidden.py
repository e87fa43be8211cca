"""Secrets of a script: where they come from, and that no text of ours shows one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ocisbx.documents import read_file
from ocisbx.errors import ConfigError
from ocisbx.expect.template import check_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.expect.script import Script

# A line of a terminal in canonical mode, with its end (N_TTY_BUF_SIZE).
MAX_BYTES = 4095
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


def load_secrets(script: Script, environment: Mapping[str, str]) -> dict[str, str]:
    """The secrets of a script, from the caller's variables and files.

    Raises:
        ConfigError: one is missing, empty, too long, or holds a control character.
    """
    found: dict[str, str] = {}
    for name, source in script.secrets.items():
        if source.env is not None:
            text = environment.get(source.env)
            if text is None:
                what = f"secrets.{name}: the variable {source.env} is not set"
                raise ConfigError(what, remedy=f"export {source.env}, or name a file instead")
        else:
            text = read_file(Path(source.file or "")).removesuffix("\n").removesuffix("\r")
        if not text or len(text.encode(errors="replace")) > MAX_BYTES:
            why = "it is empty" if not text else f"it is longer than {MAX_BYTES} bytes"
            raise ConfigError(f"secrets.{name} cannot be typed", why=why)
        try:
            check_line(text)
        except ConfigError:
            why = "it holds a control character"
            raise ConfigError(f"secrets.{name} cannot be typed", why=why) from None
        found[name] = text
    return found
