"""Keys by which a person leaves a program's terminal and the program goes on: docker's."""

from __future__ import annotations

from ocisbx.terminal.device import control_key
from ocisbx.values import refusal

DEFAULT_KEYS = "ctrl-p,ctrl-q"
# Besides letters.
CONTROLS = "@[\\]^_"


class DetachKeys:
    """Looks for them among what is typed. A key that may begin them is held back until the next
    one tells; what is a part of them is never typed."""

    def __init__(self, text: str = DEFAULT_KEYS) -> None:
        """Raises ConfigError: that is no list of keys."""
        self.text = text
        self._keys = parse_keys(text)
        self._held = b""

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """What of it, and of what was held back, is for the program; and whether the keys came."""
        typed = bytearray()
        for byte in data:
            self._held += bytes([byte])
            while not self._keys.startswith(self._held):
                typed.append(self._held[0])
                self._held = self._held[1:]
            if self._held == self._keys:
                self._held = b""
                return bytes(typed), True
        return bytes(typed), False


def parse_keys(text: str) -> bytes:
    """The bytes that `ctrl-p,ctrl-q`, or `a,b`, stand for.

    Raises:
        ConfigError: it is no list of keys.
    """
    # A comma is a key of its own, and with Ctrl none that a terminal knows.
    words = [","] if text == "," else text.split(",")
    return b"".join(_parse_key(word, text) for word in words)


def _parse_key(word: str, text: str) -> bytes:
    if len(word) == 1 and word.isascii() and word.isprintable():
        return word.encode()
    prefix, name = word[:5].lower(), word[5:]
    is_key = name.isascii() and (name.isalpha() or name in CONTROLS)
    if prefix == "ctrl-" and len(name) == 1 and is_key:
        return control_key(name)
    raise refusal(
        text,
        "a list of keys",
        "expected a character, or ctrl- and one of a-z @ [ \\ ] ^ _, with commas between",
        remedy="--detach-keys ctrl-p,ctrl-q",
    )
