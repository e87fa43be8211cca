"""needs_user of `ocisbx expect`: a person in place, one who attaches, and nobody."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.command_line import ocisbx, start
from tests.terminal.conftest import of_each_name
from tests.terminal.driving import descriptors_left, events, eventually
from tests.terminal.seat import Seat
from tests.terminal.test_attach import DETACH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]

PROGRAM = """
printf 'name: '; read n; stty -echo; printf 'Password: '; read p; stty echo; echo
[ "$p" = s3cret ] && echo "welcome $n, $(stty size)" || echo denied
read x; echo "x is $x"
"""
SCRIPT = f"""
command = ["sh", "-c", '''{PROGRAM}''']
size = [24, 80]
[[steps]]
expect_exact = "name: "
[[steps]]
sendline = "me"
[[steps]]
cases = [
  {{ exact = "Password: ", action = "needs_user", message = "the password, please" }},
  {{ exact = "welcome me, 24 80", action = "next" }},
  {{ exact = "denied", action = "fail" }},
]
[[steps]]
sendline = "done"
[[steps]]
expect_exact = "x is done"
"""

ECHOING = """
command = ["sh", "-c", "printf 'code: '; read c; sleep 0.3; echo thanks; read x; echo x is $x"]
[[steps]]
cases = [
  { exact = "code: ", action = "needs_user", message = "the password, please" },
  { exact = "thanks", action = "next" },
]
[[steps]]
sendline = "done"
[[steps]]
expect_exact = "x is done"
"""


@pytest.fixture
def script(box: Box) -> Path:
    path = box.workspace / "script.toml"
    path.write_text(SCRIPT)
    return path


def test_in_place(box: Box, script: Path) -> None:
    script.write_text(SCRIPT.replace("welcome me, 24 80", "welcome me, 30 90"))
    cast = box.base / "cast"
    options = ("--json", "--transcript", str(cast), "--runtime", box.runtime.path)
    with Seat(box, "expect", *options, str(script)) as seat:
        seat.wait_for(b"the password, please\r\n  ctrl-p,ctrl-q")
        # The line at which the program waits.
        seat.wait_for(b"Password: ")
        assert eventually(lambda: seat.is_raw)
        seat.type("s3cret\r")
        # The size is theirs.
        seat.wait_for(b"welcome me, 30 90")
        seat.type(DETACH)
        seat.wait_for(b"the script goes on")
        assert seat.drain_until_end() == 0
        assert seat.is_as_before
    text = seat.shown.decode()
    report = json.loads(text[text.index("{") :])
    assert report["outcome"] == "ok"
    assert "s3cret" not in text
    # What came while they typed is in no report.
    assert "welcome" not in report["steps"][2]["before"]
    # Nor in the transcript, where an echo would tell what they type.
    kept = cast.read_text()
    assert "welcome" not in kept
    assert "s3cret" not in kept
    # Theirs, and the one that it had; without the nudge at which a program draws all anew.
    sizes = [data for _, kind, data in events(cast)[1] if kind == "r"]
    assert sizes == ["90x30", "80x24"]
    assert (
        kept.index("Password: ") < kept.index("a person had the terminal") < kept.index("x is done")
    )
    assert box.left() == []


@contextlib.contextmanager
def waiting(box: Box, script: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`ocisbx expect` that waits for a person, and how they come."""
    with start(
        box, "expect", "--json", "--wait-user", "20", *more, str(script), stdin=subprocess.DEVNULL
    ) as process:
        assert process.stderr is not None
        said = ""
        while "ocisbx attach " not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        assert "a person is needed: the password, please" in said
        found = re.search("ocisbx attach ([0-9a-f]+)", said)
        assert found
        yield process, found[1]


def test_from_elsewhere(box: Box, script: Path) -> None:
    script.write_text(SCRIPT.replace("welcome me, 24 80", "welcome me, 30 90"))
    with waiting(box, script) as (process, container_id):
        with Seat(box, "attach", container_id) as seat:
            seat.wait_for(b"the password, please\r\n")
            seat.wait_for(b"Password: ")
            assert seat.is_raw
            seat.type("s3cret\r")
            seat.wait_for(b"welcome me, 30 90")
            seat.type(DETACH)
            assert seat.drain_until_end() == 0
            assert seat.is_as_before
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0, out
    assert "s3cret" not in out
    assert json.loads(out)["outcome"] == "ok"
    assert box.left() == []


