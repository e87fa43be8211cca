"""The engine against a model of it: random cases on random output, and people in any order."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from ocisbx.errors import InvalidState
from ocisbx.expect.expecting import Expect
from ocisbx.expect.file import build_script
from ocisbx.expect.runner import ScriptRun, run_script

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = st.lists(
    st.fixed_dictionaries(
        {
            "expect": st.sampled_from(["a", "b+", "(a)(b)?", "ab|c", "a$", "^b"]),
            "action": st.sampled_from(["ok", "fail", "continue", "next"]),
            "at_most": st.integers(1, 3),
        },
        optional={"answer": st.sampled_from(["x", "<${0}>", "$$"])},
    ),
    min_size=1,
    max_size=3,
)


def wanted(steps: list[list[dict[str, Any]]], text: str) -> tuple[str, str, list[Any]]:
    """Outcome, all that is typed, and the matches of each step, by re alone."""
    typed = ""
    filed: list[Any] = []
    for cases in steps:
        turns = [0] * len(cases)
        matches: list[tuple[int, str]] = []
        filed.append(matches)
        while True:
            found = [
                (re.search(case["expect"], text, re.DOTALL), i) for i, case in enumerate(cases)
            ]
            best = min(((m.start(), i, m) for m, i in found if m is not None), default=None)
            if best is None:
                return "ended", typed, filed
            _, index, match = best
            text, case = text[match.end() :], cases[index]
            matches.append((index + 1, match[0]))
            turns[index] += 1
            if turns[index] > case["at_most"]:
                return "fail", typed, filed
            if (answer := case.get("answer")) is not None:
                typed += answer.replace("${0}", match[0]).replace("$$", "$") + "\n"
            if case["action"] in ("ok", "fail"):
                return case["action"], typed, filed
            if case["action"] == "next":
                break
    return "ok", typed, filed


@settings(max_examples=200)
@given(st.lists(CASES, min_size=1, max_size=3), st.text("abc", max_size=12))
def test_cases_do_what_they_say(steps: list[list[dict[str, Any]]], text: str) -> None:
    script = build_script({"steps": [{"cases": cases} for cases in steps], "timeout_s": 30})
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        theirs.sendall(text.encode())
        theirs.shutdown(socket.SHUT_WR)
        report = run_script(script, Expect(ours.fileno()), {})
        ours.shutdown(socket.SHUT_WR)
        typed = b"".join(iter(lambda: theirs.recv(4096), b"")).decode()
    outcome, expected, matches = wanted(steps, text)
    assert report.outcome == outcome
    assert [list(step.matches) for step in report.steps] == matches
    # All of the output was there before the first answer, and its end may be known by then.
    assert expected.startswith(typed) if report.outcome == "ended" else typed == expected


class People(RuleBasedStateMachine):
    """advance, done, give_up and feed in any order: what is not their turn is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.ours, self.theirs = socket.socketpair()
        steps = [{"needs_user": f"step {number}"} for number in (1, 2, 3)]
        self.run_ = ScriptRun(build_script({"steps": steps}), Expect(self.ours.fileno()), {})
        self.handle: Any = None
        self.state = "fresh"
        self.settled = 0

    def refused(self, call: Callable[[], object]) -> None:
        with pytest.raises(InvalidState):
            call()

    @rule()
    def advance(self) -> None:
        if self.state in ("over", "waiting"):
            self.refused(self.run_.advance)
            return
        self.handle = self.run_.advance()
        if self.state == "given up" or self.settled == 3:
            assert self.handle is None
            assert self.run_.report().outcome == ("ok" if self.state == "done" else "needs_user")
            self.state = "over"
        else:
            assert self.handle.step == self.settled + 1
            assert self.handle.message == f"step {self.settled + 1}"
            self.state = "waiting"

    @precondition(lambda self: self.handle is not None)
    @rule()
    def done(self) -> None:
        if self.state != "waiting":
            self.refused(self.handle.done)
            return
        self.handle.done()
        self.settled += 1
        self.state = "done"

    @precondition(lambda self: self.handle is not None)
    @rule()
    def give_up(self) -> None:
        if self.state != "waiting":
            self.refused(lambda: self.handle.give_up("no"))
            return
        self.handle.give_up("no")
        self.state = "given up"

    @precondition(lambda self: self.handle is not None)
    @rule()
    def feed(self) -> None:
        if self.state != "waiting":
            self.refused(lambda: self.handle.feed(b"x"))
            return
        self.handle.feed(b"x")

    @rule()
    def ask(self) -> None:
        assert self.run_.over == (self.state == "over")
        if self.state != "over":
            self.refused(self.run_.report)

    def teardown(self) -> None:
        self.ours.close()
        self.theirs.close()


TestPeople = People.TestCase
