"""Cases for the exit code that a program ended with."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from ocisbx.errors import ConfigError
from ocisbx.expect.ends import Descriptor
from ocisbx.expect.expecting import Expect
from ocisbx.expect.file import build_script
from ocisbx.expect.runner import AsyncScriptRun, run_script
from tests.expect.programs import WAIT_S, awaited, carry_out, turns_of

CASES: list[dict[str, Any]] = [
    {"eof": True, "exit_code": 0, "action": "ok", "message": "done"},
    {"eof": True, "exit_code": [2, 3], "action": "fail", "message": "known"},
]
OTHER = {"eof": True, "action": "fail", "message": "other"}


@pytest.mark.parametrize(
    ("ends", "outcome", "message", "why"),
    [
        ("exit 0", "ok", "done", "case 1 says ok (exited with code 0)"),
        ("exit 3", "fail", "known", "case 2 says fail (exited with code 3)"),
        ("exit 4", "fail", "other", "case 3 says fail (exited with code 4)"),
        ("kill -KILL $$", "fail", "other", "case 3 says fail (was killed by signal 9)"),
    ],
)
def test_the_first_case_for_the_code_is_meant(
    ends: str, outcome: str, message: str, why: str
) -> None:
    report = carry_out(("sh", "-c", f"echo here; {ends}"), [{"cases": [*CASES, OTHER]}])
    assert (report.outcome, report.message, report.why) == (outcome, message, why)
    step = report.steps[0]
    assert step.before == "here\r\n"
    code = int(ends.split()[1]) if ends.startswith("exit") else None
    assert step.program_exit_code == code
    assert report.to_dict()["steps"][0]["program_exit_code"] == code


def test_a_code_that_no_case_is_for_ends_the_script() -> None:
    report = carry_out(("sh", "-c", "echo here; exit 4"), [{"cases": CASES}])
    assert (report.outcome, report.exit_code) == ("ended", 1)
    assert report.why == "no case is for this end of the program (exited with code 4)"
    assert report.steps[0].before == "here\r\n"
    assert report.steps[0].matches == ()
    # Of a shell it is 137; here nothing exited.
    report = carry_out(("sh", "-c", "kill -KILL $$"), [{"cases": [{**CASES[0], "exit_code": 137}]}])
    assert report.why == "no case is for this end of the program (was killed by signal 9)"


def test_a_case_may_be_the_last_step_and_others_come_before_it() -> None:
    steps = [{"cases": [{"exact": "here"}, *CASES]}, {"cases": [{"eof": True, "exit_code": 0}]}]
    report = carry_out(("echo", "here"), steps)
    assert report.outcome == "ok"
    assert [step.program_exit_code for step in report.steps] == [None, 0]


# It lets go of its terminal, and goes on.
LEAVES = "exec sleep 60 <&- >&- 2>&-"


def test_a_program_that_lives_on_without_a_terminal_is_waited_for() -> None:
    short = "exec <&- >&- 2>&-; sleep 1; exit 3"
    report = carry_out(("sh", "-c", short), [{"cases": CASES}])
    assert report.message == "known"
    assert report.duration_s >= 0.9

    late = {"timeout_s": 0.8, "cases": CASES}
    report = carry_out(("sh", "-c", LEAVES), [late])
    assert (report.outcome, report.exit_code) == ("timed_out", 124)
    assert report.why == "the output has ended, and the program has not"
    assert report.steps[0].program_exit_code is None
    slow = {"timeout": True, "action": "fail", "message": "slow"}
    report = carry_out(("sh", "-c", LEAVES), [{**late, "cases": [*CASES, slow]}])
    assert (report.outcome, report.message) == ("fail", "slow")
    # The output has ended, whatever the program does.
    report = carry_out(("sh", "-c", LEAVES), [{**late, "cases": [*CASES, OTHER]}])
    assert (report.outcome, report.message) == ("fail", "other")
    assert report.why == "case 3 says fail"


def test_without_a_case_that_asks_nobody_waits_for_long() -> None:
    slow = {"timeout": True, "action": "fail", "message": "slow"}
    report = carry_out(("sh", "-c", LEAVES), [{"cases": [slow, OTHER]}])
    assert (report.outcome, report.message) == ("fail", "other")
    assert report.duration_s < WAIT_S / 2


def test_of_a_bare_descriptor_nobody_can_tell() -> None:
    controller_fd, terminal_fd = os.openpty()
    os.close(terminal_fd)
    script = build_script({"steps": [{"cases": CASES}]})
    report = run_script(script, Expect(Descriptor(controller_fd)), {})
    os.close(controller_fd)
    assert (report.outcome, report.exit_code) == ("error", 125)
    assert report.why == "a case asks for the exit code, which nobody can tell here"


def test_in_an_event_loop() -> None:
    script = build_script({"steps": [{"cases": CASES}], "timeout_s": WAIT_S})

    async def go() -> tuple[str, int]:
        with awaited("sh", "-c", "exec <&- >&- 2>&-; sleep 0.4; exit 3") as terminal:
            run = AsyncScriptRun(script, terminal, {})
            turns = await turns_of(run)
            return run.report().message, turns

    message, turns = asyncio.run(go())
    assert message == "known"
    assert turns > 10


@pytest.mark.parametrize(
    ("cases", "problem"),
    [
        ([{"exact": "a", "exit_code": 0}], "cases[0].exit_code: goes with eof = true"),
        ([{"timeout": True, "exit_code": 0}], "cases[0].exit_code: goes with eof = true"),
        ([{"eof": True, "exit_code": 256}], "cases[0].exit_code: 256 is not an exit code"),
        ([{"eof": True, "exit_code": []}], "cases[0].exit_code: it is empty"),
        ([{"eof": True, "exit_code": [0, True]}], "cases[0].exit_code: True is not an exit code"),
        ([{"eof": True, "exit_code": "0"}], "cases[0].exit_code: '0' is not an exit code"),
        ([OTHER, CASES[0]], "cases[1].eof: cases[0] is for every end already"),
    ],
)
def test_what_is_refused(cases: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_script({"steps": [{"cases": cases}]})
    assert problem in raised.value.what
