"""What a report tells of a program's output: no secret, and none that a match cuts through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.errors import ConfigError
from ocisbx.expect.hidden import CONTEXT
from ocisbx.expect.report import MAX_SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ocisbx.expect.hidden import Hidden


class Match(NamedTuple):
    """What can be told of one; `capture` gives what ${NUMBER} and ${NAME} are, `shown` the same
    without secrets. Both raise ConfigError for what was not captured."""

    text: str
    groups: tuple[str | None, ...]
    capture: Callable[[str], str]
    shown: Callable[[str], str]


class Shown:
    """Follows the output of one script, from match to match."""

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden
        # The end of what was looked through before: a secret may begin there.
        self._earlier = ""

    def before(self, before: str, after: str = "") -> tuple[str, bool]:
        """What came before a match or an end, and whether its beginning was left out; `after`: what
        follows it."""
        recent = before[-MAX_SHOWN - CONTEXT :]
        begin = len(self._earlier)
        span = (begin, begin + len(recent))
        (shown,) = self._hidden.mask_parts(self._earlier + recent + after[:CONTEXT], [span])
        return shown, len(recent) < len(before)

    def taken(self, match: Any, before: str) -> Match:  # noqa: ANN401 -- of re, or of regex
        """A match in the output: what comes next begins at its end."""
        recent = before[-CONTEXT:]
        after = match.string[match.start() : match.end() + CONTEXT]
        begin = len(self._earlier) + len(recent) - match.start()
        told = self._tell(match, self._earlier + recent + after, begin)
        self._earlier = (self._earlier + recent + match[0])[-CONTEXT:]
        return told

    def seen(self, match: Any) -> Match:  # noqa: ANN401 -- as above
        """A match on the screen: nothing is taken."""
        return self._tell(match, match.string, 0)

    def _tell(self, match: Any, whole: str, begin: int) -> Match:  # noqa: ANN401 -- as above
        """`begin`: what to add to a place in the match's own text for one in `whole`."""
        spans = [match.span(number) for number in range(len(match.groups()) + 1)]
        parts = self._hidden.mask_parts(
            whole, [(max(0, begin + start), begin + end) for start, end in spans]
        )
        groups = tuple(
            part if start >= 0 else None
            for part, (start, _) in zip(parts[1:], spans[1:], strict=True)
        )
        named = {name: groups[number - 1] for name, number in match.re.groupindex.items()}
        return Match(
            parts[0],
            groups,
            _filling((match[0], *match.groups()), match.groupdict()),
            _filling((parts[0], *groups), named),
        )


def _filling(
    numbered: Sequence[str | None], named: Mapping[str, str | None]
) -> Callable[[str], str]:
    def capture(name: str) -> str:
        try:
            return (numbered[int(name)] if name.isdigit() else named[name]) or ""
        except LookupError:
            return no_capture(name)

    return capture


def no_capture(name: str) -> str:
    """Raises ConfigError."""
    raise ConfigError(f"the last match captured no ${{{name}}}")
