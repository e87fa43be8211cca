"""Secrets that a terminal shows: in pieces, in lines that are broken, one over another."""

from __future__ import annotations

import codecs
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ocisbx.terminal.veil import MASK, Veil

SECRETS = ("hunter2", "ab", "abc", "pass word", "[secret]", "1234", "x1234def", "a  b")


# No character of MASK: what it and its neighbours come to is no secret.
LETTERS = "abdä \r\n\x01"
KNOWN = st.lists(
    st.text(LETTERS, min_size=1, max_size=6).filter(lambda text: text.strip(" \r\n") == text != ""),
    min_size=1,
    max_size=4,
)


def veiled(pieces: list[str], secrets: tuple[str, ...] = SECRETS) -> str:
    veil = Veil()
    for secret in secrets:
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


@pytest.mark.parametrize(
    ("secrets", "shown", "kept"),
    [
        (("abcdef", "defghi"), "abcdefghi abcdef.defghi", f"{MASK} {MASK}.{MASK}"),
        (("abcdef", "defghi"), "abcdefgh defgh", f"{MASK}gh defgh"),
        (("abcdef", "defghi", "cde"), "xabcdefghicdex", f"x{MASK}{MASK}x"),
        (("abc", "abcdef"), "abcdef abcde abc", f"{MASK} {MASK}de {MASK}"),
        (("def", "abcdefgh"), "abcdefg abcdefgh", f"abc{MASK}g {MASK}"),
        # One over itself; one beside another has a mask of its own.
        (("aba",), "ababa abaaba", f"{MASK} {MASK}{MASK}"),
        (("abcdef", "defghi"), "abc\r\ndef\nghi", MASK),
    ],
)
def test_what_overlaps_is_masked_as_a_whole(
    secrets: tuple[str, ...], shown: str, kept: str
) -> None:
    assert veiled([shown], secrets) == kept
    assert veiled(list(shown), secrets) == kept
    assert {veiled([shown[:at], shown[at:]], secrets) for at in range(len(shown))} == {kept}
    assert veiled([shown], secrets[::-1]) == kept


@given(KNOWN, st.lists(st.one_of(st.text(LETTERS, max_size=6), st.integers(0, 3)), max_size=8))
@example(["ab", "bd"], ["a", "bd"])
@example(["ab"], ["a \n", "b"])
def test_no_secret_is_left_wherever_it_is_cut(secrets: list[str], parts: list[str | int]) -> None:
    pieces = [part if isinstance(part, str) else secrets[part % len(secrets)] for part in parts]
    text, given = "".join(pieces), tuple(secrets)
    kept = veiled([text], given)
    for secret in secrets:
        assert secret not in kept
        assert secret not in kept.replace("\r", "").replace("\n", "")
    assert veiled(pieces, given) == veiled(list(text), given) == kept


@given(KNOWN, st.lists(st.text("xyz \r\nöç\x02\ufffd[]", max_size=8), max_size=6))
def test_what_holds_no_secret_is_unchanged(secrets: list[str], pieces: list[str]) -> None:
    assert veiled(pieces, tuple(secrets)) == "".join(pieces)


@given(KNOWN, st.data())
def test_bytes_are_cut_anywhere(secrets: list[str], data: st.DataObject) -> None:
    """In UTF-8 or Latin-1, composed or not, as the transcript decodes it."""
    shown = b""
    for secret in secrets:
        composed = data.draw(st.booleans())
        written = unicodedata.normalize("NFC" if composed else "NFD", secret)
        encoding = data.draw(st.sampled_from(["utf-8", "latin-1"] if composed else ["utf-8"]))
        shown += b"x" + written.encode(encoding) + b"x"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shown)), max_size=6)))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [decoder.decode(shown[a:b]) for a, b in pairwise([0, *cuts, len(shown)])]
    kept = veiled(pieces, tuple(secrets))
    # Of a secret of one letter that is no UTF-8 only what stands for any such byte.
    assert kept.replace(MASK, "").replace("\ufffd", "").strip("x") == ""


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("käthe", unicodedata.normalize("NFD", "käthe")),
        (unicodedata.normalize("NFD", "käthe"), "käthe"),
        ("käthe", "käthe".encode("latin-1").decode(errors="replace")),
        ("käthe", "käthe".encode().decode("latin-1")),
        ("a\x01b\x7f\x1b", "a^Ab^?^["),
        ("ä\x03", "a\u0308^C"),
        ("a\tb\nc", "a\tb\r\nc"),
    ],
)
def test_it_is_found_however_it_is_written(secret: str, shown: str) -> None:
    assert veiled([f"<{shown}>"], (secret,)) == f"<{MASK}>"
    assert veiled(list(f"<{shown}>"), (secret,)) == f"<{MASK}>"


def test_what_tells_nothing_is_not_masked() -> None:
    assert veiled(["\ufffd\ufffd"], ("äö",)) == "\ufffd\ufffd"


@pytest.mark.parametrize("secret", ["a ", " a", "a  ", " a  b ", "a \n b"])
def test_blanks_at_its_ends_are_no_reason_to_wait(secret: str) -> None:
    for shown in (f"x{secret}\n \n  y", "xa \n\n\n\n\n a  b\n\n \n", "\n\n\n a", " a\n b  "):
        assert veiled(list(shown), (secret,)) == veiled([shown], (secret,))


def test_a_flood_of_what_overlaps_is_passed_on() -> None:
    veil = Veil()
    veil.add("aa")
    shown = "".join(veil.pass_on("a") for _ in range(10_000))
    assert (shown, veil.pass_on("b"), veil.rest()) == (MASK, "b", "")
