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
