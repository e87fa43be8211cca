"""Text to type, with `${1}`, `${name}` and `${secret:NAME}` filled in once: what is filled in is
never read as a template, so that a program cannot ask for a secret by printing `${secret:NAME}`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.errors import ConfigError
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FIELD = re.compile(r"\$(?:(\$)|\{([^{}]*)\})?")
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
EXPECTED = "expected ${1}, ${NAME} of a capture, ${secret:NAME}, or $$ for the character"


class Field(NamedTuple):
    """What is filled in: the capture called (or numbered) `name`, or the secret."""

    name: str
    secret: bool


class Template:
    """A parsed text."""

    def __init__(self, parts: tuple[str | Field, ...]) -> None:
        self.parts = parts

    @property
    def captures(self) -> tuple[str, ...]:
        """Names and numbers of the captures that it asks for."""
        return tuple(p.name for p in self.parts if isinstance(p, Field) and not p.secret)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the secrets that it asks for."""
        return tuple(p.name for p in self.parts if isinstance(p, Field) and p.secret)

    def fill(self, capture: Callable[[str], str], secrets: Mapping[str, str]) -> str:
        """The text to type.

        Raises:
            ConfigError: a capture holds a control character, which would be a key that the program
                presses itself; or there is no such capture or secret (`capture` raises it).
        """
        return "".join(
            part if isinstance(part, str) else _filled(part, capture, secrets)
            for part in self.parts
        )


def _filled(field: Field, capture: Callable[[str], str], secrets: Mapping[str, str]) -> str:
    if field.secret:
        if field.name not in secrets:
            raise ConfigError(f"there is no secret called {show(field.name)}")
        return secrets[field.name]
    text = capture(field.name)
    found = next((character for character in text if _is_control(character)), None)
    if found is not None:
        # Not the text, which may hold what is secret.
        raise ConfigError(
            f"the capture ${{{field.name}}} holds a control character, {found!r}",
            why="typed, it would be a key that the program presses by itself",
            remedy="let the group capture less, as in (\\w+)",
        )
    return text


@lru_cache(maxsize=512)
def parse_template(text: str) -> Template:
    """Raises ConfigError for a `$` that is none of EXPECTED."""
    parts: list[str | Field] = []
    end = 0
    for match in _FIELD.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        parts.append("$" if match[1] else _field(text, match[2]))
    parts.append(text[end:])
    return Template(tuple(part for part in parts if part))


def _field(text: str, inside: str | None) -> Field:
    if inside is not None:
        if secret := re.fullmatch(rf"secret:({_NAME})", inside):
            return Field(secret[1], secret=True)
        if re.fullmatch(rf"{_NAME}|[0-9]{{1,2}}", inside):
            return Field(inside, secret=False)
    raise ConfigError(f"{show(text)}: {EXPECTED}")


def check_line(text: str) -> str:
    """A line to type: Enter is added, and no other key may stand in it. Raises ConfigError."""
    found = next((character for character in text if _is_control(character)), None)
    if found is not None:
        raise ConfigError(
            f"{show(text)} holds a control character, {found!r}",
            why="a line is typed as it stands, and Enter after it",
            remedy="a step of its own presses it: sendcontrol, or send for a sequence of keys",
        )
    return text


def _is_control(character: str) -> bool:
    """A character that steers the line discipline or a program's editor; a tab is text."""
    return character != "\t" and (character < " " or "\x7f" <= character <= "\x9f")
