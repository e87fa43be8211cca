"""Which commands a caller lets run: a policy on the command as it is given, and no boundary.

Whatever runs may start what it likes inside: a shell, a script, a copy under another name. What
holds it is the sandbox; these lists say early, and in words, what was not meant to be run.
Standard library only, since a plan that is at hand carries them to the start.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from posixpath import basename, normpath
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.errors import PolicyDenied
from ocisbx.values import check_text, refusal, show

if TYPE_CHECKING:
    from collections.abc import Sequence

# The words of a pattern: the program, then the arguments that must stand first.
Words = tuple[str, ...]

MAX_PATTERN_BYTES = 4096
NO_BOUNDARY = (
    "these lists are a policy and no boundary: what a shell or a script starts is not looked at, "
    "the sandbox is what holds it"
)


class CommandPolicy(NamedTuple):
    """The patterns of `[commands]`, cut into words; no `allow`: all that is not denied."""

    allow: tuple[Words, ...] = ()
    deny: tuple[Words, ...] = ()

    def check(self, argv: Sequence[str]) -> None:
        """Refuse a command that is denied, or that `allow` does not have; deny wins.

        Raises:
            PolicyDenied: with the pattern that says so.
        """
        for words in self.deny:
            if _matches(words, argv, in_doubt=True):
                raise _denied(argv, f"[commands] deny has {show(' '.join(words))}", "take that out")
        if self.allow and not any(_matches(words, argv, in_doubt=False) for words in self.allow):
            patterns = ", ".join(show(" ".join(words)) for words in self.allow[:5])
            more = f" and {len(self.allow) - 5} more" if len(self.allow) > 5 else ""
            raise _denied(argv, f"[commands] allow has only {patterns}{more}", "add it there")


def parse_pattern(value: object) -> Words:
    """The words of a pattern such as `rm`, `git push` or `/usr/bin/curl --config *`.

    Words are parted as a shell does, quotes included; each is a shell pattern (`*`, `?`, `[...]`).

    Raises:
        ConfigError: no text, no words, open quotes, or a path that is not absolute.
    """
    import shlex  # noqa: PLC0415 -- for those who configure, not on every start

    text = check_text(value, "a command pattern")
    if len(text.encode()) > MAX_PATTERN_BYTES:
        raise refusal(text, "a command pattern", f"it is longer than {MAX_PATTERN_BYTES} bytes")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise refusal(text, "a command pattern", str(error).lower()) from None
    if not words or not words[0]:
        raise refusal(text, "a command pattern", "it is empty; expected such as rm or 'git push'")
    if "/" in words[0] and not words[0].startswith("/"):
        expected = "expected a program's name, such as curl, or an absolute path"
        raise refusal(text, "a command pattern", expected)
    return words


def _matches(words: Words, argv: Sequence[str], *, in_doubt: bool) -> bool:
    """Whether the command starts with these words; `in_doubt` where the path is not known."""
    return (
        len(argv) >= len(words)
        and _is_program(words[0], argv[0], in_doubt=in_doubt)
        and all(fnmatchcase(given, word) for given, word in zip(argv[1:], words[1:], strict=False))
    )


def _is_program(wanted: str, given: str, *, in_doubt: bool) -> bool:
    if "/" not in wanted:
        return fnmatchcase(basename(given), wanted)
    if given.startswith("/"):
        return fnmatchcase("/" + normpath(given).lstrip("/"), wanted)
    # Found by PATH or from the working directory, inside: it may be the one.
    return in_doubt and fnmatchcase(basename(given), basename(wanted))


def _denied(argv: Sequence[str], why: str, remedy: str) -> PolicyDenied:
    return PolicyDenied(
        f"the command {show(argv[0])} may not be run",
        why=why,
        remedy=f"{remedy}, if it was meant to be run; {NO_BOUNDARY}",
    )
