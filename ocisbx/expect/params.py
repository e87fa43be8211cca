"""Parameters of a script: what who runs it may say, and is no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.errors import ConfigError
from ocisbx.expect.template import check_line, fill_word
from ocisbx.values import check_text, did_you_mean, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ocisbx.expect.script import Script


def parse_params(texts: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE, the last for each name. Raises ConfigError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{show(text)} is no parameter", why="expected NAME=VALUE")
        found[name] = value
    return found


def load_params(script: Script, given: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a script: what was given, else their defaults.

    Raises:
        ConfigError: one is missing, the script has none of that name, or a value holds a control
            character.
    """
    for name, value in given.items():
        if name not in script.params:
            hint = did_you_mean(name, script.params)
            why = f"its [params] are {', '.join(script.params)}" if script.params else ""
            what = f"the script has no parameter {show(name)}{hint}"
            raise ConfigError(what, why=why or "it has no [params]")
        try:
            check_line(check_text(value))
        except ConfigError as error:
            raise ConfigError(f"params.{name}: {error.what}", why=error.why) from None
    found = {}
    for name, param in script.params.items():
        text = given.get(name, param.default)
        if text is None:
            what = f"the parameter {name} was not given, and has no default"
            raise ConfigError(what, remedy=f"--param {name}=VALUE")
        found[name] = text
    return found


def command_of(script: Script, params: Mapping[str, str]) -> list[str]:
    """The script's command with its parameters, which `load_params` gave."""
    return [fill_word(word, params) for word in script.command]
