"""Who is attached, without a container: what they say is data, and nobody is waited for."""

from __future__ import annotations

import os
import select
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.background import frames
from ocisbx.background.attaching import BACKLOG_BYTES, Attachments, Resizing
from ocisbx.background.control import Events
from ocisbx.errors import InvalidState
from ocisbx.terminal.device import SIZE_MAX, Size

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator


class Stage:
    """Attachments over a pipe for the input; `sizes` are those that were set."""

    def __init__(self) -> None:
        self.events = Events()
        self.hub = Attachments(self.events)
        self.read_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        os.set_blocking(self.read_fd, False)
        self.sizes: list[Size] = []
        self.left = 0
        self.nudges: list[Size] = []
        self.hub.open(write_fd, Resizing(self.sizes.append, self.nudges.append), self._leave)
        self.people: list[socket.socket] = []

    def _leave(self) -> None:
        self.left += 1

    def sit(self) -> socket.socket:
        person = self.hub.add(None)
        person.settimeout(5)
        self.people.append(person)
        return person

    def turn(self) -> None:
        for _ in range(20):
            self.events.turn(0)

    def typed(self) -> bytes:
        """All of it, as the program reads it."""
        found = b""
        while True:
            self.turn()
            try:
                found += os.read(self.read_fd, 1 << 20)
            except BlockingIOError:
                return found

    def close(self) -> None:
        self.hub.close()
        for person in self.people:
            person.close()
        self.events.close()
        os.close(self.read_fd)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8))
def test_whatever_they_say_nothing_breaks(packets: list[bytes]) -> None:
    stage = Stage()
    try:
        rude, other = stage.sit(), stage.sit()
        for packet in packets:
            rude.send(packet)
        other.send(frames.TYPED + b"!")
        assert stage.typed().endswith(b"!")
        assert all(1 <= one <= 65535 for size in stage.sizes + stage.nudges for one in size)
        stage.hub.shown(b"shown")
        assert other.recv(100) == frames.SHOWN + b"shown"
    finally:
        stage.close()


def test_what_is_not_read_is_bounded_and_counted(stage: Stage) -> None:
    slow, quick = stage.sit(), stage.sit()
    size = 1 << 15
    for number in range(200):
        block = bytes([number]) * size
        stage.hub.shown(block)
        assert quick.recv(1 << 16) == frames.SHOWN + block
    seen: list[int] = []
    lost = 0
    while (len(seen) * size) + lost < 200 * size:
        frame = frames.split(slow.recv(1 << 16))
        assert frame.kind in (frames.SHOWN, frames.LOST)
        if frame.kind == frames.LOST:
            lost += frames.decode_lost(frame.data)
        else:
            seen.append(frame.data[0])
        stage.turn()
    assert lost >= 200 * size - BACKLOG_BYTES - (1 << 20)
    # What was before, and the end, with one hole.
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 199)
    assert sum(after - before > 1 for before, after in pairwise(seen)) == 1
    stage.hub.shown(b"again")
    assert slow.recv(100) == frames.SHOWN + b"again"


def test_what_is_not_read_is_kept_in_whole_packets(stage: Stage) -> None:
    """Single bytes too: an object for each would cost far more than what is counted."""
    slow = stage.sit()
    for _ in range(20):
        stage.hub.shown(b"-" * (1 << 15))
    for _ in range(100_000):
        stage.hub.shown(b"x")
    seen = packets = 0
    while seen < 100_000:
        frame = frames.split(slow.recv(frames.PACKET_BYTES))
        assert frame.kind == frames.SHOWN
        seen += frame.data.count(b"x")
        packets += 1
        stage.turn()
    assert (seen, packets) == (100_000, 24)


