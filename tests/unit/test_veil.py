"""Secrets that a terminal shows, in pieces and in lines that are broken."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ocisbx.terminal.veil import MASK, Veil

SECRETS = ("hunter2", "ab", "abc", "pass word", "[secret]", "1234", "x1234def", "a  b")


def veiled(pieces: list[str]) -> str:
    veil = Veil()
    for secret in SECRETS:
        veil.add(secret)
    return "".join(map(veil.pass_on, pieces)) + veil.rest()


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ("x hunter2\r\n", f"x {MASK}\r\n"),
        ("hun\r\nter2 and hun \rter2", f"{MASK} and {MASK}"),
        ("pass\nword, pass \nword, pass word", f"{MASK}, {MASK}, {MASK}"),
        ("abc ab abx a b", f"{MASK} {MASK} {MASK}x a b"),
        ("it was hunte", "it was hunte"),
        (MASK, MASK),
        # One within another, and one that begins another.
        ("x1234def x1234d 1234", f"{MASK} x{MASK}d {MASK}"),
        ("a  b, a \n b, a\r\nb", f"{MASK}, {MASK}, {MASK}"),
    ],
)
def test_what_is_kept(shown: str, kept: str) -> None:
    assert veiled([shown]) == kept
    assert veiled(list(shown)) == kept


@given(st.lists(st.text(alphabet="abchunter2 \r\npsword[]134df", max_size=12), max_size=8))
@example(["a", "\r\n", "\r\n", "b"])
@example(["ab\r\n", "c"])
@example(["x1234", "def"])
@example(["ab", "\n" * 5, "c"])
def test_pieces_are_as_good_as_the_whole(pieces: list[str]) -> None:
    assert veiled(pieces) == veiled(["".join(pieces)])


def test_what_may_go_on_is_held_back_and_a_flood_is_not() -> None:
    veil = Veil()
    veil.add("hunter2")
    assert veil.pass_on("say hunt") == "say "
    assert veil.pass_on("ing\n") == "hunting\n"
    assert veil.pass_on("h" + "\n" * 10_000) == "h" + "\n" * 10_000