def test_what_is_typed_just_before_leaving(box: Box, script: Path) -> None:
    """Its echo comes when nobody is there any more: it is a person's all the same."""
    script.write_text(ECHOING)
    cast = box.base / "cast"
    with waiting(box, script, "--transcript", str(cast)) as (process, container_id):
        with Seat(box, "attach", container_id) as seat:
            seat.wait_for(b"code: ")
            seat.type(b"otp1234\r" + DETACH)
            assert seat.drain_until_end() == 0
        out, _ = process.communicate(timeout=20)
    assert json.loads(out)["outcome"] == "ok"
    assert "otp1234" not in out
    kept = cast.read_text()
    assert "otp1234" not in kept
    assert kept.index("code: ") < kept.index("a person had the terminal") < kept.index("x is done")


def test_who_is_killed_has_not_said_that_it_is_done(box: Box, script: Path) -> None:
    script.write_text(SCRIPT.replace("welcome me, 24 80", "welcome me, 30 90"))
    with waiting(box, script) as (process, container_id):
        with Seat(box, "attach", container_id) as first:
            first.wait_for(b"Password: ")
            first.kill(signal.SIGKILL)
            first.process.wait()
        time.sleep(0.5)
        assert process.poll() is None
        with Seat(box, "attach", container_id) as one, Seat(box, "attach", container_id) as two:
            one.wait_for(b"Password: ")
            two.wait_for(b"Password: ")
            one.type("s3cret\r")
            two.wait_for(b"welcome me")
            two.type(DETACH)
            # For the other one it is over, too.
            one.wait_for(b"the script goes on")
            assert (one.drain_until_end(), two.drain_until_end()) == (0, 0)
            assert one.is_as_before
        out, _ = process.communicate(timeout=20)
    assert json.loads(out)["outcome"] == "ok"


def test_the_program_ends_while_they_type(box: Box, script: Path) -> None:
    script.write_text(
        "command = ['sh', '-c', 'read x; exit 3']\n"
        "[[steps]]\nneeds_user = 'the password, please'\n[[steps]]\nexpect = 'never'\n"
    )
    with waiting(box, script) as (process, container_id):
        with Seat(box, "attach", container_id) as seat:
            seat.wait_for(b"the password")
            assert eventually(lambda: seat.is_raw)
            seat.type("\r")
            assert seat.drain_until_end() == 0
            assert b"the program has ended" in seat.shown
            assert seat.is_as_before
        out, _ = process.communicate(timeout=20)
    report = json.loads(out)
    assert (process.returncode, report["outcome"]) == (1, "ended")


def test_the_driver_is_killed_while_they_type(box: Box, script: Path) -> None:
    with (
        waiting(box, script) as (process, container_id),
        Seat(box, "attach", container_id) as seat,
    ):
        seat.wait_for(b"Password: ")
        assert eventually(lambda: seat.is_raw)
        process.kill()
        assert seat.drain_until_end() == 0
        assert b"the script was ended" in seat.shown
        assert seat.is_as_before
    # Also the socket at which they came.
    assert eventually(lambda: ocisbx(box, "gc").returncode == 0 and box.left() == [])
    assert list((box.run_directory / "ocisbx" / "controls").iterdir()) == []


def test_in_place_ended_by_a_signal(box: Box, script: Path) -> None:
    with Seat(box, "expect", "--runtime", box.runtime.path, str(script)) as seat:
        seat.wait_for(b"Password: ")
        assert eventually(lambda: seat.is_raw)
        seat.kill(signal.SIGTERM)
        assert seat.drain_until_end() == 130
        assert seat.is_as_before
    assert box.left() == []


def test_nobody_comes(box: Box, script: Path) -> None:
    done = ocisbx(box, "expect", str(script), stdin=subprocess.DEVNULL)
    assert (done.returncode, "nobody is there to type" in done.stdout) == (3, True)
    done = ocisbx(box, "expect", "--wait-user", "0.5", str(script), stdin=subprocess.DEVNULL)
    assert (done.returncode, "nobody was there for 0.5 s" in done.stdout) == (3, True)
    assert box.left() == []


def test_who_is_not_waited_for(box: Box, script: Path) -> None:
    with start(box, "run", "--name", "mine", "--", "sleep", "60") as process:
        assert eventually(lambda: "mine" in ocisbx(box, "ps").stdout)
        done = ocisbx(box, "attach", "mine")
        assert (done.returncode, "does not run in the background" in done.stderr) == (125, True)
        process.terminate()
        process.communicate()
    assert ocisbx(box, "attach", "nobody").returncode == 125


