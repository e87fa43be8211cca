"""Slots: never more than the cap, whoever dies; flock(2) of the real kernel, on files in tmp_path.

A lock belongs to an open file, not to a process, so that every holder here is as good as one
elsewhere; tests/runtimes/test_slots.py has the processes.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ocisbx import slots
from ocisbx.errors import ConfigError, InvalidState, OcisbxError
from ocisbx.slots import CAP_VARIABLE, Cap, Slot, find_cap, hold_slot, take

NOW = Cap(1, "the test", 0)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv(CAP_VARIABLE, raising=False)
    tmp_path.chmod(0o700)
    made = tmp_path / "ocisbx" / "slots"
    made.mkdir(parents=True, mode=0o700)
    return made


def die(slot: Slot) -> None:
    """As the kernel does it for a process that was killed."""
    os.close(slot._descriptor)


class Turns(RuleBasedStateMachine):
    """Callers with different caps come, go and die."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.held: list[Slot] = []
        self.most_ever = 0

    def teardown(self) -> None:
        for slot in self.held:
            die(slot)
        self.place.cleanup()

    @rule(most=st.integers(1, 6))
    def come(self, most: int) -> None:
        slot = take(self.place.name, most)
        assert (slot is not None) == (len(self.held) < most)
        if slot is not None:
            slot.note("0123")
            self.held.append(slot)
            self.most_ever = max(self.most_ever, len(self.held))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), killed=st.booleans())
    def go(self, data: st.DataObject, killed: bool) -> None:  # noqa: FBT001 -- hypothesis'
        slot = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        if killed:
            die(slot)
        else:
            slot.release()

    @invariant()
    def files_are_few(self) -> None:
        assert len(self.held) <= len(os.listdir(self.place.name)) <= self.most_ever


TestTurns = Turns.TestCase


@pytest.mark.parametrize(
    ("most", "variable", "expected"),
    [
        (None, None, None),
        (None, "", None),
        (None, "unlimited", None),
        (None, "-1", None),
        (4, None, 4),
        (4, "unlimited", 4),
        (None, "3", 3),
        (4, "3", 3),
        (4, "4", 4),
        (2, "3", 2),
    ],
)
def test_the_lower_cap_holds(
    most: int | None, variable: str | None, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CAP_VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(CAP_VARIABLE, variable)
    cap = find_cap(most, 1.5)
    assert (None if cap is None else cap.most) == expected
    assert cap is None or cap.wait_s == 1.5
    assert cap is None or (cap.said == CAP_VARIABLE) == (expected == 3)


@pytest.mark.parametrize("text", ["0", "-2", "x", "1.5", " ", "9" * 30, "\udcff", "4\n"])
def test_a_cap_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAP_VARIABLE, text)
    with pytest.raises(ConfigError, match=CAP_VARIABLE) as caught:
        find_cap(None, None)
    assert CAP_VARIABLE in caught.value.remedy


def test_a_refusal_says_what_to_do(directory: Path) -> None:
    with hold_slot(NOW) as slot:
        assert not slot.waited
        with pytest.raises(InvalidState, match="no slot is free: no more than 1 of") as caught:
            hold_slot(NOW).__enter__()
    assert caught.value.exit_code == 125
    assert "the test" in caught.value.what
    assert caught.value.why == "1 that are starting or ending"
    assert "--wait" in caught.value.remedy
    with hold_slot(NOW):
        pass


def test_a_deadline(directory: Path) -> None:
    with hold_slot(NOW):
        started = time.monotonic()
        with pytest.raises(InvalidState, match=r"no slot came free in 0\.2 s"):
            hold_slot(NOW._replace(wait_s=0.2)).__enter__()
        assert 0.2 <= time.monotonic() - started < 10


def test_waiting_can_be_given_up(directory: Path) -> None:
    class GivenUp(Exception):
        pass

    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            raise GivenUp

    forever = NOW._replace(wait_s=None)
    with hold_slot(NOW), pytest.raises(GivenUp):
        hold_slot(forever, pause).__enter__()
    assert 0 < max(pauses) <= 1.5 * slots.PAUSE_S
    assert slots._waiting == set()
    with hold_slot(NOW):
        pass


def test_a_long_wait_is_told_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "TELL_AFTER_S", 0.1)
    told: list[str] = []
    with hold_slot(NOW), pytest.raises(InvalidState):
        hold_slot(NOW._replace(wait_s=2), tell=told.append).__enter__()
    (line,) = told
    said = "no more than 1 of your sandboxes may run at once"
    assert line == f"ocisbx: waiting for a slot: {said} (ocisbx ps lists them)"


