"""A parser of options, driven by tables: argparse alone costs 12 ms of every start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ocisbx.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Option(NamedTuple):
    """One option: `kind` flag (True), one (the last value stands) or many (a list of values)."""

    names: tuple[str, ...]
    kind: Literal["flag", "one", "many"]
    metavar: str
    help: str

    @property
    def key(self) -> str:
        """The long name without dashes: what `parse` files the value under."""
        return self.names[-1].lstrip("-")


class Syntax(NamedTuple):
    """A verb's command line. `command`: everything from the first word that is no option, or
    after `--`, belongs to the payload; else options may stand anywhere. `page`: the help as it is
    shown, where one line for each option would not fit a screen."""

    usage: str
    about: str
    options: tuple[Option, ...]
    examples: tuple[str, ...] = ()
    command: bool = False
    page: str = ""


HELP = Option(("-h", "--help"), "flag", "", "show this help")
JSON = Option(("--json",), "flag", "", "print JSON and nothing else")


class Parsed(NamedTuple):
    """Options as typed (keys of those that were given only), and the other words."""

    options: dict[str, Any]
    words: list[str]


def parse(syntax: Syntax, arguments: Sequence[str]) -> Parsed:
    """Sort a command line by `syntax`.

    Raises:
        ConfigError: an unknown option, or a value that is missing or not taken.
    """
    known = {name: option for option in (*syntax.options, HELP) for name in option.names}
    found: dict[str, Any] = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if not word.startswith("-") or word == "-":
            words.append(word)
            if syntax.command:
                words += rest
                break
            continue
        _take(syntax, known, word, rest, found)
    return Parsed(found, words)


def _take(
    syntax: Syntax,
    known: Mapping[str, Option],
    word: str,
    rest: list[str],
    found: dict[str, Any],
) -> None:
    """Take one option off the command line, with its value where it has one."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        attached = value if equals else None
    else:
        name, attached = word[:2], word[2:] or None
    option = known.get(name)
    if option is None:
        raise _unknown(syntax, known, name)
    if option.kind == "flag":
        if attached is not None and word.startswith("--"):
            raise ConfigError(f"option {name} takes no value", remedy=_see(syntax))
        found[option.key] = True
        if attached is not None:
            # -it is -i -t.
            rest.insert(0, f"-{attached}")
        return
    if attached is None:
        if not rest:
            raise ConfigError(f"option {name} needs a value: {option.metavar}", remedy=_see(syntax))
        attached = rest.pop(0)
    if option.kind == "many":
        found.setdefault(option.key, []).append(attached)
    else:
        found[option.key] = attached


def _unknown(syntax: Syntax, known: Mapping[str, Option], name: str) -> ConfigError:
    from ocisbx.values import did_you_mean, show  # noqa: PLC0415 -- for a refusal only

    near = did_you_mean(name, known)
    remedy = _see(syntax)
    if syntax.command:
        remedy += "; options of the command itself come after --"
    return ConfigError(f"unknown option {show(name)}{near}", remedy=remedy)


def _see(syntax: Syntax) -> str:
    verb = syntax.usage.split(" [")[0]
    return f"{verb} --help"


def render_help(syntax: Syntax) -> str:
    """A help text that fits a screen."""
    if syntax.page:
        return syntax.page
    rows = [(", ".join(o.names) + f" {o.metavar}".rstrip(), o.help) for o in syntax.options]
    width = min(34, max((len(left) for left, _ in rows), default=0))
    lines = [f"usage: {syntax.usage}", "", syntax.about]
    lines += ["", *(f"  {left:{width}}  {text}" for left, text in rows)] if rows else []
    if syntax.examples:
        lines += ["", "examples:", *(f"  {example}" for example in syntax.examples)]
    return "\n".join(lines) + "\n"


def wants_help(syntax: Syntax, parsed: Parsed) -> bool:
    """Print the help when it was asked for."""
    if "help" not in parsed.options:
        return False
    from ocisbx.cli.output import put  # noqa: PLC0415 -- `run` prints by forwarding

    put(render_help(syntax))
    return True


def refuse_words(syntax: Syntax, parsed: Parsed) -> None:
    """For verbs that take options only. Raises ConfigError."""
    if parsed.words:
        from ocisbx.values import show  # noqa: PLC0415 -- for a refusal only

        what = f"{show(parsed.words[0])} is one word too many"
        raise ConfigError(what, remedy=f"usage: {syntax.usage}")
