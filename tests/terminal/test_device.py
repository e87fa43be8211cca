"""A controlling end by itself: sizes, modes and the end, on a terminal of the host's."""

from __future__ import annotations

import os
import pty
import termios
from typing import TYPE_CHECKING

import pytest

from ocisbx import ConfigError, TerminalError
from ocisbx.terminal.device import (
    check_size,
    get_modes,
    get_size,
    read_some,
    set_size,
    write_some,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ends() -> Iterator[list[int]]:
    """The controlling end, which does not block, and the other."""
    made = [*pty.openpty()]
    os.set_blocking(made[0], False)
    yield made
    for descriptor in made:
        os.close(descriptor)


@pytest.mark.parametrize(
    "size",
    [(0, 80), (24, 0), (100_000, 80), (24, 65_536), (-1, 80), (24.0, 80), (True, 80), ("24", 80)],
)
def test_no_terminal_has_that_size(size: tuple[object, object]) -> None:
    with pytest.raises(ConfigError, match="is not a terminal's number of"):
        check_size(*size)


def test_sizes(ends: list[int]) -> None:
    for size in (check_size(1, 65_535), check_size(65_535, 1)):
        set_size(ends[0], size)
        assert get_size(ends[0]) == size
        assert os.get_terminal_size(ends[1]) == (size.columns, size.rows)


def test_modes(ends: list[int]) -> None:
    modes = get_modes(ends[0])
    assert (modes.echo, modes.canonical, modes.hides_input) == (True, True, False)
    assert modes.end_of_file == b"\x04"
    changed = termios.tcgetattr(ends[1])
    changed[3] &= ~termios.ECHO
    changed[6][termios.VEOF] = b"\x05"
    termios.tcsetattr(ends[1], termios.TCSANOW, changed)
    modes = get_modes(ends[0])
    assert (modes.hides_input, modes.end_of_file) == (True, b"\x05")
    changed[3] &= ~termios.ICANON
    termios.tcsetattr(ends[1], termios.TCSANOW, changed)
    assert not get_modes(ends[0]).hides_input


def test_nothing_now_is_not_the_end(ends: list[int]) -> None:
    assert read_some(ends[0]) is None
    os.write(ends[1], b"said")
    other = ends.pop()
    os.close(other)
    assert read_some(ends[0], 2) == b"sa"
    assert read_some(ends[0]) == b"id"
    assert read_some(ends[0]) == b""


def test_typing_stops_where_nobody_reads(ends: list[int]) -> None:
    typed = 0
    while written := write_some(ends[0], b"x\n" * 1000):
        typed += written
    assert written == 0
    assert typed > 1000


def test_what_is_no_terminal_is_said() -> None:
    reader, writer = os.pipe()
    with pytest.raises(TerminalError, match="Inappropriate ioctl"):
        get_modes(reader)
    with pytest.raises(TerminalError, match="Inappropriate ioctl"):
        set_size(writer, check_size(1, 1))
    os.close(reader)
    os.close(writer)
    with pytest.raises(TerminalError, match="Bad file descriptor"):
        read_some(reader)
    with pytest.raises(TerminalError, match="Bad file descriptor"):
        write_some(writer, b"x")
