"""No descriptor is left in the process that holds a terminal: who asks hears so, and it goes on."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from typing import TYPE_CHECKING

import psutil
import pytest

from ocisbx import OcisbxError
from ocisbx.background.attending import Attending
from ocisbx.expect.handover import Handle
from tests.command_line import ocisbx
from tests.terminal.conftest import of_each_name
from tests.terminal.driving import descriptors_left, eventually, is_idle, until
from tests.terminal.test_attach import shell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]


def test_who_asks_a_supervisor_that_has_none(yard: Box) -> None:
    container = shell(yard)
    supervisor = psutil.Process(container.record.supervisor.pid)
    with descriptors_left(0, supervisor.pid, container.id):
        for words in (("attach", "it"), ("exec", "it", "true"), ("stop", "it"), ("kill", "it")):
            done = ocisbx(yard, *words)
            assert done.returncode == 125, (words, done.stdout)
            assert "can do no more for others now: " in done.stderr, words
            assert "ulimit -n" in done.stderr
        assert ocisbx(yard, "wait", "--timeout", "1", "it").returncode == 125
        assert is_idle(supervisor)
    assert container.state == "running"
    assert ocisbx(yard, "attach", "it", input="exit 3\n").returncode == 3


def test_who_asks_for_more_than_it_has(yard: Box) -> None:
    """There is one for the connection, and none for what comes of it."""
    container = shell(yard)
    with descriptors_left(1, container.record.supervisor.pid, container.id):
        done = ocisbx(yard, "exec", "it", "true")
        assert (done.returncode, "has ended" in done.stderr) == (125, False)
        assert "can do no more for others now: " in done.stderr
    assert ocisbx(yard, "exec", "it", "true").returncode == 0
    assert ocisbx(yard, "attach", "it", input="exit 3\n").returncode == 3


@contextlib.contextmanager
def own_descriptors_left(left: int) -> Iterator[None]:
    """This process can open so many more meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + 1 + left
    fillers: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        for _ in range(left):
            os.close(fillers.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for filler in fillers:
            os.close(filler)


def test_a_person_for_whom_there_is_none(box: Box) -> None:
    """Whatever it is for which the last one is missing."""
    controls = box.run_directory / "ocisbx" / "controls"
    with box.sandbox().spawn(["sh", "-c", "printf up; read x; echo $x-$((1))"]) as terminal:
        until(terminal, "up")
        # What an earlier test has left in a cycle is not to go meanwhile.
        gc.collect()
        held = os.listdir("/proc/self/fd")
        refused = 0
        for left in range(32):
            handle = Handle(1, "the password, please", lambda _: None)
            with own_descriptors_left(left):
                try:
                    attending = Attending(terminal, handle)
                except OcisbxError:
                    refused += 1
                    attending = None
            if attending is not None:
                with attending:
                    assert list(controls.iterdir())
                handle.done()
            assert os.listdir("/proc/self/fd") == held
            assert not controls.exists() or not list(controls.iterdir())
        assert 0 < refused < 10
        terminal.sendline("typed")
        assert until(terminal, "typed-1")
    assert eventually(lambda: box.left() == [])
