"""`exec -t` and `session run -t`: a terminal for a command in a container that is there already."""

from __future__ import annotations

import fcntl
import signal
from typing import TYPE_CHECKING

import pytest

from ocisbx import Container
from ocisbx.background.used import USED_FILE
from ocisbx.bundle.record import directory_of
from tests.command_line import ocisbx, said
from tests.terminal.conftest import of_each_name
from tests.terminal.driving import eventually
from tests.terminal.seat import Seat

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]


@pytest.fixture(params=["exec", "session"])
def words(request: pytest.FixtureRequest, yard: Box) -> Iterator[tuple[str, ...]]:
    """How a command is run in a container by the name of `it`."""
    if request.param == "exec":
        # One whose own command has a terminal, too.
        done = ocisbx(yard, "run", "-d", "-t", "--name", "it", "--", "sleep", "1000")
        yield ("exec",)
    else:
        done = ocisbx(yard, "session", "new", "--name", "it")
        yield ("session", "run")
    assert done.returncode == 0, done.stderr


def sit(yard: Box, words: tuple[str, ...], *command: str) -> Seat:
    return Seat(yard, *words, "-it", "it", *command)


def test_keys_and_pictures_pass(yard: Box, words: tuple[str, ...]) -> None:
    with sit(yard, words, "sh", "-c", "stty size; echo $TERM; tty; PS1='$ ' exec sh -i") as seat:
        seat.wait_for(b"30 90\r\nvt220\r\n/dev/pts/")
        seat.wait_for(b"$ ")
        assert seat.is_raw
        seat.run_cat()
        seat.type(b"\x03")
        seat.wait_for(b"$ ")
        seat.run_cat()
        seat.type(b"\x1a")
        seat.wait_for(b"Stopped")
        seat.wait_for(b"$ ")
        seat.type("fg\r")
        seat.is_read()
        seat.type(b"\x03")
        seat.wait_for(b"$ ")
        seat.type("echo $((40 + 2)) > /dev/tty; exit 7\r")
        seat.wait_for(b"42\r\n")
        assert seat.drain_until_end() == 7
        assert seat.is_as_before
    assert Container.find("it").state == "running"


def test_the_size_is_followed(yard: Box, words: tuple[str, ...]) -> None:
    script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"
    with sit(yard, words, "sh", "-c", script) as seat:
        seat.wait_for(b"up\r\n")
        seat.resize(41, 141)
        seat.wait_for(b"41 141\r\n")


@pytest.mark.parametrize("words", [("exec",), ("session", "run")], ids=" ".join)
def test_a_size_that_changes_while_it_starts_is_followed(yard: Box, words: tuple[str, ...]) -> None:
    """Its start is held up where one that ends when nobody uses it is told that it is used."""
    done = ocisbx(yard, "session", "new", "--idle", "3600", "--name", "it")
    assert done.returncode == 0, done.stderr
    used = directory_of(Container.find("it").id) + "/" + USED_FILE
    script = "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done"
    with open(used, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with sit(yard, words, "sh", "-c", script) as seat:
            assert eventually(lambda: waits_for_a_lock(seat.process.pid))
            seat.resize(41, 141)
            fcntl.flock(file, fcntl.LOCK_UN)
            seat.wait_for(b"41 141\r\n")


def waits_for_a_lock(pid: int) -> bool:
    with open("/proc/locks", encoding="ascii") as file:
        return any(line.split()[1:6:4] == ["->", str(pid)] for line in file)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_restored_when_we_are_ended(
    yard: Box, words: tuple[str, ...], number: signal.Signals
) -> None:
    with sit(yard, words, "sh", "-c", "echo up; exec sleep 61861") as seat:
        seat.wait_for(b"up")
        assert eventually(lambda: seat.is_raw)
        seat.kill(number)
        assert seat.drain_until_end() == 130
        assert seat.is_as_before
    assert Container.find("it").state == "running"
    assert eventually(lambda: b"61861" not in Container.find("it").exec(["ps", "ax"]).stdout)


def test_it_is_restored_when_the_container_ends(yard: Box, words: tuple[str, ...]) -> None:
    with sit(yard, words, "sh", "-c", "echo up; sleep 60") as seat:
        seat.wait_for(b"up")
        assert eventually(lambda: seat.is_raw)
        Container.find("it").stop(0)
        assert seat.drain_until_end() == 125
        assert seat.is_as_before
        assert b"has ended" in seat.shown


def test_who_is_killed_takes_the_command_along(yard: Box, words: tuple[str, ...]) -> None:
    with sit(yard, words, "sh", "-c", "echo up; exec sleep 61862") as seat:
        seat.wait_for(b"up")
        seat.kill(signal.SIGKILL)
        seat.process.wait()
    assert eventually(lambda: b"61862" not in Container.find("it").exec(["ps", "ax"]).stdout)
    assert Container.find("it").state == "running"


def test_without_a_person(yard: Box, words: tuple[str, ...]) -> None:
    def run(*more: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return ocisbx(yard, *words, *more, input=text)

    done = run("-it", "it", "sh", "-c", "read x; echo got $x; stty size; cat", text="a\nb")
    assert (done.returncode, said(done)) == (0, "")
    assert "got a\n24 80\n" in done.stdout
    assert done.stdout.endswith("b")
    # And what has no -t has none.
    assert run("it", "tty").stdout == "not a tty\n"
    assert run("-t", "it", "nosuchprogram").returncode == 127
    assert run("-t", "--timeout", "0.5", "it", "sleep", "60").returncode == 124
    assert run("-t", "-w", "/nowhere", "it", "true").returncode == 125
    assert run("-t", "--json", "it", "tty").stdout.count("/dev/pts/") == 1


def test_keys_that_nobody_reads_do_not_hide_the_end(yard: Box, words: tuple[str, ...]) -> None:
    """They are many: who passes them on ends with some unread."""
    run = (*words, "-it", "--timeout", "1", "it", "sleep", "60")
    done = ocisbx(yard, *run, input="y\n" * 500_000)
    assert done.returncode == 124
    assert "timed out" in done.stderr


def test_two_at_once_have_one_each(yard: Box, words: tuple[str, ...]) -> None:
    command = ("sh", "-c", "tty; cat")
    with sit(yard, words, *command) as one, sit(yard, words, *command) as two:
        for seat in (one, two):
            seat.wait_for(b"/dev/pts/")
        one.type("mine\r")
        one.wait_for(b"mine\r\nmine\r\n")
        two.type("yours\r")
        two.wait_for(b"yours\r\nyours\r\n")
        assert b"mine" not in two.shown
        for seat in (one, two):
            seat.type(b"\x04")
            assert seat.drain_until_end() == 0
