"""What a script did: one report per step, in JSON's types, with no secret in it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ocisbx.errors import EXIT_FAILED

# ok, fail: a case said so, or all steps were done. ended: the output was over before a step was
# done. needs_user: a person has to type, and the run waits or nobody was there. error: the script,
# or the terminal, is at fault.
Outcome = Literal["ok", "fail", "timed_out", "ended", "needs_user", "error"]

EXIT_CODES: dict[Outcome, int] = {
    "ok": 0,
    "fail": 1,
    "ended": 1,
    "needs_user": 3,
    "timed_out": 124,
    "error": EXIT_FAILED,
}
MAX_SHOWN = 1 << 16
"""Characters of the output that one step's report holds, from the end."""


class StepReport(NamedTuple):
    """One step. What comes from the program is as it came: print it through something inert."""

    number: int
    """Counted from 1."""
    name: str | None
    kind: str
    outcome: Outcome | Literal["next"]
    """next: the script went on."""
    why: str
    """Why it stopped there, where it did not simply go on."""
    matches: tuple[tuple[int, str], ...]
    """What matched, in order: which pattern or case, counted from 1, and the text."""
    groups: tuple[str | None, ...]
    """The captures of the last match."""
    before: str
    """What came before the last match, or, without one, since the match before."""
    before_truncated: bool
    """Whether the beginning of `before` is left out."""
    typed: int
    """How many times something was typed."""
    program_exit_code: int | None
    """With what the program had exited by then; None where its output goes on, or it did not exit
    by itself (a signal, a limit)."""
    duration_s: float


class ScriptReport(NamedTuple):
    """All of a script."""

    outcome: Outcome
    why: str
    message: str
    """What the case that ended the script says; for needs_user, what the person has to know."""
    steps: tuple[StepReport, ...]
    duration_s: float

    @property
    def exit_code(self) -> int:
        """What `ocisbx expect` ends with."""
        return EXIT_CODES[self.outcome]

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "why": self.why,
            "message": self.message,
            "duration_s": self.duration_s,
            "steps": [_step_dict(step) for step in self.steps],
        }


def _step_dict(step: StepReport) -> dict[str, Any]:
    matches = [{"pattern": number, "text": text} for number, text in step.matches]
    return {**step._asdict(), "matches": matches, "groups": list(step.groups)}
