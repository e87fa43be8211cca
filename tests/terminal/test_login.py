"""The payload has its terminal as at a login: on every runtime."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from tests.box import PYTHON
from tests.terminal.driving import until

if TYPE_CHECKING:
    from tests.box import Box

FACTS = """
import fcntl, os, struct, sys, termios
print(*(os.isatty(fd) for fd in (0, 1, 2)), os.get_terminal_size())
print(os.getpgrp() == os.getpid(), os.tcgetpgrp(0) == os.getpgrp(), os.getsid(0) == os.getpid())
with open("/dev/tty", "wb", buffering=0) as tty:
    tty.write(b"by name\\n")
print(len(os.listdir("/proc/self/fd")) - 1, os.environ["TERM"])
print({os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)} == {os.readlink("/proc/self/fd/0")})
"""


def test_it_is_the_payloads_controlling_terminal(box: Box) -> None:
    with box.sandbox().spawn([PYTHON, "-I", "-S", "-c", FACTS], size=(33, 101)) as terminal:
        told = terminal.read(timeout_s=20).splitlines()
        result = terminal.wait()
    assert result is not None
    assert (result.exit_code, result.stderr) == (0, b"")
    leads = box.lacks("the payload leads the terminal's session") is None
    assert told == [
        "True True True os.terminal_size(columns=101, lines=33)",
        f"True True {leads}",
        "by name",
        "3 xterm",
        "True",
    ]


def test_tty_names_it(box: Box) -> None:
    with box.sandbox().spawn(["tty"]) as terminal:
        said = terminal.read(timeout_s=20)
    named = box.lacks("tty(1) names the terminal") is None
    assert said == ("/dev/pts/0\r\n" if named else "not a tty\r\n")


def test_job_control(box: Box) -> None:
    with box.sandbox().spawn(["sh", "-i"]) as terminal:
        until(terminal, "# ")
        # What speaks is in the foreground by then, and gets the keys. It neither forks nor executes
        # anything: a child that is stopped before it does would hold up its parent (vfork(2)).
        job = "sh -c 'echo begun-$((1)); while :; do :; done'"
        for key in ("c", "z"):
            terminal.sendline(job)
            until(terminal, "begun-1\r\n")
            terminal.sendcontrol(key)
            if key == "c":
                until(terminal, "# ")
        assert "Stopped" in until(terminal, "# ")
        terminal.sendline("bg")
        until(terminal, "# ")
        terminal.sendline("jobs")
        assert "Running" in until(terminal, "# ")
        terminal.sendline("kill %1; wait %1; exec 2>/dev/null; exit 5")
        until(terminal, "exit 5\r\n")
        result = terminal.wait(20)
    assert result is not None
    assert result.exit_code == 5


def test_what_reads_in_the_background_is_stopped(box: Box) -> None:
    look = "until jobs -l >/tmp/jobs; grep input /tmp/jobs; do sleep 0.05; done"
    script = f"set -m; cat & {look}; kill -KILL $!; wait; echo over"
    with box.sandbox().spawn(["sh", "-c", script]) as terminal:
        said = terminal.read(timeout_s=20)
    assert "tty input" in said
    assert said.endswith("over\r\n")


def test_keys_signal_the_foreground(box: Box) -> None:
    traps = "; ".join(f"trap 'echo got {name}' {name}" for name in ("INT", "QUIT", "TSTP"))
    with box.sandbox().spawn(
        ["sh", "-c", f"{traps}; echo up; while :; do sleep 0.05; done"]
    ) as terminal:
        until(terminal, "up")
        for key, name in (("c", "INT"), ("\\", "QUIT")):
            terminal.sendcontrol(key)
            until(terminal, "got " + name)
        terminal.signal(signal.SIGKILL)
        result = terminal.wait(20)
    assert result is not None
    assert (result.termination, result.signal) == ("signaled", 9)


def test_the_end_of_a_file_is_typed(box: Box) -> None:
    with box.sandbox().spawn(["sh", "-c", "cat; echo over"]) as terminal:
        terminal.sendline("line")
        terminal.sendeof()
        assert terminal.read(timeout_s=20) == "line\r\nline\r\nover\r\n"


def test_a_resize_is_told(box: Box) -> None:
    script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"
    with box.sandbox().spawn(["sh", "-c", script]) as terminal:
        until(terminal, "up\r\n")
        terminal.resize(11, 222)
        until(terminal, "11 222\r\n")
        assert terminal.size == (11, 222)


def test_a_password_prompt_is_seen(box: Box) -> None:
    script = "stty -echo; printf 'Password: '; read p; stty echo; echo; echo $p; read x"
    with box.sandbox().spawn(["sh", "-c", script]) as terminal:
        until(terminal, "Password: ")
        assert (terminal.echo, terminal.hides_input) == (False, True)
        terminal.sendline("s3cret")
        assert until(terminal, "s3cret\r\n") == "\r\ns3cret\r\n"
        assert (terminal.echo, terminal.hides_input) == (True, False)


def test_raw_mode_passes_every_byte(box: Box) -> None:
    script = (
        "import os, sys, tty; tty.setraw(0); os.write(1, b'up'); data = b''\n"
        "while len(data) < 256: data += os.read(0, 256)\n"
        "os.write(1, data)"
    )
    with box.sandbox().spawn([PYTHON, "-I", "-S", "-c", script], encoding=None) as terminal:
        terminal.expect(b"up")
        assert not terminal.modes().canonical
        terminal.send(bytes(range(256)))
        assert terminal.read(256, timeout_s=20) == bytes(range(256))


def test_a_program_may_close_it_and_open_it_anew(box: Box) -> None:
    """That nobody has it open for a while is not the end."""
    script = (
        "exec <&- >&- 2>&-; sleep 0.3; exec </dev/tty >/dev/tty 2>&1; echo back; read x; echo $x"
    )
    with box.sandbox().spawn(["sh", "-c", script]) as terminal:
        until(terminal, "back\r\n")
        terminal.sendline("again")
        assert terminal.read(timeout_s=20) == "again\r\nagain\r\n"


def test_flow_control_holds_a_flood_back(box: Box) -> None:
    with box.sandbox().spawn(["sh", "-c", "yes | head -c 3000000; echo; echo over"]) as terminal:
        time.sleep(0.5)
        assert not terminal.has_ended
        said = terminal.read(timeout_s=60)
    assert said == "y\r\n" * 1_500_000 + "\r\nover\r\n"


def test_all_that_was_printed_is_there_after_the_end(box: Box) -> None:
    for _ in range(5):
        with box.sandbox().spawn(["sh", "-c", "seq 100"]) as terminal:
            result = terminal.wait(20)
            said = terminal.read()
        assert result is not None
        assert said.split() == [str(n) for n in range(1, 101)]
        assert result.stdout_bytes == len(said)


def test_a_run_on_a_terminal(box: Box) -> None:
    """Without a holder: what is typed is given, what is shown is captured."""
    result = box.run(
        ["sh", "-c", "read x; echo $x >&2; cat; [ -t 1 ]"], input=b"a\nb", terminal=True
    )
    assert (result.exit_code, result.stderr) == (0, b"")
    assert result.stdout.replace(b"\r\n", b"\n").count(b"a\n") == 2
    assert result.stdout.count(b"b") == 2
