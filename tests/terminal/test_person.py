"""A person's terminal, relayed: `ocisbx run -it` and `shell`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.box import nap
from tests.command_line import ocisbx
from tests.terminal.driving import events, eventually
from tests.terminal.seat import Seat

if TYPE_CHECKING:
    from tests.box import Box


def run(box: Box, *words: str, **options: Any) -> Seat:
    return Seat(box, "run", "-it", "--runtime", box.runtime.path, *where(box), *words, **options)


def where(box: Box) -> tuple[str, str]:
    return ("--workspace", str(box.workspace))


def test_keys_and_pictures_pass(box: Box) -> None:
    with run(box, "--", "sh", "-c", "stty size; echo $TERM; tty; exec sh -i") as seat:
        seat.wait_for(b"30 90\r\nvt220\r\n")
        seat.wait_for(b"# ")
        assert seat.is_raw
        seat.type("echo a$((1+1))b\r")
        seat.wait_for(b"a2b\r\n")
        seat.wait_for(b"# ")
        seat.run_cat()
        # The payload's, not ours.
        seat.type(b"\x03")
        seat.wait_for(b"# ")
        seat.run_cat()
        seat.type(b"\x1a")
        seat.wait_for(b"Stopped")
        seat.type("fg\r")
        seat.is_read()
        seat.type(b"\x03")
        seat.wait_for(b"# ")
        seat.type("exit 7\r")
        assert seat.drain_until_end() == 7
        assert seat.is_as_before


def test_the_size_is_followed(box: Box) -> None:
    script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"
    with run(box, "--", "sh", "-c", script) as seat:
        seat.wait_for(b"up\r\n")
        seat.resize(41, 141)
        seat.wait_for(b"41 141\r\n")


def test_the_callers_terminal_does_not_enter(box: Box) -> None:
    script = "ls -l /proc/self/fd /dev/pts; readlink /proc/self/fd/0; cat /proc/self/stat"
    with run(box, "-e", "X=1", "--", "sh", "-c", script) as seat:
        theirs = os.ttyname(seat.terminal_fd)
        assert seat.drain_until_end() == 0
    # Its own is the first of its own.
    assert theirs == "/dev/pts/0" or theirs.encode() not in seat.shown


def init_of(mark: str) -> psutil.Process:
    """Process 1 of the container whose command holds `mark`: killed, it takes all with it."""
    found: list[psutil.Process] = []

    def look() -> bool:
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if words[:1] == ["/.ocisbx/init"] and mark in words:
                    found.append(process)
            except psutil.Error:
                continue
        return bool(found)

    assert eventually(look)
    return found[0]


def test_it_is_restored_when_the_container_is_killed(box: Box) -> None:
    # Of gVisor's processes the host sees none; there those inside may kill process 1.
    inside = box.runtime.name == "runsc"
    mark = nap()
    script = f"echo up; stty -echo raw; {'read x; kill -9 1; ' * inside}sleep {mark}"
    with run(box, "--", "sh", "-c", script, mark) as seat:
        seat.wait_for(b"up")
        assert eventually(lambda: seat.is_raw)
        if inside:
            seat.type(b"\n")
        else:
            init = init_of(mark)
            # That the payload runs is known to it, and told, once it waits again.
            assert eventually(lambda: init.status() == psutil.STATUS_SLEEPING)
            init.kill()
        assert seat.drain_until_end() == 137
        assert seat.is_as_before


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGINT, 130)]
)
def test_it_is_restored_when_we_are_ended(box: Box, number: signal.Signals, code: int) -> None:
    with run(box, "--", "sh", "-c", "echo up; sleep 60") as seat:
        seat.wait_for(b"up")
        assert eventually(lambda: seat.is_raw)
        seat.kill(number)
        assert seat.drain_until_end() == code
        assert seat.is_as_before


def test_it_is_restored_after_a_timeout_and_a_failure(box: Box) -> None:
    with run(box, "--timeout", "0.5", "--", "sleep", "60") as seat:
        assert seat.drain_until_end() == 124
        assert seat.is_as_before
        assert b"after 0.5 s\r\n" in seat.shown
    with run(box, "--", "no-such-program") as seat:
        assert seat.drain_until_end() == 127
        assert seat.is_as_before


def test_it_is_restored_while_we_are_stopped(box: Box) -> None:
    with run(box, "--", "sh", "-c", "echo up; read x; echo got $x; read y") as seat:
        seat.wait_for(b"up")
        assert eventually(lambda: seat.is_raw)
        seat.kill(signal.SIGTSTP)
        assert eventually(lambda: seat.state() == "T")
        assert seat.is_as_before
        seat.resize(20, 60)
        seat.kill(signal.SIGCONT)
        assert eventually(lambda: seat.is_raw)
        seat.type("x\r")
        seat.wait_for(b"got x\r\n")
        # SIGSTOP cannot be heard: a shell then sets its own modes, and we ours again.
        seat.kill(signal.SIGSTOP)
        assert eventually(lambda: seat.state() == "T")
        seat.restore()
        seat.kill(signal.SIGCONT)
        assert eventually(lambda: seat.is_raw)
        seat.type("y\r")
        assert seat.drain_until_end() == 0
        assert seat.is_as_before


def test_ctrl_c_before_the_payload_is_ours(box: Box) -> None:
    """Until it runs the terminal is not raw: a runtime that hangs can be interrupted."""
    bad = box.base / "hangs"
    bad.write_text(f"#!/bin/sh\ntouch {box.base}/begun\nexec sleep 60\n")
    bad.chmod(0o755)
    with Seat(box, "run", "-it", "--runtime", str(bad), *where(box), "--", "true") as seat:
        assert eventually((box.base / "begun").exists)
        assert seat.is_as_before
        seat.type(b"\x03")
        assert seat.drain_until_end() in (125, 130)


def test_a_shell_is_one(box: Box) -> None:
    with Seat(box, "shell", "--runtime", box.runtime.path, *where(box)) as seat:
        seat.wait_for(b"# ")
        seat.type("stty size; [ -t 0 ] && echo interactive$((1+1))\r")
        seat.wait_for(b"30 90\r\ninteractive2\r\n")
        seat.wait_for(b"# ")
        seat.type(b"\x04")
        assert seat.drain_until_end() == 0
        assert seat.is_as_before


def piped(box: Box, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "ocisbx", "run", "--runtime", box.runtime.path, *where(box),
         *words],
        input=text, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **box.environment},
    )  # fmt: skip


def test_without_a_person_what_comes_is_typed(box: Box) -> None:
    done = piped(box, "-it", "--", "sh", "-c", "cat; stty size; echo $TERM", text="a\nb")
    assert (done.returncode, done.stderr.count("ocisbx: ")) == (0, done.stderr.count("note: "))
    assert done.stdout.endswith("24 80\nxterm\n")
    done = piped(box, "-t", "--json", "--", "sh", "-c", "[ -t 1 ] && echo yes")
    assert json.loads(done.stdout)["stdout"] == "yes\r\n"


def test_a_transcript(box: Box) -> None:
    path = box.base / "cast"
    script = (
        "printf 'name: '; read n; stty -echo; printf 'pass: '; read p; stty echo; echo;"
        "trap 'echo sized; exit' WINCH; echo \"hi $n ${#p}\"; while :; do sleep 0.05; done"
    )
    with run(box, "--transcript", str(path), "--", "sh", "-c", script) as seat:
        seat.wait_for(b"name: ")
        seat.type("käthe\r")
        seat.wait_for(b"pass: ")
        for key in "s3cret\r":
            seat.type(key)
            time.sleep(0.02)
        seat.wait_for(b"hi k")
        seat.resize(40, 100)
        assert seat.drain_until_end() == 0
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "s3cret" not in text
    head, told = events(path)
    assert (head["version"], head["width"], head["height"]) == (2, 90, 30)
    assert head["env"] == {"TERM": "vt220"}
    by_code = {code: "".join(data for _, c, data in told if c == code) for code in "oimr"}
    assert by_code["i"] == "käthe\r"
    assert by_code["m"] == "input was hidden"
    assert by_code["r"] == "100x40"
    assert by_code["o"].endswith("hi käthe 6\r\nsized\r\n")
    assert [at for at, _, _ in told] == sorted(at for at, _, _ in told)


@pytest.mark.parametrize("asked", [("-t",), ()])
def test_a_transcript_that_cannot_be(box: Box, asked: tuple[str, ...]) -> None:
    path = box.base / "there"
    path.write_text("mine")
    done = piped(box, *asked, "--transcript", str(path), "--", "true")
    assert done.returncode == 125
    assert ("file exists" in done.stderr, "is of a terminal" in done.stderr) == (
        bool(asked),
        not asked,
    )
    assert path.read_text() == "mine"


def test_where_there_is_no_terminal(box: Box) -> None:
    done = ocisbx(box, "session", "new", "-t", "--runtime", box.runtime.path)
    assert (done.returncode, "a session has no terminal of its own" in done.stderr) == (125, True)


def has_server(name: str) -> bool:
    done = subprocess.run(["tmux", "-L", name, "ls"], check=False, capture_output=True)
    return done.returncode == 0


def test_under_tmux(box: Box) -> None:
    """A full-screen program in a container, as tmux shows it."""
    name = f"ocisbx-{nap()}"
    words = ("run", "-it", "--runtime", box.runtime.path, *where(box), "--", "vi", "file")
    line = shlex.join([sys.executable, "-P", "-m", "ocisbx", *words])

    def tmux(*words: str) -> str:
        return subprocess.run(
            ["tmux", "-L", name, *words], capture_output=True, text=True, check=True,
            env={**os.environ, **box.environment},
        ).stdout  # fmt: skip

    tmux("-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "20", line)
    try:
        assert eventually(lambda: '"file"' in tmux("capture-pane", "-p"))
        tmux("send-keys", "ihello from tmux", "Escape")
        assert eventually(lambda: "hello from tmux" in tmux("capture-pane", "-p"))
        tmux("send-keys", ":wq", "Enter")
        file = box.workspace / "file"
        # It is there before it is written.
        assert eventually(lambda: file.exists() and file.read_text() == "hello from tmux\n")
        # The server ends with its only window, and that with the container.
        assert eventually(lambda: not has_server(name))
    finally:
        subprocess.run(["tmux", "-L", name, "kill-server"], check=False, capture_output=True)


def test_an_output_that_cannot_be_written_is_said(box: Box) -> None:
    with open(os.devnull, "rb") as null:
        # Streams of one's own are in place of all that are captured.
        streams: dict[str, Any] = {
            "capture_output": False,
            "stdout": null,
            "stderr": subprocess.PIPE,
        }
        done = ocisbx(box, "run", "-t", "--", "true", **streams)
    assert done.returncode == 125
    assert "bug" not in done.stderr
    assert box.left() == []
