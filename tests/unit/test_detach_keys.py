"""Keys by which a person leaves, found in whatever pieces they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.errors import ConfigError
from ocisbx.terminal.detach import DetachKeys, parse_keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("ctrl-p,ctrl-q", b"\x10\x11"),
        ("a", b"a"),
        (",", b","),
        ("Ctrl-A,x,ctrl-@", b"\x01x\x00"),
        ("ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", b"\x1b\x1c\x1d\x1e\x1f"),
    ],
)
def test_lists_of_keys(text: str, keys: bytes) -> None:
    assert parse_keys(text) == keys


@pytest.mark.parametrize(
    "text", ["", "ab", "ctrl-", "ctrl-1", "ctrl-aa", "a,", "é", "ctrl-\u212a", "\x01"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="not a list of keys"):
        parse_keys(text)


def feed(keys: DetachKeys, pieces: list[bytes]) -> tuple[bytes, bool]:
    typed = b""
    for piece in pieces:
        data, leaves = keys.feed(piece)
        typed += data
        if leaves:
            return typed, True
    return typed, False


@given(st.lists(st.sampled_from([b"\x10", b"\x11", b"x", b"\x10\x11", b"\x10\x10"]), max_size=12))
def test_all_before_them_is_typed_however_it_comes(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    before, found, _ = whole.partition(b"\x10\x11")
    typed, leaves = feed(DetachKeys(), pieces)
    assert leaves is bool(found)
    # The last key may begin them.
    held = b"\x10" if not found and whole.endswith(b"\x10") else b""
    assert typed + held == before


def test_a_part_of_them_that_begins_anew() -> None:
    assert feed(DetachKeys("a,a,b"), [b"aaab"]) == (b"a", True)
    assert feed(DetachKeys("a,a,b"), [b"aac"]) == (b"aac", False)
