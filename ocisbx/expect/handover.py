"""needs_user: a person takes the terminal over, and gives it back. The states, not the attaching.

waiting --done()--> done            the script goes on
        --give_up(why)--> given_up  the script ends, with needs_user
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from ocisbx.errors import InvalidState

if TYPE_CHECKING:
    from collections.abc import Callable


class Handle:
    """A step that waits for a person. Who relays the person's terminal gives every output here.

    While `private`, nothing that is typed may be recorded, and what the program prints stands in no
    report.
    """

    def __init__(self, step: int, message: str, feed: Callable[[bytes], None]) -> None:
        self.step = step
        """The step's number, from 1."""
        self.message = message
        """What the person is told."""
        self.state: Literal["waiting", "done", "given_up"] = "waiting"
        self.why = ""
        self._feed = feed

    @property
    def private(self) -> bool:
        """Whether a person may be typing."""
        return self.state == "waiting"

    def feed(self, data: bytes) -> None:
        """What the program printed while the person was there, for the steps that follow.

        Raises InvalidState: the person has gone.
        """
        self._check("feed")
        self._feed(data)

    def done(self) -> None:
        """The person has typed what was needed. Raises InvalidState: it is settled already."""
        self._check("done")
        self.state = "done"

    def give_up(self, why: str) -> None:
        """Nobody will type. Raises InvalidState: it is settled already."""
        self._check("give_up")
        self.state, self.why = "given_up", why

    def _check(self, verb: str) -> None:
        if self.state != "waiting":
            raise InvalidState(
                f"{verb}: the step is {self.state.replace('_', ' ')}",
                why="a person takes over once, and a new step has a new handle",
            )


class Attendant(Protocol):
    """Who can bring a person to the terminal."""

    def attend(self, handle: Handle) -> None:
        """Let a person type until the step is over: calls done() or give_up() of the handle."""
