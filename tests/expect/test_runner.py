"""Scripts on real programs: steps, cases, answers, secrets, people, and what the reports say."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.cli.expect import tell_report
from ocisbx.errors import ConfigError, InvalidState
from ocisbx.expect.engine import PRIVATE
from ocisbx.expect.file import build_script
from ocisbx.expect.runner import AsyncScriptRun, ScriptRun, run_script
from tests.expect.programs import WAIT_S, awaited, carry_out, driven, python, turns_of

if TYPE_CHECKING:
    from ocisbx.expect.handover import Handle
    from ocisbx.expect.report import ScriptReport

SECRET = "correct horse"
ASK = """
    import getpass
    word = getpass.getpass("Password: ")
    print("length", len(word))
"""


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        # Of one that a match ends in, or begins in, nothing is left beside it.
        ([r"\$ ?", r"\n"], [("[secret]", "[secret]"), ("[secret]\r", "\n")]),
        ([r"(?P<one>a..)(.+)\r\n"], [("", "[secret]\r\n")]),
        ([r"def"], [("[secret]", "[secret]")]),
        ([r"e(?=f)", r"(?<=f)\r"], [("[secret]", "[secret]"), ("[secret]", "\r")]),
    ],
)
def test_a_match_that_cuts_through_a_secret(
    patterns: list[str], told: list[tuple[str, str]]
) -> None:
    steps: list[dict[str, Any]] = [
        {"cases": [{"expect": one, "action": "next", "message": "${0}"}]} for one in patterns
    ]
    report = carry_out(python("print('abc$def'); input()"), steps, secrets={"pass": "abc$def"})
    assert [(step.before, step.matches[0][1]) for step in report.steps] == told, report
    groups = [group for step in report.steps for group in step.groups]
    assert groups == ["[secret]" for _ in groups]


def test_secrets_that_overlap_are_masked_as_one() -> None:
    secrets = {"one": "abcdef", "two": "defghi"}
    steps: list[dict[str, Any]] = [
        {"cases": [{"expect": one, "action": "next", "message": "${0}"}]} for one in ("e", "y")
    ]
    report = carry_out(python("print('x abcdefghi y'); input()"), steps, secrets=secrets)
    told = [(step.before, step.matches[0][1]) for step in report.steps]
    assert told == [("x [secret]", "[secret]"), ("[secret] ", "y")]


def test_a_message_may_hold_what_is_no_key_to_type() -> None:
    case = {"expect": r"Error: ([^\r\n]*)", "action": "fail", "message": "it says ${1}"}
    report = carry_out(python("print('Error: \\x1b[31mno\\x1b[0m'); input()"), [{"cases": [case]}])
    assert (report.outcome, report.message) == ("fail", "it says \x1b[31mno\x1b[0m")


def test_a_message_tells_no_part_of_a_secret() -> None:
    case = {"expect": "(a..)(?P<rest>.+)\r", "action": "fail", "message": "${1}-${rest}"}
    report = carry_out(
        python("print('abc$def'); input()"), [{"cases": [case]}], secrets={"pass": "abc$def"}
    )
    assert report.message == "[secret]-[secret]"


def test_every_kind_of_step() -> None:
    source = """
        import os, signal, sys
        signal.signal(signal.SIGWINCH, lambda *_: print("size", os.get_terminal_size()))
        signal.signal(signal.SIGUSR1, lambda *_: print("USR1"))
        for line in iter(input, "quit"):
            print(f"<{line}>")
    """
    report = carry_out(
        python(source),
        [
            {"sendline": "one", "name": "greeting"},
            {"expect": ["never", r"<(\w+)>"], "timeout_s": 20},
            {"sendline": "was ${1} $$"},
            {"expect_exact": ["<was one $>", "+"]},
            {"resize": [40, 100]},
            {"expect": r"size .*columns=100, lines=40\)"},
            {"signal": "SIGUSR1"},
            {"expect_screen": "USR1"},
            {"sleep_s": 0.05},
            {"send": "qu"},
            {"send": "it"},
            {"sendcontrol": "j"},
            {"cases": [{"eof": True, "action": "ok", "message": "bye"}]},
            {"expect": "never reached"},
        ],
    )
    assert (report.outcome, report.exit_code, report.message) == ("ok", 0, "bye"), report
    assert [step.kind for step in report.steps[:3]] == ["sendline", "expect", "sendline"]
    assert report.steps[0].name == "greeting"
    assert report.steps[0].typed == 1
    assert report.steps[1].matches == ((2, "<one>"),)
    assert report.steps[1].groups == ("one",)
    assert report.steps[1].before == "one\r\n"
    assert report.steps[8].duration_s >= 0.05
    assert report.steps[12].outcome == "ok"
    assert report.steps[12].why == "case 1 says ok (exited with code 0)"
    assert [step.program_exit_code for step in report.steps[-2:]] == [None, 0]
    assert len(report.steps) == 13


def test_cases_go_on_until_one_ends_them() -> None:
    source = """
        for number in range(4):
            if input(f"continue {number}? [yes/no] ") != f"yes {number}":
                raise SystemExit("wrong")
        print("Apply complete")
    """
    cases: list[dict[str, Any]] = [
        {"expect": r"continue (?P<number>\d)\?", "answer": "yes ${number}", "action": "continue"},
        {"exact": "Apply complete", "action": "ok"},
        {"exact": "wrong", "action": "fail"},
    ]
    report = carry_out(python(source), [{"cases": cases}])
    assert report.outcome == "ok", report
    step = report.steps[0]
    assert [number for number, _ in step.matches] == [1, 1, 1, 1, 2]
    assert step.typed == 4

    cases[0]["answer"] = "no"
    report = carry_out(python(source), [{"cases": cases}])
    assert (report.outcome, report.exit_code, report.why) == ("fail", 1, "case 3 says fail")

    cases[0] |= {"answer": "yes ${number}", "at_most": 2}
    report = carry_out(python(source), [{"cases": cases}])
    assert (report.outcome, report.why) == ("fail", "case 1 came more than 2 times")


def test_time_and_end_are_told_apart_and_may_be_cases() -> None:
    wait = {"expect": "never", "timeout_s": 0.2}
    report = carry_out(("sh", "-c", "echo here; sleep 60"), [wait])
    assert (report.outcome, report.exit_code) == ("timed_out", 124)
    assert report.why == "'never' did not appear in 0.2 s"
    assert report.steps[0].before == "here\r\n"
    report = carry_out(("sh", "-c", "echo here; exit 3"), [{"expect": "never"}])
    assert (report.outcome, report.exit_code) == ("ended", 1)
    assert report.why.startswith("the output ended before 'never' appeared")
    late = {"cases": [{"timeout": True, "action": "fail", "message": "slow"}], "timeout_s": 0.1}
    report = carry_out(("sleep", "60"), [late])
    assert (report.outcome, report.message, report.exit_code) == ("fail", "slow", 1)


def test_a_secret_is_typed_and_stands_nowhere() -> None:
    cases = [{"expect": "Password: ", "answer": "${secret:pass}", "action": "next"}]
    echo: list[dict[str, Any]] = [
        {"sendline": "${secret:pass}", "allow_echo": True},
        {"expect": r"(?s)(\w+ horse).*end"},
    ]
    report = carry_out(
        python(ASK + f"\n    print(input(), {SECRET!r}, 'end')"),
        [{"cases": cases}, {"expect": "length 13"}, *echo],
        secrets={"pass": SECRET},
    )
    assert report.outcome == "ok", report
    text = json.dumps(report.to_dict())
    assert SECRET not in text
    assert "horse" not in text
    assert "[secret]" in text


def test_what_the_author_wrote_is_no_secret() -> None:
    cases = [{"exact": "abc", "action": "fail", "message": "a sad case: ${0}"}]
    report = carry_out(("echo", "a b abc"), [{"cases": cases}], secrets={"one": "a"})
    assert report.why == "case 1 says fail"
    assert report.message == "a sad case: [secret]bc"
    assert report.steps[0].before == "[secret] b "
    assert report.steps[0].matches == ((1, "[secret]bc"),)
    report = carry_out(("true",), [{"expect": "water"}], secrets={"one": "a"})
    assert report.why.startswith("the output ended before 'water' appeared")
    report = carry_out(("cat",), [{"needs_user": "a card, please"}], secrets={"one": "a"})
    assert (report.message, report.why) == ("a card, please", "nobody is there to type")


def test_captures_that_come_to_a_secret_are_masked() -> None:
    case = {"expect": "(cor)(rect)", "action": "fail", "message": "x${1}${2}y"}
    report = carry_out(("echo", "correct"), [{"cases": [case]}], secrets={"pass": "correct"})
    assert report.message == "x[secret][secret]y"


def test_a_secret_is_not_typed_where_it_would_be_shown() -> None:
    report = carry_out(("cat",), [{"sendline": "${secret:pass}"}], secrets={"pass": SECRET})
    assert report.outcome == "error"
    assert "the secret was not typed" in report.why
    assert report.steps[0].typed == 0


def test_a_program_cannot_ask_for_a_secret_nor_press_keys() -> None:
    source = "print('name ${secret:pass}!'); print(input())"
    steps = [{"expect": r"name (\S+)!"}, {"sendline": "${1}"}, {"expect_exact": "${secret:pass}"}]
    report = carry_out(python(source), steps, secrets={"pass": SECRET})
    assert report.outcome == "ok", report
    hostile = ("printf", r"name a\003b!")
    report = carry_out(hostile, [{"expect": "name (.*)!"}, {"sendline": "${1}"}])
    assert report.outcome == "error"
    assert "${1} holds a control character, '\\x03'" in report.why


def test_a_missing_secret_and_a_missing_capture() -> None:
    document = {"steps": [{"sendline": "x"}], "secrets": {"gone": {"env": "X"}}}
    with driven("cat") as terminal, pytest.raises(ConfigError, match="gone was not given"):
        run_script(build_script(document), terminal, {})
    report = carry_out(("cat",), [{"sendline": "${1}"}])
    assert (report.outcome, report.why) == ("error", "the last match captured no ${1}")


def test_escape_sequences_stay_data(capfd: pytest.CaptureFixture[str]) -> None:
    hostile = r"a\033]0;title\007\302\233mb X\033[8mY"
    steps = [{"cases": [{"expect": "(X.*Y)", "action": "fail", "message": "${0}"}]}]
    report = carry_out(("printf", hostile), [{"expect": "a(?=.)"}, {"expect": "X.*Y"}])
    assert report.steps[1].before == "\x1b]0;title\x07\x9bmb "
    assert tell_report(report, as_json=False) == 0
    assert tell_report(report, as_json=True) == 0
    told = capfd.readouterr().out
    assert told.replace("\n", "").isprintable()
    assert r"X\x1b[8mY" in told
    report = carry_out(("printf", hostile), steps)
    assert report.outcome == "fail"
    assert tell_report(report, as_json=False) == 1
    assert capfd.readouterr().out.replace("\n", "").isprintable()


class Person:
    """Somebody who types when asked to."""

    def __init__(self, terminal: Any, word: str) -> None:
        self.terminal, self.word = terminal, word
        self.length = f"length {len(word)}\r\n".encode()
        self.told: list[str] = []

    def attend(self, handle: Handle) -> None:
        self.told.append(handle.message)
        end = self.terminal.spawn.terminal
        end.write_some(self.word.encode() + b"\n", secret=True)
        said = b""
        # Who relays a person's terminal reads the output meanwhile, which comes in pieces.
        while self.length not in said:
            assert self.terminal.spawn._poll(1, WAIT_S)
            said += end.read_some(4096)
        handle.feed(said)
        handle.done()


def test_a_person_types_and_the_script_goes_on() -> None:
    ask = {"expect": "(Password): ", "action": "needs_user", "message": "your ${1}, please"}
    done = {"expect": r"length (\d+)", "action": "next"}
    source = ASK + "\n    print(word); input('more? ')"
    document = {"steps": [{"cases": [ask, done]}, {"expect": r"more\? "}], "timeout_s": WAIT_S}
    with driven(*python(source)) as terminal:
        person = Person(terminal, "typed by hand")
        report = run_script(build_script(document), terminal, {}, person)
    assert report.outcome == "ok", report
    assert person.told == ["your Password, please"]
    assert report.steps[0].matches == ((1, "Password: "), (2, PRIVATE))
    assert report.steps[0].before == PRIVATE


def test_nobody_there_is_told_at_once() -> None:
    report = carry_out(("sleep", "60"), [{"needs_user": "insert the key"}, {"expect": "x"}])
    assert (report.outcome, report.exit_code) == ("needs_user", 3)
    assert (report.why, report.message) == ("nobody is there to type", "insert the key")
    assert report.duration_s < 30
    assert len(report.steps) == 1


def test_a_handle_is_settled_once() -> None:
    script = build_script({"steps": [{"needs_user": "type"}]})
    with driven("cat") as terminal:
        run = ScriptRun(script, terminal, {})
        with pytest.raises(InvalidState, match="not over"):
            run.report()
        handle = run.advance()
        assert handle is not None
        assert handle.private
        with pytest.raises(InvalidState, match="a person has the terminal"):
            run.advance()
        handle.done()
        for again in (handle.done, lambda: handle.give_up("x"), lambda: handle.feed(b"x")):
            with pytest.raises(InvalidState, match="the step is done"):
                again()
        assert run.advance() is None
        assert run.report().outcome == "ok"
        with pytest.raises(InvalidState, match="the script is over"):
            run.advance()


def test_a_pattern_that_backtracks_ends_the_script() -> None:
    report = carry_out(("printf", "a" * 60 + "b"), [{"expect": r"(\w|\w\w)+\d$"}])
    assert (report.outcome, report.exit_code) == ("error", 125)
    assert "took over 1 s" in report.why


def test_in_an_event_loop() -> None:
    script = build_script(
        {
            "timeout_s": WAIT_S,
            "secrets": {"pass": {"env": "X"}},
            "steps": [
                {"needs_user": "look"},
                {"cases": [{"exact": "Password: ", "answer": "${secret:pass}"}]},
                {"expect_screen": r"length (\d+)"},
                {"sleep_s": 0.05},
                {"expect": "never", "timeout_s": 0.1},
            ],
        }
    )

    async def go() -> ScriptReport:
        with awaited(*python(ASK + "\n    input()")) as terminal:
            run = AsyncScriptRun(script, terminal, {"pass": SECRET})
            handle = await run.advance()
            assert handle is not None
            handle.done()
            assert await run.advance() is None
            return run.report()

    report = asyncio.run(go())
    assert report.outcome == "timed_out", report
    assert report.steps[2].groups == ("13",)
    assert SECRET not in json.dumps(report.to_dict())


DEAF = ("sh", "-c", "stty raw -echo; echo up; sleep 60")


@pytest.mark.parametrize("program", [DEAF, (*DEAF[:2], "stty raw -echo; echo up; yes")])
def test_a_program_that_does_not_read_runs_into_the_steps_time(program: tuple[str, ...]) -> None:
    steps: list[dict[str, Any]] = [
        {"expect": "up"},
        {"send": "x" * 200_000, "timeout_s": 0.3},
    ]
    report = carry_out(program, steps)
    assert (report.outcome, report.exit_code) == ("timed_out", 124)
    assert report.why == "the program does not read what is typed"


def test_a_program_that_does_not_read_holds_no_event_loop_back() -> None:
    steps = [{"expect": "up"}, {"send": "x" * 200_000, "timeout_s": 0.5}]
    script = build_script({"steps": steps, "timeout_s": WAIT_S})

    async def go() -> tuple[ScriptReport, int]:
        with awaited(*DEAF) as terminal:
            run = AsyncScriptRun(script, terminal, {})
            turns = await turns_of(run)
            return run.report(), turns

    report, turns = asyncio.run(go())
    assert report.outcome == "timed_out"
    assert turns > 3


def test_typing_after_the_end_is_the_end() -> None:
    report = carry_out(("true",), [{"sleep_s": 2}, {"sendline": "anybody?"}])
    assert (report.outcome, report.exit_code) == ("ended", 1)
    assert report.why.startswith("nothing can be typed: the program has ended")
