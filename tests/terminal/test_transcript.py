"""`--transcript` of terminals that are not the caller's own run: in the background, of `exec`."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import TYPE_CHECKING

import pytest

from ocisbx import Container
from tests.command_line import ocisbx
from tests.terminal.conftest import of_each_name
from tests.terminal.driving import events, eventually
from tests.terminal.seat import Seat
from tests.terminal.test_attach import DETACH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]

ASKS = (
    "printf 'name: '; read n; stty -echo; printf 'pass: '; read p; stty echo; echo;"
    'echo "hi $n ${#p}"; read x; stty size; read y'
)


def told(path: Path, code: str) -> str:
    return "".join(data for _, kind, data in events(path)[1] if kind == code)


@contextlib.contextmanager
def two_at(yard: Box) -> Iterator[tuple[Seat, Seat]]:
    with Seat(yard, "attach", "it") as one, Seat(yard, "attach", "it") as two:
        yield one, two


@pytest.mark.parametrize("waits", [False, True])
def test_in_the_background(yard: Box, *, waits: bool) -> None:
    path = yard.workspace / "cast"
    # By a path of the caller's, whose directory is not the supervisor's.
    words = ("-t", "--name", "it", "--transcript", "cast", "--", "sh", "-c", ASKS)
    done = ocisbx(yard, *(("create",) if waits else ("run", "-d")), *words)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    if waits:
        # Nothing is told before there is something.
        assert path.read_text() == ""
        assert ocisbx(yard, "start", "it").returncode == 0
    with two_at(yard) as (one, two):
        for seat in (one, two):
            seat.wait_for(b"name: ")
        one.type("käthe\r")
        two.wait_for(b"pass: ")
        # Of two at one prompt neither is told.
        one.type("s3")
        assert eventually(lambda: told(path, "m"))
        two.type("cret\r")
        one.wait_for(b"hi k")
        two.resize(40, 100)
        assert eventually(lambda: told(path, "r").endswith("100x40"))
        one.type("visible\r")
        one.wait_for(b"40 100\r\n")
        two.type(DETACH)
        assert two.drain_until_end() == 0
        one.type("\r")
        assert one.drain_until_end() == 0
    head, passed = events(path)
    assert (head["version"], head["width"], head["height"]) == (2, 80, 24)
    assert head["env"] == {"TERM": "xterm"}
    assert "s3" not in path.read_text()
    assert "cret" not in path.read_text()
    assert told(path, "i") == "käthe\rvisible\r\r"
    assert told(path, "m") == "input was hidden"
    assert passed[-1][2].endswith("\r\n")
    # Of the nudge at which a program draws all anew nothing is told.
    assert [data for _, kind, data in passed if kind == "r"] == ["90x30", "100x40"]
    # All that is in the log, and in its order.
    assert told(path, "o").encode() == Container.find("it").logs()
    assert "hi käthe 6\r\n" in told(path, "o")


def test_what_a_file_types_is_told(yard: Box) -> None:
    (yard.workspace / "lines").write_text("file\n")
    with (yard.workspace / "lines").open() as lines:
        words = ("-d", "-it", "--name", "it", "--transcript", "cast", "--", "cat")
        assert ocisbx(yard, "run", *words, stdin=lines).returncode == 0
    assert ocisbx(yard, "wait", "it").returncode == 0
    assert told(yard.workspace / "cast", "i") == "file\n\x04"


def test_a_full_disk_ends_it_and_nothing_else(yard: Box) -> None:
    path = yard.workspace / "cast"
    words = ("-t", "--name", "it", "--transcript", "cast", "--", "sh", "-c", ASKS)
    assert ocisbx(yard, "run", "-d", *words).returncode == 0
    container = Container.find("it")
    with Seat(yard, "attach", "it") as seat:
        seat.wait_for(b"name: ")
        assert eventually(lambda: "name: " in told(path, "o"))
        seat.resize(30, 91)
        assert eventually(lambda: "91x30" in told(path, "r"))
        full = path.stat().st_size
        # The log is shorter than that, and goes on.
        supervisor = container.record.supervisor.pid
        resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
        seat.type("ada\r")
        seat.wait_for(b"pass: ")
        seat.type("\r")
        seat.wait_for(b"hi ada 0\r\n")
        held = os.listdir(f"/proc/{supervisor}/fd")
        links = [os.readlink(f"/proc/{supervisor}/fd/{one}") for one in held]
        assert str(path) not in links
        # There is room again for its verdict, and the transcript does not begin anew.
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(supervisor, resource.RLIMIT_FSIZE, unlimited)
        seat.type("\r\r")
        assert seat.drain_until_end() == 0
    assert path.stat().st_size == full
    assert b"hi ada 0\r\n" in container.logs()


@pytest.mark.parametrize("verb", [("run", "-d"), ("create",)])
def test_one_that_cannot_be(yard: Box, verb: tuple[str, ...]) -> None:
    (yard.workspace / "there").write_text("mine")
    refused = {
        ("-t", "--transcript", "there"): "file exists",
        ("-t", "--transcript", "no/where"): "no such file",
        ("--transcript", "new"): "a transcript is of a terminal",
    }
    for words, reason in refused.items():
        done = ocisbx(yard, *verb, *words, "--", "true")
        assert (done.returncode, reason in done.stderr) == (125, True), done.stderr
    assert (yard.workspace / "there").read_text() == "mine"
    assert not (yard.workspace / "new").exists()
    assert Container.all() == []


@pytest.mark.parametrize("verb", [("exec",), ("session", "run")])
def test_of_a_further_command(yard: Box, verb: tuple[str, ...]) -> None:
    path = yard.workspace / "cast"
    if verb == ("exec",):
        done = ocisbx(yard, "run", "-d", "--name", "it", "--", "sleep", "1000")
    else:
        done = ocisbx(yard, "session", "new", "--name", "it")
    assert done.returncode == 0, done.stderr
    words = ("-it", "--transcript", str(path), "it", "sh", "-c", ASKS)
    with Seat(yard, *verb, *words) as seat:
        seat.wait_for(b"name: ")
        seat.type("käthe\r")
        seat.wait_for(b"pass: ")
        seat.type("s3cret\r")
        seat.wait_for(b"hi k")
        seat.resize(40, 100)
        assert eventually(lambda: told(path, "r"))
        seat.type("visible\r")
        seat.wait_for(b"40 100\r\n")
        seat.type("\r")
        assert seat.drain_until_end() == 0
    assert path.stat().st_mode & 0o777 == 0o600
    head, _ = events(path)
    assert (head["width"], head["height"], head["env"]) == (90, 30, {"TERM": "vt220"})
    assert "s3cret" not in path.read_text()
    # Where nobody can ask whether a password is asked for, all that is typed may be one.
    asks = yard.runtime.name != "runsc"
    assert told(path, "i") == ("käthe\rvisible\r\r" if asks else "")
    assert told(path, "m") == "input was hidden"
    assert told(path, "r") == "100x40"
    assert "hi käthe 6\r\n" in told(path, "o")
    again = ocisbx(yard, *verb, "-t", "--transcript", str(path), "it", "true")
    assert (again.returncode, "file exists" in again.stderr) == (125, True)
    without = ocisbx(yard, *verb, "--transcript", str(yard.base / "new"), "it", "true")
    assert (without.returncode, "add -t" in without.stderr) == (125, True)
    assert not (yard.base / "new").exists()
