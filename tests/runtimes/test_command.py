"""The one door for host programs, with real ones: descriptors, signals, environment, time."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ocisbx import command
from ocisbx.command import CommandTimeout, SpawnError
from tests.box import descriptors


def shell(script: str, timeout_s: float = 20) -> command.Completed:
    return command.run(["/bin/sh", "-c", script], timeout_s=timeout_s)


def test_outputs_and_status() -> None:
    completed = shell("echo out; echo err >&2; exit 3")
    assert (completed.stdout, completed.stderr) == (b"out\n", b"err\n")
    assert (completed.status.exit_code, completed.status.signal) == (3, None)
    assert shell("kill -9 $$").status.signal == 9


def test_much_output_is_cut() -> None:
    completed = shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")
    assert completed.status.ok
    assert len(completed.stdout) == len(completed.stderr) == command.OUTPUT_LIMIT_BYTES


def test_the_environment_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/x")
    names = {line.split(b"=")[0] for line in shell("exec env").stdout.splitlines()}
    assert names <= {b"PATH", b"LC_ALL", b"PWD", b"OLDPWD", b"SHLVL", b"_"}


def test_exactly_the_descriptors_given() -> None:
    reader, writer = os.pipe()
    leaked = os.dup2(writer, 50, inheritable=True)
    try:
        listed = shell("ls /proc/self/fd").stdout.split()
        # 3 is the directory that ls reads.
        assert listed == [b"0", b"1", b"2", b"3"]
    finally:
        for descriptor in (reader, writer, leaked):
            os.close(descriptor)


def test_signals_are_default_and_the_session_is_its_own() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        text = shell("grep -E 'Sig(Ign|Blk)' /proc/self/status; ps -o sid= -p $$; echo $$").stdout
    finally:
        signal.signal(signal.SIGINT, before)
    words = text.split()
    assert (words[0], int(words[1], 16)) == (b"SigBlk:", 0)
    ignored = int(words[3], 16)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGQUIT):
        assert not ignored >> (number - 1) & 1, number
    assert words[4] == words[5]


def test_a_descendant_that_holds_the_pipe_is_not_waited_for() -> None:
    started = time.monotonic()
    assert shell("sleep 30 & echo done", timeout_s=60).stdout == b"done\n"
    assert time.monotonic() - started < 20


def test_a_program_that_hangs() -> None:
    started = time.monotonic()
    with pytest.raises(CommandTimeout, match=r"0\.3 s"):
        shell("exec sleep 60", timeout_s=0.3)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("path", ["/no/such/program", "/etc/passwd", "/usr"])
def test_what_cannot_be_started(path: str) -> None:
    before = descriptors()
    with pytest.raises(SpawnError):
        command.run([path], timeout_s=1)
    assert descriptors() == before


def test_nothing_stays_open() -> None:
    shell("true")
    before = descriptors()
    for _ in range(20):
        shell("echo x")
    assert descriptors() == before


def test_standard_descriptors_that_are_closed() -> None:
    """A caller without 0, 1 and 2: our pipes get these numbers, and arrive in their places."""
    saved = [os.dup(number) for number in (0, 1, 2)]
    try:
        for number in (0, 1, 2):
            os.close(number)
        completed = shell("echo out; echo err >&2")
    finally:
        for number, copy in enumerate(saved):
            os.dup2(copy, number)
            os.close(copy)
    assert (completed.stdout, completed.stderr) == (b"out\n", b"err\n")
