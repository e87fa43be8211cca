"""How people part from a container in the background, and what is then as it was."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.terminal.conftest import of_each_name
from tests.terminal.driving import eventually
from tests.terminal.seat import Seat
from tests.terminal.test_attach import DETACH, detached, shell, sit

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_is_restored_when_we_are_ended(yard: Box, number: signal.Signals) -> None:
    container = shell(yard)
    with sit(yard) as seat:
        seat.wait_for(b"$ ")
        assert seat.is_raw
        seat.kill(number)
        assert seat.drain_until_end() == 130
        assert seat.is_as_before
    assert container.state == "running"


def test_it_is_restored_when_several_signals_end_us_at_once(yard: Box) -> None:
    """As systemd ends a session: SIGTERM, and SIGHUP with it."""
    shell(yard)
    for pause_s in (0.0, 0.0, 0.001, 0.002):
        with sit(yard) as seat:
            seat.wait_for(b"$ ")
            assert seat.is_raw
            seat.kill(signal.SIGTERM)
            time.sleep(pause_s)
            seat.kill(signal.SIGHUP)
            assert seat.drain_until_end() == 130
            assert seat.is_as_before


def test_it_ends_by_the_first_signal_however_many_follow(yard: Box) -> None:
    shell(yard)
    with sit(yard) as seat:
        seat.wait_for(b"$ ")
        seat.kill(signal.SIGTERM)
        # Not for longer than they count as one.
        until = time.monotonic() + 0.5
        while seat.process.poll() is None and time.monotonic() < until:
            seat.kill(signal.SIGHUP)
            seat.read(0.001)
        assert seat.drain_until_end() == 130
        assert seat.is_as_before


def test_who_resizes_while_they_type_types_it_once(yard: Box) -> None:
    detached(yard, "--", "sh", "-c", "stty raw -echo; printf up; head -c 20000 | cksum")
    with sit(yard) as seat:
        seat.wait_for(b"up")
        for number in range(200):
            seat.type(b"%099d\n" % number)
            seat.resize(20 + number % 10, 90)
        said = seat.wait_for(b" 20000\n")
        expected = subprocess.run(
            ["cksum"], input=b"".join(b"%099d\n" % number for number in range(200)),
            capture_output=True, check=True,
        ).stdout  # fmt: skip
        assert said.split()[-2:] == expected.split()
        assert seat.drain_until_end() == 0


def test_who_leaves_does_not_wait_for_a_reader_that_has_stopped(yard: Box) -> None:
    container = detached(yard, "--", "sh", "-c", "read x; exec yes")
    with contextlib.ExitStack() as stack:
        read_fd, write_fd = os.pipe()
        stack.callback(os.close, read_fd)
        stack.callback(os.close, write_fd)
        seat = stack.enter_context(Seat(yard, "attach", "it", stdout=write_fd))
        assert eventually(lambda: seat.is_raw)
        seat.type("go\r")
        # Full: nothing more can be shown.
        assert eventually(lambda: not select.select([], [write_fd], [], 0)[1])
        seat.type(DETACH)
        assert seat.drain_until_end() == 0
        assert seat.is_as_before
    assert container.state == "running"


def test_who_is_killed_harms_nobody(yard: Box) -> None:
    container = shell(yard)
    with sit(yard) as one, sit(yard) as two:
        one.wait_for(b"$ ")
        two.wait_for(b"$ ")
        one.kill(signal.SIGKILL)
        one.process.wait()
        two.type("echo still-$((1))\r")
        two.wait_for(b"still-1\r\n")
    assert container.state == "running"


def test_it_is_restored_when_the_container_is_killed(yard: Box) -> None:
    container = shell(yard)
    with sit(yard) as seat:
        seat.wait_for(b"$ ")
        container.kill()
        assert seat.drain_until_end() == 137
        assert seat.is_as_before


def test_it_is_restored_when_the_supervisor_is_killed(yard: Box) -> None:
    container = shell(yard)
    with sit(yard) as seat:
        seat.wait_for(b"$ ")
        psutil.Process(container.record.supervisor.pid).kill()
        assert seat.drain_until_end() == 125
        assert seat.is_as_before
        assert b"was lost" in seat.shown


def test_it_is_restored_while_we_are_stopped(yard: Box) -> None:
    shell(yard)
    with sit(yard) as seat:
        seat.wait_for(b"$ ")
        seat.kill(signal.SIGTSTP)
        assert eventually(lambda: seat.state() == "T")
        assert seat.is_as_before
        seat.resize(20, 60)
        seat.kill(signal.SIGCONT)
        assert eventually(lambda: seat.is_raw)
        seat.type("stty size\r")
        seat.wait_for(b"20 60\r\n")


def test_keys_that_nobody_reads_keep_nobody_from_leaving(yard: Box) -> None:
    container = detached(yard, "--", "sh", "-c", "stty raw -echo; printf up; sleep 60")
    with sit(yard) as seat:
        seat.wait_for(b"up")
        seat.type_until_stuck()
        seat.type_in_time(DETACH)
        assert seat.drain_until_end() == 0
        assert seat.is_as_before
    assert container.state == "running"
