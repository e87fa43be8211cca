"""Reading captures by offset, head, tail and follow, and showing them inert."""

from __future__ import annotations

import os
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocisbx.capture import Renderer, follow, head, read_at, render, tail
from ocisbx.errors import OcisbxError

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
# Long and short lines, so that the 64 KiB blocks are crossed at every place.
CONTENTS = st.lists(
    st.sampled_from(
        [b"", b"\n", b"\n\n", b"a", b"line\n", b"\xff\x00", b"x" * 65535, b"y" * 70000]
    ),
    max_size=12,
).map(b"".join)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@FILES
@given(data=CONTENTS, offset=st.integers(0, 300_000), size=st.integers(0, 300_000))
def test_read_at_is_a_slice(tmp_path: Path, data: bytes, offset: int, size: int) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(data)
    assert read_at(str(path), offset, size) == data[offset : offset + size]


@FILES
@given(data=CONTENTS, lines=st.integers(0, 8), size_bytes=st.integers(0, 200_000))
def test_head_and_tail(tmp_path: Path, data: bytes, lines: int, size_bytes: int) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(data)
    all_lines = [line + b"\n" for line in data.split(b"\n")]
    all_lines[-1] = all_lines[-1][:-1]
    if not all_lines[-1]:
        all_lines.pop()
    assert head(str(path), lines=lines) == b"".join(all_lines[:lines])
    last = b"".join(all_lines[-lines:]) if lines else b""
    assert tail(str(path), lines=lines) == last
    assert head(str(path), size_bytes=size_bytes) == data[:size_bytes]
    assert tail(str(path), size_bytes=size_bytes) == (data[-size_bytes:] if size_bytes else b"")


def test_ten_lines_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(30)))
    assert head(str(path)).split() == [b"%d" % number for number in range(10)]
    assert tail(str(path)).split() == [b"%d" % number for number in range(20, 30)]


def test_follow_sees_what_is_added_and_the_last_words(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    additions = [b"one\n", b"two", b"\xff\x00", b"last words"]
    path.write_bytes(b"skipped first\n")
    left = list(additions)

    def stop() -> bool:
        if left:
            with path.open("ab") as file:
                file.write(left.pop(0))
        if not left:
            path.unlink(missing_ok=True)
        return not left

    chunks = list(follow(str(path), 8, stop=stop, interval_s=0.001))
    assert chunks == [b"first\n", *additions]


def test_an_abandoned_follow_leaks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(b"x")
    before = open_descriptors()
    generator = follow(str(path), stop=lambda: False)
    assert next(generator) == b"x"
    generator.close()  # type: ignore[attr-defined] # an Iterator to the caller
    assert open_descriptors() == before


@pytest.mark.parametrize("kind", ["missing", "symlink", "fifo", "directory", "NUL"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "stdout")
    (tmp_path / "secret").write_bytes(b"secret")
    if kind == "symlink":
        Path(path).symlink_to(tmp_path / "secret")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        Path(path).mkdir()
    elif kind == "NUL":
        path += "\0"
    before = open_descriptors()
    reads: list[Callable[[], bytes]] = [
        lambda: read_at(path, 0, 10),
        lambda: head(path),
        lambda: tail(path),
    ]
    for read in reads:
        with pytest.raises(OcisbxError, match="capture file") as caught:
            read()
        assert caught.value.why
        assert caught.value.remedy
    assert open_descriptors() == before


def test_escapes_are_shown_and_text_stays() -> None:
    assert render(b"\x1b[31mred\x1b[0m\n") == "␛[31mred␛[0m\n"
    assert render("tab\tä€😀\r\n".encode()) == "tab\tä€😀\n"
    assert render(b"\x1b]8;;http://x\x1b\\") == "␛]8;;http://x␛\\"
    assert render(b"50%\r100%") == "50%␍100%"
    assert render(b"\x7f\x00") == "␡␀"
    assert render(b"\xff\xc3(\xe2\x82") == "\ufffd\ufffd(\ufffd"
    assert render("\x9b31m\x90".encode()) == "\ufffd31m\ufffd"


@given(data=st.binary(max_size=200))
def test_nothing_rendered_is_a_control_character(data: bytes) -> None:
    shown = render(data)
    assert not [char for char in shown if unicodedata.category(char) == "Cc" and char not in "\n\t"]


@given(text=st.text(max_size=50), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_chunks_render_as_the_whole(text: str, cuts: list[int]) -> None:
    data = text.encode() + b"\r\n\xe2\x82"
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    renderer = Renderer()
    pieces = [renderer.feed(data[start:end]) for start, end in pairwise(places)]
    assert "".join(pieces) + renderer.feed(b"", final=True) == render(data)