def test_all_that_is_typed_arrives_in_order(stage: Stage) -> None:
    person = stage.sit()
    person.settimeout(0)
    sent = b""
    for number in range(200):
        piece = b"%08d" % number * 1024
        try:
            person.send(frames.TYPED + piece)
        except BlockingIOError:
            break
        sent += piece
        stage.turn()
    assert len(sent) > 1 << 17
    assert stage.typed() == sent


def test_who_hangs_up_while_keys_wait_is_gone(stage: Stage) -> None:
    person = stage.sit()
    for _ in range(4):
        person.send(frames.TYPED + bytes(1 << 15))
        stage.turn()
    assert stage.hub.count == 1
    person.close()
    stage.turn()
    assert stage.hub.count == 0


def test_who_left_while_keys_wait_has_left(stage: Stage) -> None:
    person = stage.sit()
    for _ in range(4):
        person.send(frames.TYPED + bytes(1 << 15))
        stage.turn()
    person.send(frames.LEFT)
    stage.turn()
    assert stage.left == 0
    person.close()
    stage.turn()
    assert (stage.left, stage.hub.count) == (1, 0)


def test_who_left_before_they_read_all_has_left(stage: Stage) -> None:
    """The kernel tells that as a reset, before what they said."""
    person = stage.sit()
    stage.hub.shown(b"never read")
    person.send(frames.TYPED + b"y\r")
    person.send(frames.LEFT)
    person.close()
    assert stage.typed() == b"y\r"
    assert (stage.left, stage.hub.count) == (1, 0)


def test_who_comes_and_who_missed_something_have_it_drawn_anew(stage: Stage) -> None:
    size = Size(30, SIZE_MAX)
    person = stage.hub.add(size)
    stage.people.append(person)
    assert (stage.nudges, stage.sizes) == ([(31, SIZE_MAX)], [size])
    for _ in range(200):
        stage.hub.shown(bytes(1 << 15))
    person.settimeout(5)
    while len(stage.nudges) == 1:
        assert person.recv(1 << 16)
        stage.turn()
    assert (stage.nudges, stage.sizes) == ([(31, SIZE_MAX)] * 2, [size] * 2)


def test_who_is_idle_wakes_nobody(stage: Stage) -> None:
    stage.sit()
    waits = stage.sit()
    for _ in range(4):
        waits.send(frames.TYPED + bytes(1 << 15))
        stage.turn()
    poller = select.poll()
    poller.register(stage.events, select.POLLIN)
    assert poller.poll(200) == []


def test_who_leaves_by_their_keys_says_so(stage: Stage) -> None:
    one, two = stage.sit(), stage.sit()
    one.send(frames.LEFT)
    one.close()
    two.close()
    stage.turn()
    assert (stage.left, stage.hub.count) == (1, 0)


def test_a_prompt_is_shown_to_who_comes_and_half_a_picture_is_not(stage: Stage) -> None:
    stage.hub.shown(b"line\r\nname")
    stage.hub.shown(b": ")
    assert stage.sit().recv(100) == frames.SHOWN + b"name: "
    stage.hub.shown(b"x" * 2000)
    person = stage.sit()
    person.settimeout(0)
    with pytest.raises(BlockingIOError):
        person.recv(100)


def test_a_connection_that_cannot_be_had_is_refused() -> None:
    events = Events()
    hub = Attachments(events)
    # In the place of what polls: nothing can be registered with it.
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, events.fileno(), inheritable=False)
    try:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(InvalidState, match="nobody more can attach") as caught:
            hub.add(None)
        assert "ulimit -n" in caught.value.remedy
        assert os.listdir("/proc/self/fd") == before
        assert hub.count == 0
    finally:
        os.close(null)
        events.close()


def test_the_end_is_told_with_all_that_was_shown(stage: Stage) -> None:
    person = stage.sit()
    stage.hub.shown(b"last words")
    stage.hub.close("it is over")
    assert person.recv(100) == frames.SHOWN + b"last words"
    assert person.recv(100) == frames.OVER + b"it is over"
    assert person.recv(100) == b""
