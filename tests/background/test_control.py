"""The control socket of a process whose descriptors run out, with a container and without."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from ocisbx.background.control import REST_S, Control, Events
from ocisbx.background.packets import PACKET_BYTES, connect, encode
from ocisbx.background.request import CALLER_FD
from tests.box import eventually
from tests.terminal.driving import PATIENCE_S, descriptors_left, is_idle

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from tests.box import Box

ID = "0123456789abcdef0123"


class Stage:
    """A control socket that grants whatever is asked."""

    def __init__(self) -> None:
        self.events = Events()
        self.control = Control(ID, self.events, lambda _verb, _members, answer: answer({"ok": {}}))

    def answer(self, client: socket.socket) -> str:
        """What the client hears, sooner or later."""
        client.settimeout(0)
        heard: list[bytes] = []

        def hears() -> bool:
            self.events.turn(REST_S)
            with contextlib.suppress(BlockingIOError):
                heard.append(client.recv(4096))
            return bool(heard)

        assert eventually(hears)
        return heard[0].decode()

    def is_woken(self) -> bool:
        """Whether who polls it would be."""
        poller = select.poll()
        poller.register(self.events, select.POLLIN)
        return bool(poller.poll(0))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = Stage()
    yield made
    made.control.close()
    made.events.close()


def visitor(container_id: str = ID) -> socket.socket:
    """Somebody who waits to be accepted."""
    client = connect(container_id)
    assert client is not None
    return client


@contextlib.contextmanager
def full_below(limit: int) -> Iterator[Callable[[int], None]]:
    """This process can open nothing meanwhile; given is what sets another limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []

    def set_limit(number: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))

    set_limit(limit)
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        yield set_limit
    finally:
        set_limit(before[0])
        for filler in fillers:
            os.close(filler)


def test_one_for_whom_there_is_none_left_wakes_nobody(stage: Stage) -> None:
    """The spare one is gone as well, as where another thread takes its place: what is above the
    limit is no use when it is closed."""
    spare = stage.control._spare_fd
    with visitor() as first, visitor() as second:
        with full_below(spare) as set_limit:
            stage.events.turn()
            assert not stage.is_woken()
            began = time.monotonic()
            for _ in range(5):
                stage.events.turn(60)
            # Every second turn tries again.
            assert 2 * REST_S <= time.monotonic() - began < 30
            # Who comes when there is room for one is told why it is not theirs.
            set_limit(spare + 1)
            assert "can do no more for others now" in stage.answer(first)
            assert "can do no more for others now" in stage.answer(second)
        with visitor() as third:
            third.send(encode({"verb": "usage"}))
            assert json.loads(stage.answer(third)) == {"ok": {}}


def test_nobody_listens_again_once_it_is_closed(stage: Stage) -> None:
    with visitor(), full_below(stage.control._spare_fd):
        stage.events.turn()
        stage.control.close()
        # As a supervisor, which goes on to its end.
        for _ in range(3):
            stage.events.turn(REST_S)


def spare_of(pid: int) -> int:
    """What a supervisor gives up for one who comes when none is left."""
    (found,) = (
        int(path.name)
        for path in Path(f"/proc/{pid}/fd").iterdir()
        if os.readlink(path) == os.devnull
        and int(Path(f"/proc/{pid}/fdinfo/{path.name}").read_text().split()[3], 8) & os.O_PATH
    )
    return found


@pytest.mark.runtime
def test_a_supervisor_that_has_not_even_a_spare_one(yard: Box) -> None:
    """Nobody can be told why, and nobody keeps it busy: it comes back to them by itself."""
    # With fewer descriptors to watch than the limit will be, else poll(2) would fail.
    container = yard.sandbox(terminal=True).create(["sleep", "60"]).start()
    supervisor = psutil.Process(container.record.supervisor.pid)
    pid = supervisor.pid
    assert eventually(lambda: not Path(f"/proc/{pid}/fd/{CALLER_FD}").exists())
    spare = spare_of(pid)
    most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with descriptors_left(0, pid, container.id):
        # Above the limit it is no use when it is closed.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (spare, most[1]))
        with visitor(container.id) as waiting:
            waiting.settimeout(PATIENCE_S)
            waiting.send(encode({"verb": "usage"}))
            assert is_idle(supervisor)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, most)
            assert b'"ok"' in waiting.recv(PACKET_BYTES)
    assert container.state == "running"
