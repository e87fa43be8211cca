"""What must hold for every text and every way in which it comes: decoding, windows, patterns."""

from __future__ import annotations

import itertools
import os
import re
import warnings
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pexpect import EOF
from pexpect.expect import Expecter, searcher_re
from pexpect.fdpexpect import fdspawn

from ocisbx.errors import ConfigError
from ocisbx.expect import searching
from ocisbx.expect.patterns import compile_pattern
from ocisbx.expect.searching import BoundedExpecter, Searcher
from ocisbx.expect.spawn import Spawn

if TYPE_CHECKING:
    from collections.abc import Iterator

PATTERNS = [
    "ab", "a+b", "b$", "^a", r"(?<=a)b", "a(?=b)", "a(?!b)", r"\bab\b", r"a\B", "(a|ab)c", "a.*c",
    "(?m)^b", "(?m)a$", "(?i)AB", "a{2,3}", "[^a]c", "(a)(b)?", r"(a|b)\1", "a*?c", "",
    "c|ab", r"\Aa", r"a\Z", "(?s:.)c",
]  # fmt: skip
TEXTS = st.lists(st.text("abc \n", max_size=6), max_size=12)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that texts of a few characters are as good as floods."""
    monkeypatch.setattr(searching, "ALWAYS_CHARACTERS", 2)
    monkeypatch.setattr(searching, "CONTEXT_CHARACTERS", 2)


def pieces_through_pipe(pieces: list[bytes]) -> Iterator[Spawn]:
    reader, writer = os.pipe()
    spawn = Spawn(reader, encoding="utf-8")
    try:
        for piece in pieces:
            os.write(writer, piece)
            yield spawn
    finally:
        os.close(writer)
        yield spawn
        spawn.close()


@given(st.text(), st.lists(st.integers(0, 60)))
@example("é€😀", [1, 2, 3, 4, 5, 6, 7, 8])
def test_text_arrives_whole_wherever_it_is_cut(text: str, cuts: list[int]) -> None:
    data = text.encode()
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    came = ""
    for spawn in pieces_through_pipe(pieces):
        while spawn.absorb():
            pass
        came = spawn.unread_text
    assert came == text


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_become_the_text_that_python_makes_of_them(first: bytes, second: bytes) -> None:
    came = ""
    for spawn in pieces_through_pipe([first, second]):
        while spawn.absorb():
            pass
        came = spawn.unread_text
    assert came == (first + second).decode(errors="replace")


@given(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3), TEXTS)
def test_a_cut_window_matches_as_the_whole_output_does(
    patterns: list[str], pieces: list[str]
) -> None:
    """Piece by piece, pexpect's own matcher and ours find the same, with the same around it."""
    reader, writer = os.pipe()
    theirs, ours = fdspawn(reader, encoding="utf-8"), Spawn(reader, encoding="utf-8")
    try:
        compiled = [re.compile(pattern, re.DOTALL) for pattern in patterns]
        expected = Expecter(theirs, searcher_re(compiled))
        found = BoundedExpecter(ours, Searcher([compile_pattern(text) for text in patterns]))
        answers = [(expected.existing_data(), found.existing_data())]
        for piece in pieces:
            if answers[-1][0] is not None:
                break
            answers.append((expected.new_data(piece), found.new_data(piece)))
        assert all(wanted == got for wanted, got in answers), answers
        if answers[-1][0] is not None:
            assert ours.after == theirs.after
            assert ours.buffer == theirs.buffer
            assert ours.match.groups() == theirs.match.groups()  # type: ignore[union-attr]
            # pexpect loses it where the match is empty and at the end.
            assert ours.before == theirs.before or not (ours.after or ours.buffer)
    finally:
        os.close(writer)
        ours.close()


@given(st.lists(st.text("ab", max_size=9), max_size=20))
def test_waiting_for_the_end_alone_keeps_all(pieces: list[str]) -> None:
    came = None
    for spawn in pieces_through_pipe([piece.encode() for piece in pieces]):
        came = spawn
    assert came is not None
    # The generator has closed it; what it would have read is given by hand.
    expecter = BoundedExpecter(came, Searcher([EOF]))
    for piece in pieces:
        assert expecter.new_data(piece) is None
    assert expecter.eof() == 0
    assert came.before == "".join(pieces)


@given(
    st.text("ab({[]})\\*+?|,^$.-#: 0123<=>!Pe~&\n", max_size=14), st.text("ab{}[] :", max_size=9)
)
def test_a_pattern_means_what_it_means_to_re(pattern: str, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.simplefilter("error", DeprecationWarning)
        try:
            plain = re.compile(pattern, re.DOTALL)
        except (re.error, FutureWarning, DeprecationWarning, OverflowError, RecursionError):
            plain = None
        try:
            ours = compile_pattern(pattern)
        except ConfigError:
            ours = None
    if plain is None or ours is None:
        # What re refuses or warns of, and what is too large, may be refused.
        assert plain is None or ours is None
        return
    wanted, found = plain.search(text), ours.search(text)
    assert (wanted and wanted.span()) == (found and found.span())
    assert ours.groups == plain.groups
