"""Bounds in time and size, of the class that has pexpect's names too."""

from __future__ import annotations

import os
import re
import select
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pexpect import TIMEOUT

from ocisbx.errors import ConfigError, ExpectTimeout
from ocisbx.expect.ends import Descriptor
from ocisbx.expect.expecting import Expect
from ocisbx.expect.spawn import Spawn
from tests.expect.programs import driven, python

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 20.0


@contextmanager
def raw_terminal() -> Iterator[tuple[int, int]]:
    """Both ends of one that changes nothing."""
    controller, terminal = os.openpty()
    tty.setraw(terminal)
    try:
        yield controller, terminal
    finally:
        os.close(controller)
        os.close(terminal)


def show(controller: int, terminal: int, data: bytes) -> None:
    os.write(terminal, data)
    select.select([controller], [], [], WAIT_S)


def test_half_a_character_is_nothing_and_not_the_end() -> None:
    with raw_terminal() as (controller, terminal):
        expect = Expect(controller)
        show(controller, terminal, b"\xc3")
        assert expect.read_some() is None
        show(controller, terminal, b"\xa9")
        assert expect.read_some() == "é"
        assert expect.read_some() is None


def test_compiled_patterns_are_searched_in_bounds_however_they_are_given() -> None:
    with raw_terminal() as (controller, terminal):
        spawn = Spawn(controller, encoding="utf-8", timeout=WAIT_S)
        for _ in range(2):
            show(controller, terminal, b"x" * 3000)
            assert spawn.expect_list([re.compile("done"), TIMEOUT], timeout=0) == 1
        show(controller, terminal, b"done" + b"a" * 60 + b"b")
        assert spawn.expect_list([re.compile("done")]) == 0
        assert spawn.before == "x" * 6000
        with pytest.raises(ConfigError, match="took over 1 s"):
            spawn.expect_list([re.compile(r"(\w|\w\w)+\d$")], timeout=0)


def test_so_many_characters_are_read_as_are_asked_for() -> None:
    with driven(*python("print('x' * 150000 + 'y', end='', flush=True); input()")) as terminal:
        spawn = terminal.spawn
        spawn.timeout = WAIT_S
        assert spawn.read(150_000) == "x" * 150_000
        spawn.timeout = 0.1
        with pytest.raises(TIMEOUT):
            spawn.read(150_000)
        assert (spawn.before, spawn.after) == ("y", TIMEOUT)
        assert spawn.read(0) == ""
        terminal.sendline()
        spawn.timeout = WAIT_S
        assert spawn.read(100) == "y\r\n"
        assert spawn.read(100) == spawn.read() == ""


def test_what_is_not_kept_is_told_or_refused() -> None:
    with driven(*python("input(); print('ab' * 1500, end='')"), echo=False) as terminal:
        terminal.spawn.max_before = 1000
        for read in (terminal.read, terminal.spawn.read):
            with pytest.raises(ConfigError, match="1001 characters cannot be read at once"):
                read(1001)
        terminal.sendline()
        # As many as are kept, and not one is lost: no more is read than is asked for.
        assert terminal.read(999, WAIT_S) == "ab" * 499 + "a"
        assert not terminal.before_truncated
        assert terminal.read(1000, WAIT_S) == "ba" * 500
        assert not terminal.before_truncated
        assert len(terminal.read(-1, WAIT_S)) <= 1001
    with driven(*python("print('ab' * 1500, end='')")) as terminal:
        terminal.spawn.max_before = 1000
        assert terminal.read(-1, WAIT_S) == "ab" * 250
        assert terminal.before_truncated
        assert terminal.read_some() == ""
        assert not terminal.before_truncated


class Trickle(Descriptor):
    """One that takes a character now and then, and that poll(2) says could take some all along."""

    def write_some(self, data: bytes, *, secret: bool) -> int:
        time.sleep(0.01)
        return super().write_some(data[:1], secret=secret) if time.monotonic() % 0.02 < 0.01 else 0


def test_a_terminal_that_takes_a_little_at_a_time_does_not_stretch_the_time_to_type() -> None:
    with raw_terminal() as (controller, _):
        started = time.monotonic()
        with pytest.raises(ExpectTimeout, match="does not read what is typed"):
            Expect(Trickle(controller)).send("x" * 1000, timeout_s=0.5)
        assert time.monotonic() - started < 5