def test_many_threads_wait_and_none_starves(directory: Path) -> None:
    inside: list[int] = []
    peaks: list[int] = []

    def run(number: int) -> None:
        with hold_slot(Cap(3, "", 60)):
            inside.append(number)
            peaks.append(len(inside))
            time.sleep(0.005)
            inside.remove(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(peaks) == 40
    assert max(peaks) <= 3
    assert len(list(directory.iterdir())) <= 3


def test_a_slot_is_taken_whoever_has_a_copy_of_its_descriptor(directory: Path) -> None:
    """A child that was forked meanwhile keeps the file open."""
    slot = take(str(directory), 1)
    assert slot is not None
    copy = os.dup(slot._descriptor)
    slot.release()
    other = take(str(directory), 1)
    assert other is not None
    os.close(copy)
    assert take(str(directory), 1) is None
    other.release()


def test_descriptors_are_closed_and_not_inherited(directory: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with hold_slot(NOW) as slot:
        assert not os.get_inheritable(slot._descriptor)
        with pytest.raises(InvalidState):
            hold_slot(NOW).__enter__()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_files_are_private_whatever_the_umask(directory: Path) -> None:
    before = os.umask(0o777)
    try:
        with hold_slot(NOW):
            pass
        with hold_slot(NOW):
            pass
    finally:
        os.umask(before)
    assert [stat.filemode(path.stat().st_mode) for path in directory.iterdir()] == ["-rw-------"]


def test_names_that_are_no_slots_are_left_alone(directory: Path) -> None:
    (directory / "README").write_text("x")
    (directory / "-1").mkdir()
    with hold_slot(NOW):
        assert sorted(path.name for path in directory.iterdir()) == ["-1", "0", "README"]


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    target = path.parent.parent / "target"
    target.write_text("precious")
    path.symlink_to(target)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def make_read_only(path: Path) -> None:
    path.touch(mode=0o400)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_fifo, "mode prw"),
        (make_link, "symbolic link"),
        (Path.mkdir, "directory"),
        (make_socket, "No such device"),
        pytest.param(
            make_read_only,
            "denied",
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything"),
        ),
    ],
)
def test_a_slot_that_is_none(directory: Path, make: object, why: str) -> None:
    assert callable(make)
    make(directory / "0")
    started = time.monotonic()
    with pytest.raises(OcisbxError, match="is not a file that you own") as caught:
        hold_slot(NOW).__enter__()
    assert why in caught.value.why
    assert caught.value.remedy == f"remove it: rm -rf {directory}/0"
    assert time.monotonic() - started < 10
    target = directory.parent / "target"
    assert not target.exists() or target.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
@pytest.mark.parametrize(("mode", "what"), [(0o500, "cannot be made"), (0o300, "cannot be read")])
def test_a_directory_without_rights(directory: Path, mode: int, what: str) -> None:
    directory.chmod(mode)
    try:
        with pytest.raises(OcisbxError, match=what) as caught:
            hold_slot(NOW).__enter__()
    finally:
        directory.chmod(0o700)
    assert caught.value.remedy


@pytest.mark.parametrize("kind", ["symlink", "file", "open to others"])
def test_a_directory_that_is_none(directory: Path, kind: str) -> None:
    elsewhere = directory.rename(directory.parent / "elsewhere")
    if kind == "symlink":
        directory.symlink_to(elsewhere)
    elif kind == "file":
        directory.touch()
    else:
        directory.mkdir()
        directory.chmod(0o777)
    with pytest.raises(OcisbxError, match="only you can write"):
        hold_slot(NOW).__enter__()
    assert list(elsewhere.iterdir()) == []


def test_who_counts_and_is_stopped_meanwhile(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "STUCK_AFTER_S", 0.2)
    gate = os.open(directory, os.O_RDONLY)
    fcntl.flock(gate, fcntl.LOCK_EX)
    with pytest.raises(OcisbxError, match=r"has been locked for 0\.2 s") as caught:
        hold_slot(NOW._replace(wait_s=None)).__enter__()
    assert "lslocks" in caught.value.remedy
    os.close(gate)
    with hold_slot(NOW):
        pass


@pytest.mark.parametrize("text", ["", "../../etc", "\0" * 20, "ffff", "\xff\xfe", "x" * 5000])
def test_what_a_slot_says_is_not_believed(directory: Path, text: str) -> None:
    with hold_slot(NOW):
        (directory / "0").write_bytes(text.encode("latin-1"))
        with pytest.raises(InvalidState) as caught:
            hold_slot(NOW).__enter__()
    assert caught.value.why == "1 that are starting or ending"
