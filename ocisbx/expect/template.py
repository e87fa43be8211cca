"""Text to type, with `${1}`, `${name}`, `${secret:NAME}` and `${param:NAME}` filled in once: what
is filled in is never read as a template, so that a program cannot ask for a secret by printing
`${secret:NAME}`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from ocisbx.errors import ConfigError
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_FIELD = re.compile(r"\$(?:(\$)|\{([^{}]*)\})?")
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
_PARAM = re.compile(rf"\$\{{param:({_NAME})\}}")
EXPECTED = (
    "expected ${1}, ${NAME} of a capture, ${secret:NAME}, ${param:NAME}, or $$ for the character"
)


class Field(NamedTuple):
    """What is filled in: the capture called (or numbered) `name`, the secret, or the parameter."""

    name: str
    kind: Literal["capture", "secret", "param"]


class Filled(NamedTuple):
    """A piece of a text that was filled in."""

    text: str
    foreign: bool
    """Whether it came from the program, and not from who wrote the script or started it."""


class Template:
    """A parsed text."""

    def __init__(self, parts: tuple[str | Field, ...]) -> None:
        self.parts = parts

    @property
    def captures(self) -> tuple[str, ...]:
        """Names and numbers of the captures that it asks for."""
        return self._named("capture")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the secrets that it asks for."""
        return self._named("secret")

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the parameters that it asks for."""
        return self._named("param")

    def _named(self, kind: str) -> tuple[str, ...]:
        return tuple(p.name for p in self.parts if isinstance(p, Field) and p.kind == kind)

    def fill(
        self,
        capture: Callable[[str], str],
        secrets: Mapping[str, str],
        params: Mapping[str, str],
        *,
        typed: bool = True,
    ) -> list[Filled]:
        """The text, in pieces; `typed`: it is to be typed.

        Raises:
            ConfigError: a capture that is typed holds a control character, which would be a key
                that the program presses itself; or there is no such capture (`capture` raises
                it), secret or parameter.
        """
        pieces = []
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(Filled(part, foreign=False))
            elif part.kind == "capture":
                text = _captured(part.name, capture) if typed else capture(part.name)
                pieces.append(Filled(text, foreign=True))
            else:
                text = _given(part, secrets if part.kind == "secret" else params)
                pieces.append(Filled(text, foreign=False))
        return pieces


def joined(pieces: Iterable[Filled]) -> str:
    """The whole text."""
    return "".join(piece.text for piece in pieces)


def params_in(word: str) -> list[str]:
    """Names of the parameters that a word of a command asks for."""
    return _PARAM.findall(word)


def fill_word(word: str, params: Mapping[str, str]) -> str:
    """A word of a command, where every other `$` is the command's own."""
    return _PARAM.sub(lambda match: params[match[1]], word)


def _given(field: Field, texts: Mapping[str, str]) -> str:
    if field.name not in texts:
        noun = "secret" if field.kind == "secret" else "parameter"
        raise ConfigError(f"there is no {noun} called {show(field.name)}")
    return texts[field.name]


def _captured(name: str, capture: Callable[[str], str]) -> str:
    text = capture(name)
    found = next((character for character in text if _is_control(character)), None)
    if found is not None:
        # Not the text, which may hold what is secret.
        raise ConfigError(
            f"the capture ${{{name}}} holds a control character, {found!r}",
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
        if given := re.fullmatch(rf"(secret|param):({_NAME})", inside):
            return Field(given[2], "secret" if given[1] == "secret" else "param")
        if re.fullmatch(rf"{_NAME}|[0-9]{{1,2}}", inside):
            return Field(inside, "capture")
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
