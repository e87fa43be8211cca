"""`ocisbx session` and `shell`, each from a process of its own."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from ocisbx import Container, Session
from ocisbx.bundle.record import State
from tests.box import eventually
from tests.command_line import ocisbx, said, start

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime


def test_from_new_to_rm(house: Box) -> None:
    made = ocisbx(house, "session", "new", "--name", "work", "-e", "A=b", "--timeout", "30")
    assert made.returncode == 0, made.stderr
    container_id = made.stdout.strip()
    words = ("session", "run", "work", "--")
    first = ocisbx(house, *words, "sh", "-c", "echo $A; echo err >&2; touch /tmp/f; exit 3")
    assert (first.returncode, first.stdout, first.stderr) == (3, "b\n", "err\n")
    line = ("session", "run", "-i", "-w", "/tmp", "-e", "A=c", container_id, "sh")
    second = ocisbx(house, *line, input="pwd; echo $A; ls f\n")
    assert (second.returncode, second.stdout) == (0, "/tmp\nc\nf\n")
    whole = json.loads(ocisbx(house, "session", "run", "--json", "work", "true").stdout)
    assert whole["exit_code"] == 0
    (row,) = json.loads(ocisbx(house, "session", "ls", "--json").stdout)
    assert (row["id"], row["name"], row["state"]) == (container_id, "work", "running")
    assert "work" in ocisbx(house, "session", "ls").stdout
    assert "(session)" in ocisbx(house, "ps").stdout
    assert "(session)" in ocisbx(house, "stats", "--no-stream").stdout
    assert ocisbx(house, "exec", "work", "test", "-e", "/tmp/f").returncode == 0
    assert ocisbx(house, "session", "rm", "work").stdout == "work\n"
    assert Container.all() == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["nosuchprogram"], 127),
        (["/usr"], 126),
    ],
)
def test_exit_codes_are_those_of_run(house: Box, words: list[str], code: int) -> None:
    ocisbx(house, "session", "new", "--name", "work")
    assert ocisbx(house, "session", "run", "work", "--", *words).returncode == code


def test_a_time_limit_and_an_interrupt_end_the_command_alone(house: Box) -> None:
    ocisbx(house, "session", "new", "--name", "work", "--timeout", "0.3", "--grace", "0.2")
    assert ocisbx(house, "session", "run", "work", "sleep", "60").returncode == 124
    line = ("session", "run", "--timeout", "60", "work", "sh", "-c", "echo up; sleep 60")
    with start(house, *line) as long:
        assert long.stdout is not None
        assert long.stdout.readline() == "up\n"
        long.send_signal(signal.SIGINT)
        assert long.wait(20) == 130
    again = ("session", "run", "--timeout", "60", "work", "true")
    assert ocisbx(house, *again).returncode == 0
    with Session.find("work") as session:
        assert session.is_running


@pytest.mark.parametrize(
    "words",
    [
        ["new", "word"],
        ["new", "--idle", "0"],
        ["new", "--lifetime", "soon"],
        ["new", "--worktree", "/nonexistent"],
        ["new", "--worktree", ".", "--workspace", "."],
        ["new", "--name", "a/b"],
        ["new", "-t"],
        ["new", "-d"],
        ["run", "nobody", "true"],
        ["run", "nobody"],
        ["rm"],
        ["rm", "nobody"],
        ["ls", "word"],
        ["mew"],
    ],
)
def test_what_is_wrong_is_told_and_leaves_nothing(house: Box, words: list[str]) -> None:
    done = ocisbx(house, "session", *words)
    assert (done.returncode, done.stdout) == (125, "")
    assert said(done).startswith("ocisbx: ")
    assert "Traceback" not in done.stderr
    assert Container.all() == []


def test_what_is_no_session_is_left_alone(house: Box) -> None:
    container = house.sandbox().create(["sleep", "60"], name="other").start()
    for verb in (("run", "other", "true"), ("rm", "other")):
        done = ocisbx(house, "session", *verb)
        assert (done.returncode, "other is not a session" in done.stderr) == (125, True)
    assert container.state is State.RUNNING
    assert json.loads(ocisbx(house, "session", "ls", "--json").stdout) == []


def test_it_ends_when_it_is_idle(house: Box) -> None:
    ocisbx(house, "session", "new", "--name", "short", "--idle", "0.5")
    assert eventually(lambda: Container.find("short").state is State.EXITED)
    assert "cancelled" in ocisbx(house, "session", "ls").stdout + ocisbx(house, "ps", "-a").stdout
    refused = ocisbx(house, "session", "run", "short", "true")
    assert (refused.returncode, "has ended" in refused.stderr) == (125, True)
    assert ocisbx(house, "rm", "short").returncode == 0


def test_shell(house: Box) -> None:
    done = ocisbx(house, "shell", input="echo $((6 * 7)); touch made; exit 4\n")
    assert (done.returncode, done.stdout) == (4, "42\n")
    assert (house.workspace / "made").exists()
    assert ocisbx(house, "shell", "word").returncode == 125


def test_help_fits_a_screen(house: Box) -> None:
    lines = [["session", "--help"], ["shell", "--help"]]
    lines += [["session", verb, "--help"] for verb in ("new", "run", "ls", "rm")]
    for line in lines:
        done = ocisbx(house, *line)
        text = done.stdout.splitlines()
        assert done.returncode == 0
        assert len(text) <= 40
        assert max(map(len, text)) <= 80
        assert "ocisbx session" in done.stdout or line[0] == "shell"
