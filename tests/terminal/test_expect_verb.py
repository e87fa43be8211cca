"""`ocisbx expect`: scripts that drive a program in a container, and its exit codes."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.box import eventually
from tests.command_line import ocisbx, start

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

LOGIN = """
command = ["sh", "-c", '''%s''']
secrets.word.env = "WORD"
[[steps]]
expect_exact = "login: "
[[steps]]
sendline = "me"
[[steps]]
expect_exact = "Password: "
[[steps]]
sendline = "${secret:word}"
[[steps]]
cases = [
  { exact = "welcome", action = "ok" },
  { exact = "denied", action = "fail", message = "the word is wrong" },
]
"""
PROGRAM = """
printf 'login: '; read name; stty -echo; printf 'Password: '; read word; stty echo
[ "$word" = sesame ] && echo welcome $name || echo denied
"""


@pytest.mark.parametrize(("word", "code"), [("sesame", 0), ("seaweed", 1)])
def test_a_login(box: Box, word: str, code: int) -> None:
    script = LOGIN % PROGRAM
    done = ocisbx(box, "expect", "--json", "-", input=script, env={"WORD": word})
    assert done.returncode == code, (done.stdout, done.stderr)
    report = json.loads(done.stdout)
    assert report["outcome"] == ("ok" if code == 0 else "fail")
    assert [step["kind"] for step in report["steps"]] == ["expect_exact", "sendline"] * 2 + [
        "cases"
    ]
    assert word not in done.stdout
    assert box.left() == []


@pytest.mark.parametrize(
    ("program", "step", "code", "said"),
    [
        ("sleep 60", "timeout_s = 0.3", 124, "timed_out: "),
        ("echo other", "", 1, "exited with code 0"),
        ("exit 7", "", 1, "exited with code 7"),
    ],
)
def test_how_it_ends(box: Box, program: str, step: str, code: int, said: str) -> None:
    script = f'[[steps]]\nexpect = "never"\n{step}\n'
    done = ocisbx(box, "expect", "-", "--", "sh", "-c", program, input=script)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert said in done.stdout
    assert box.left() == []


ENDS = """
[[steps]]
cases = [
  { eof = true, exit_code = 0, action = "ok" },
  { eof = true, exit_code = [7, 8], action = "fail", message = "seven" },
]
"""


@pytest.mark.parametrize(
    ("program", "code", "program_code", "said"),
    [
        ("echo a", 0, 0, "case 1 says ok (exited with code 0)"),
        ("exit 7", 1, 7, "case 2 says fail (exited with code 7)"),
        ("exit 9", 1, 9, "no case is for this end of the program (exited with code 9)"),
        ("kill -TERM $$", 1, None, "no case is for this end of the program (was killed by signal"),
        # The terminal is let go of long before the end.
        ("exec <&- >&- 2>&-; sleep 1; exit 7", 1, 7, "case 2 says fail (exited with code 7)"),
    ],
)
def test_the_exit_code_is_asked_for(
    box: Box, program: str, code: int, program_code: int | None, said: str
) -> None:
    done = ocisbx(box, "expect", "--json", "-", "--", "sh", "-c", program, input=ENDS)
    assert done.returncode == code, (done.stdout, done.stderr)
    report = json.loads(done.stdout)
    assert report["why"].startswith(said)
    assert report["steps"][0]["program_exit_code"] == program_code
    assert report["message"] == ("seven" if program_code == 7 else "")


GIVEN = """
command = ["sh", "-c", 'echo "<$ONE,$TWO,$THREE,$1>"; read word; exit 3', "sh", "${param:word}"]
params.word.default = "four"
secrets.word.env = "WORD"
[[steps]]
expect = "<([^>]*)>"
[[steps]]
sendline = "${secret:word}"
allow_echo = true
[[steps]]
cases = [{ eof = true, exit_code = 3, action = "ok", message = "${param:word}" }]
"""


def test_what_belongs_to_one_call(box: Box) -> None:
    (box.workspace / "variables").write_text("ONE=first\nTWO\nTHREE=not this\n")
    words = ["-e", "THREE=3 $x", "--env-file", "variables", "--param", "word=a ${secret:word} b"]
    words += ["--name", "guest", "--transcript", "shown.cast", "--no-audit"]
    given = {"WORD": "sesame", "TWO": "of mine"}
    done = ocisbx(box, "expect", "--json", "-", *words, input=GIVEN, env=given)
    assert done.returncode == 0, (done.stdout, done.stderr)
    report = json.loads(done.stdout)
    assert report["steps"][0]["groups"] == ["first,of mine,3 $x,a ${secret:word} b"]
    assert report["message"] == "a ${secret:word} b"
    events = [json.loads(line) for line in (box.workspace / "shown.cast").read_text().splitlines()]
    assert "<first,of mine," in "".join(text for _, code, text in events[1:] if code == "o")
    assert not [text for _, code, text in events[1:] if code == "i" and "sesame" in text]
    log = box.base / "state" / "ocisbx" / "audit.jsonl"
    assert not log.exists()
    again = ocisbx(box, "expect", "-", *words[:-1], input=GIVEN, env=given)
    assert (again.returncode, "shown.cast" in again.stderr) == (125, True)
    again = ocisbx(box, "expect", "-", *words[:-3], input=GIVEN, env=given)
    assert again.returncode == 0, again.stdout
    assert len(log.read_text().splitlines()) == 1


def test_a_container_has_the_name_that_is_given(box: Box) -> None:
    # Its own: nobody else may have it meanwhile.
    script = '[[steps]]\nexpect = "never"\n'
    path = box.workspace / "script.toml"
    path.write_text(script)
    command = f"touch {box.workspace}/up; sleep 60"
    with start(box, "expect", path, "--name", "guest", "--", "sh", "-c", command) as process:
        assert eventually((box.workspace / "up").exists)
        listed = json.loads(ocisbx(box, "ps", "--json").stdout)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert [entry["name"] for entry in listed] == ["guest"]


def test_a_wrong_variable_is_refused(box: Box) -> None:
    for words in (["-e", "=x"], ["--env-file", "/nowhere"]):
        done = ocisbx(box, "expect", "-", *words, input=GIVEN, env={"WORD": "x"})
        assert done.returncode == 125
        assert done.stdout == ""


def test_a_person_is_needed_and_nobody_is_there(box: Box) -> None:
    script = '[[steps]]\nneeds_user = "type it"\n'
    done = ocisbx(box, "expect", "-", "--network", "none", "--", "cat", input=script)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "type it" in done.stdout


def test_a_container_that_cannot_be(box: Box) -> None:
    script = '[[steps]]\nexpect = "x"\n'
    done = ocisbx(box, "expect", "-", "-v", "/nowhere/at/all", "--", "cat", input=script)
    assert done.returncode == 125
    assert "/nowhere/at/all" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ended_by_a_signal_it_leaves_nothing(box: Box, number: signal.Signals) -> None:
    script = box.workspace / "script.toml"
    script.write_text('[[steps]]\nexpect = "never"\n')
    command = f"touch {box.workspace}/up; sleep 60"
    with start(box, "expect", str(script), "--", "sh", "-c", command) as process:
        assert eventually((box.workspace / "up").exists)
        process.send_signal(number)
        process.communicate()
    assert process.returncode == 130
    assert box.left() == []
