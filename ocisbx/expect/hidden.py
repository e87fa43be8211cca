"""Secrets of a script: where they come from, and that nothing which a program printed shows one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ocisbx.documents import read_file
from ocisbx.errors import ConfigError
from ocisbx.expect.template import check_line
from ocisbx.terminal.veil import MASK, Secrets, united

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ocisbx.expect.script import Script
    from ocisbx.expect.template import Filled

# A line of a terminal in canonical mode, with its end (N_TTY_BUF_SIZE).
MAX_BYTES = 4095
# What of a text can belong to a secret that ends after it, or begins before.
CONTEXT = 4 * MAX_BYTES


class Hidden:
    """Texts that were typed as secrets; what a program printed is shown with MASK in their place.

    What the script's author wrote is shown as it is: a secret of one letter would make its messages
    unreadable, and tell the letter.
    """

    def __init__(self, also: Callable[[str], None] = lambda _: None) -> None:
        """`also` is told each of them."""
        self._also = also
        self._secrets = Secrets()

    def add(self, text: str | bytes) -> None:
        """From now on `text` is masked; the end of a line is no part of it."""
        if stripped := _readable(text).strip("\r\n"):
            self._secrets.add(stripped)
            self._also(stripped)

    def stands_in(self, text: str | bytes) -> bool:
        """Whether any of them does."""
        return bool(self._secrets.find(_readable(text)))

    def mask(self, text: str) -> str:
        """`text` without secrets, also where a terminal broke the line in the middle of one."""
        return _without(text, united(self._secrets.find(text)), 0, len(text))

    def mask_parts(self, whole: str, spans: Iterable[tuple[int, int]]) -> list[str]:
        """These parts of `whole`; of a secret that a part cuts through nothing is shown either."""
        found = united(self._secrets.find(whole))
        return [_without(whole, found, begin, end) for begin, end in spans]

    def mask_filled(self, pieces: Iterable[Filled]) -> str:
        """The pieces as one text, without the secrets of which any part came from the program."""
        text, foreign = "", []
        for piece in pieces:
            begin, text = len(text), text + piece.text
            if piece.foreign:
                foreign.append((begin, len(text)))
        found = [
            (start, stop)
            for start, stop in self._secrets.find(text)
            if any(start < end and begin < stop for begin, end in foreign)
        ]
        return _without(text, united(found), 0, len(text))

    def tail(self, text: str, count: int) -> str:
        """The last `count` characters, masked before they are cut."""
        masked = self.mask(text[-count - CONTEXT :])
        is_cut = len(text) > count + CONTEXT or len(masked) > count
        return "..." + masked[-count:] if is_cut else masked


def _readable(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def _without(whole: str, found: Iterable[tuple[int, int]], begin: int, end: int) -> str:
    shown, done = "", begin
    for start, stop in found:
        if start < end and begin < stop:
            shown, done = shown + whole[done : max(done, start)] + MASK, stop
    return shown + whole[done:end]


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