def test_a_full_screen_is_painted_for_who_comes(box: Box, script: Path) -> None:
    script.write_text(
        "command = ['sh', '-c', '''printf '\\033[2J\\033[5;9HPIN here:%1500s\\033[5;19H' ''; "
        "read x; echo got $x''']\n"
        "[[steps]]\nexpect = 'PIN here'\n[[steps]]\nneeds_user = 'the password, please'\n"
        "[[steps]]\nexpect = 'got 42'\n"
    )
    with waiting(box, script) as (process, container_id):
        with Seat(box, "attach", container_id) as seat:
            seat.wait_for(b"\x1b[H\x1b[2J")
            seat.wait_for(b"\r\n" * 4 + b"        PIN here:")
            seat.wait_for(b"\x1b[5;19H")
            seat.type("42\r")
            seat.wait_for(b"got 42")
            seat.type(DETACH)
            assert seat.drain_until_end() == 0
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0, out


# Does not read what is typed, and goes on.
DEAF = """
command = ["sh", "-c", "stty raw -echo; printf up; while :; do sleep 0.2; printf tick; done"]
[[steps]]
expect_exact = "up"
[[steps]]
needs_user = "the password, please"
[[steps]]
expect_exact = "tick"
"""


def test_keys_that_nobody_reads_keep_nobody_in_place(box: Box, script: Path) -> None:
    script.write_text(DEAF)
    with Seat(box, "expect", "--json", "--runtime", box.runtime.path, str(script)) as seat:
        seat.wait_for(b"the password, please")
        assert eventually(lambda: seat.is_raw)
        seat.type_until_stuck()
        seat.type_in_time(DETACH)
        assert seat.drain_until_end() == 0
        assert b'"outcome": "ok"' in seat.shown
        assert seat.is_as_before


# More than the program's terminal takes, and less than waits in the connection; more than both.
@pytest.mark.parametrize("size", [90_000, 600_000])
def test_who_leaves_while_keys_wait_has_said_that_it_is_done(
    box: Box, script: Path, size: int
) -> None:
    script.write_text(DEAF)
    with waiting(box, script) as (process, container_id):
        with Seat(box, "attach", container_id) as seat:
            seat.wait_for(b"the password, please")
            assert eventually(lambda: seat.is_raw)
            seat.type_in_time(b"x" * size)
            seat.type_in_time(DETACH)
            assert seat.drain_until_end() == 0
        out, _ = process.communicate(timeout=15)
    assert (process.returncode, json.loads(out)["outcome"]) == (0, "ok")


def test_a_script_waits_for_nobody_who_does_not_type(box: Box, script: Path) -> None:
    with waiting(box, script) as (process, container_id):
        done = ocisbx(box, "attach", "--no-stdin", container_id)
        assert (done.returncode, "for somebody who types" in done.stderr) == (125, True)
        assert process.poll() is None
        process.terminate()


def test_a_size_that_is_none_is_not_given_back(box: Box, script: Path) -> None:
    script.write_text(
        "command = ['sh', '-c', 'stty rows 0 cols 0; printf up; read x; stty size; read y']\n"
        "[[steps]]\nexpect = 'up'\n[[steps]]\nneeds_user = 'the password, please'\n"
        "[[steps]]\nsendline = 'x'\n[[steps]]\nexpect_exact = '24 80'\n"
    )
    with waiting(box, script) as (process, container_id):
        with Seat(box, "attach", container_id) as seat:
            seat.wait_for(b"up")
            seat.type(DETACH)
            assert seat.drain_until_end() == 0
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, json.loads(out)["outcome"]) == (0, "ok")


def test_the_script_outlives_what_those_who_come_cannot_have(box: Box, script: Path) -> None:
    with waiting(box, script) as (process, container_id):
        with descriptors_left(1, process.pid, container_id):
            done = ocisbx(box, "attach", container_id)
            assert (done.returncode, "nobody more can attach" in done.stderr) == (125, True)
        with Seat(box, "attach", container_id) as seat:
            seat.wait_for(b"Password: ")
            seat.type(b"wrong\r" + DETACH)
            assert seat.drain_until_end() == 0
        out, _ = process.communicate(timeout=20)
    assert json.loads(out)["outcome"] == "fail"
