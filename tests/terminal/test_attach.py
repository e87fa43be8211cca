"""`run -d -t` and `attach`: a terminal in the background, and the people who sit down at it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from ocisbx import Container
from ocisbx.background.attached import Attached
from ocisbx.background.packets import connect
from ocisbx.bundle.record import RESULT_FILE
from tests.box import nap
from tests.command_line import environment, ocisbx, start
from tests.terminal.conftest import of_each_name
from tests.terminal.driving import descriptors_left, eventually
from tests.terminal.seat import Seat

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]
DETACH = b"\x10\x11"
SHELL = ("sh", "-c", "PS1='$ ' exec sh -i")


def detached(yard: Box, *words: str, name: str = "it") -> Container:
    done = ocisbx(yard, "run", "-d", "-t", "--name", name, *words)
    assert done.returncode == 0, done.stderr
    return Container.find(name)


def sit(yard: Box, *words: str, name: str = "it") -> Seat:
    return Seat(yard, "attach", *words, name)


def shell(yard: Box) -> Container:
    container = detached(yard, "--", *SHELL)
    assert eventually(lambda: container.logs().endswith(b"$ "))
    return container


def test_sit_down_leave_and_come_back(yard: Box) -> None:
    container = shell(yard)
    with sit(yard) as seat:
        # The line at which it waits.
        seat.wait_for(b"$ ")
        assert seat.is_raw
        seat.type("stty size; x=a$((1+1))b\r")
        seat.wait_for(b"30 90\r\n")
        seat.type(DETACH)
        assert seat.drain_until_end() == 0
        assert b"ocisbx: detached, it goes on" in seat.shown
        assert seat.is_as_before
    assert container.state == "running"
    with sit(yard) as seat:
        seat.wait_for(b"$ ")
        # Ctrl-C is the shell's.
        seat.run_cat()
        seat.type(b"\x03")
        seat.wait_for(b"$ ")
        seat.type("echo $x; exit 6\r")
        seat.wait_for(b"a2b\r\n")
        assert seat.drain_until_end() == 6
        assert seat.is_as_before
    assert ocisbx(yard, "wait", "it").returncode == 6
    assert b"30 90\r\n" in container.logs()


def test_several_sit_at_it(yard: Box) -> None:
    shell(yard)
    with sit(yard) as one, sit(yard) as two:
        one.wait_for(b"$ ")
        two.wait_for(b"$ ")
        one.type("echo from-$((1))\r")
        for seat in (one, two):
            seat.wait_for(b"from-1\r\n")
        two.type("echo from-$((2))\r")
        for seat in (one, two):
            seat.wait_for(b"from-2\r\n")
        # The size is that of who resized last.
        for resizing, looking, rows in ((one, two, 20), (two, one, 21)):
            resizing.resize(rows, 70)
            wanted = f"{rows} 70"
            until = f'until [ "$(stty size)" = "{wanted}" ]; do sleep 0.05; done'
            looking.type(f"{until}; stty size\r")
            looking.wait_for(f"{wanted}\r\n".encode())
        one.type(DETACH)
        assert one.drain_until_end() == 0
        two.type("exit 3\r")
        assert two.drain_until_end() == 3
        assert one.is_as_before
        assert two.is_as_before


def test_the_size_is_followed(yard: Box) -> None:
    script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"
    detached(yard, "--", "sh", "-c", script)
    with sit(yard) as seat:
        seat.wait_for(b"30 90\r\n")
        seat.resize(41, 141)
        seat.wait_for(b"41 141\r\n")


def test_keys_of_ones_own(yard: Box) -> None:
    detached(yard, "--", "sh", "-c", "stty raw -echo; printf up; exec cat -v")
    with sit(yard, "--detach-keys", "ctrl-a,x") as seat:
        seat.wait_for(b"up")
        # The default ones are the program's, and what only began like ours.
        seat.type(b"\x10\x11\x01y\x01\x01")
        seat.wait_for(b"^P^Q^Ay^A")
        seat.type(b"x")
        assert seat.drain_until_end() == 0
    for wrong in ("", "ctrl-", "ctrl-1", "ab", "a,,b", "ctrl-é"):
        done = ocisbx(yard, "attach", "--detach-keys", wrong, "it")
        assert (done.returncode, "not a list of keys" in done.stderr) == (125, True)


def test_who_only_watches(yard: Box) -> None:
    container = detached(yard, "--", "sh", "-c", "printf 'ready> '; read x; echo got $x; read y")
    with sit(yard, "--no-stdin") as watching:
        watching.wait_for(b"ready> ")
        assert watching.is_as_before
        watching.type("nothing\r")
        with sit(yard) as seat:
            seat.wait_for(b"ready> ")
            seat.type("typed\r")
            seat.wait_for(b"got typed")
        watching.wait_for(b"got typed")
        watching.kill(signal.SIGINT)
        assert watching.drain_until_end() == 130
    assert b"nothing" not in container.logs()
    assert container.state == "running"


def test_who_does_not_read_holds_nobody_up(yard: Box) -> None:
    """A stopped person, a flood, and another one who sees it to the end."""
    script = "read x; seq 400000; echo done-$((1)); read y; echo more-$((2)); read z"
    detached(yard, "--max-output", "1M", "--", "sh", "-c", f"printf 'ready> '; {script}")
    with sit(yard) as stuck, sit(yard) as seat:
        for one in (stuck, seat):
            one.wait_for(b"ready> ")
        stuck.kill(signal.SIGSTOP)
        try:
            seat.type("go\r")
            # Also what is beyond the cap of the log.
            seat.wait_for(b"done-1\r\n")
        finally:
            stuck.kill(signal.SIGCONT)
        stuck.wait_for(b" bytes were not shown\r\n")
        seat.type("\r")
        stuck.wait_for(b"more-2\r\n")
        stuck.type(DETACH)
        assert stuck.drain_until_end() == 0


def test_nothing_typed_is_in_a_log(yard: Box) -> None:
    script = "stty -echo; printf 'pass: '; read p; stty echo; echo; echo ${#p}; read x"
    container = detached(yard, "--", "sh", "-c", script)
    with sit(yard) as seat:
        seat.wait_for(b"pass: ")
        seat.type("s3cret\r")
        seat.wait_for(b"6\r\n")
    found = subprocess.run(
        ["grep", "-r", "s3cret", str(yard.base)], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""
    assert container.logs().replace(b"\r\n", b"|") == b"pass: |6|"


def test_without_a_person_what_comes_is_typed(yard: Box) -> None:
    detached(yard, "--", "sh", "-c", "read x; echo got $x; read y; echo and $y; exit 4")
    attached = start(yard, "attach", "it", stdin=subprocess.PIPE)
    out, err = attached.communicate("one\ntwo\n", timeout=20)
    assert (attached.returncode, err) == (4, "")
    assert out.endswith("and two\n")


def test_a_file_is_typed_first(yard: Box) -> None:
    read_fd, write_fd = os.pipe()
    with open(read_fd, "rb") as reader, open(write_fd, "wb") as writer:
        done = ocisbx(
            yard, "run", "-d", "-i", "-t", "--name", "it", "--",
            "sh", "-c", "read x; echo got $x; read y; echo and $y", stdin=reader,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        writer.write(b"file\n")
    container = Container.find("it")
    assert eventually(lambda: b"got file" in container.logs())


def test_the_input_of_one_without_a_terminal(yard: Box) -> None:
    """-i at a terminal leaves that the caller's: the container's input is who attaches."""
    script = "read x; echo got $x; read y; echo and $y >&2; exit 5"
    with Seat(yard, "run", "-d", "-i", "--name", "it", "--workspace", "none", "--runtime",
              yard.runtime.path, "--", "sh", "-c", script) as seat:  # fmt: skip
        assert seat.drain_until_end() == 0
    container = Container.find("it")
    first = start(yard, "attach", "it", stdin=subprocess.PIPE)
    assert first.stdin is not None
    first.stdin.write("one\n")
    # Its end is not the container's: others may come.
    first.stdin.close()
    first.stdin = None
    assert eventually(lambda: container.logs() == b"got one\n")
    second = start(yard, "attach", "it", stdin=subprocess.PIPE)
    out, err = second.communicate("two\n", timeout=20)
    assert (second.returncode, out, err) == (5, "", "and two\n")
    assert first.communicate(timeout=20) == ("got one\n", "and two\n")
    assert first.returncode == 5


def test_one_with_neither_shows_what_it_prints(yard: Box) -> None:
    done = ocisbx(yard, "run", "-d", "--name", "it", "--", "sh", "-c", "sleep 5; cat; exit 2")
    assert done.returncode == 0
    done = ocisbx(yard, "attach", "it", input="nobody reads this\n")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_full_screen_is_drawn_for_who_comes(yard: Box) -> None:
    """vi in the background, as tmux shows it."""
    detached(yard, "--", "vi", "file")
    name = f"ocisbx-attach-{nap()}"

    def tmux(*words: str) -> str:
        return subprocess.run(
            ["tmux", "-L", name, *words], capture_output=True, text=True, check=True,
            env=environment(yard, {"TERM": "xterm", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}),
        ).stdout  # fmt: skip

    def shown() -> list[str]:
        return tmux("capture-pane", "-p").rstrip("\n").split("\n")

    line = shlex.join([sys.executable, "-P", "-m", "ocisbx", "attach", "it"])
    tmux("-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "20", "sh")
    try:
        for before, typed, after in (
            ("~", "first", ["first"]),
            ("first", "second", ["first", "second"]),
        ):
            tmux("send-keys", "clear", "Enter")
            assert eventually(lambda: "All" not in tmux("capture-pane", "-p"))
            tmux("send-keys", line, "Enter")
            # What was written before they came.
            assert eventually(lambda: shown()[0] == "" and "All" in shown()[-1])
            assert eventually(lambda wanted=before: shown()[1:2] == [wanted])  # type: ignore[misc]
            tmux("send-keys", "o" + typed, "Escape")
            assert eventually(lambda wanted=after: shown()[1 : 1 + len(wanted)] == wanted)  # type: ignore[misc]
            tmux("send-keys", "C-p", "C-q")
            assert eventually(lambda: "detached" in tmux("capture-pane", "-p"))
    finally:
        subprocess.run(["tmux", "-L", name, "kill-server"], check=False, capture_output=True)


def test_only_so_many(yard: Box) -> None:
    container = shell(yard)
    with contextlib.ExitStack() as stack:
        people = [Attached.to(container.id, None)[1] for _ in range(32)]
        for one in people:
            assert one is not None
            stack.enter_context(one)
        done = ocisbx(yard, "attach", "it")
        assert (done.returncode, "are attached to it already" in done.stderr) == (125, True)
    assert eventually(lambda: ocisbx(yard, "attach", "it", input="exit 3\n").returncode == 3)


def test_the_container_outlives_what_those_who_come_cannot_have(yard: Box) -> None:
    container = shell(yard)
    with descriptors_left(1, container.record.supervisor.pid, container.id):
        done = ocisbx(yard, "attach", "it")
        assert (done.returncode, "nobody more can attach" in done.stderr) == (125, True)
        assert "ulimit -n" in done.stderr
    assert container.state == "running"
    assert ocisbx(yard, "attach", "it", input="exit 3\n").returncode == 3


def test_no_program_inherits_a_connection(yard: Box) -> None:
    _, attached = Attached.to(shell(yard).id, None)
    assert attached is not None
    with attached:
        assert fcntl.fcntl(attached.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_the_end_waits_for_nobody_who_does_not_read(yard: Box) -> None:
    # Less than the farewell to them takes. A machine that stands still does so once, not each time.
    assert any(heard_late_s(yard, name) < 0.9 for name in ("one", "two", "three"))


def heard_late_s(yard: Box, name: str) -> float:
    """How long after a container's end it is heard of, where somebody does not read."""
    container = detached(yard, "--", "sh", "-c", "read x; seq 400000", name=name)
    _, stuck = Attached.to(container.id, None)
    listener = connect(container.id)
    assert stuck is not None
    assert listener is not None
    with stuck, listener:
        listener.settimeout(20)
        stuck.type(b"go\r")
        assert listener.recv(1) == b""
        late_s = time.time() - os.stat(f"{container.record.path}/{RESULT_FILE}").st_mtime
    assert container.wait(timeout_s=20) is not None
    return late_s
