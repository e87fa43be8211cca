"""Transcripts as text: what a person could read, and nothing that steers a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.cli import carry_out
from ocisbx.errors import ConfigError
from ocisbx.expect.playback import MAX_DRAWN_BYTES, Playback, play
from ocisbx.terminal.device import Size
from ocisbx.terminal.transcript import Transcript, make_file

if TYPE_CHECKING:
    from pathlib import Path

GOOD = b'{"version": 2, "width": 9, "height": 9}\n'
HEADER: dict[str, Any] = {"version": 2, "width": 20, "height": 4, "timestamp": 0}


def played(*events: list[Any], header: dict[str, Any] = HEADER) -> Playback:
    return play([json.dumps(line).encode() + b"\n" for line in (header, *events)], "a.cast")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("", ""),
        ("one\r\ntwo", "one\ntwo\n"),
        ("".join(f"{n}\r\n" for n in range(9)), "".join(f"{n}\n" for n in range(9))),
        ("10%\r50%\r100%\r\n", "100%\n"),
        ("\x1b[31mred\x1b[0m", "red\n"),
        ("first\x1b[2J\x1b[Hsecond", "first\nsecond\n"),
        ("abc\b\bX", "aXc\n"),
        ("x" * 25, f"{'x' * 20}\n{'x' * 5}\n"),
        ("\u5bbf\u547d", "\u5bbf\u547d\n"),
        ("first\x1bcsecond", "first\nsecond\n"),
        ("a\r\n\r\nb\x1b[2S", "a\n\nb\n"),
        # Half a wide character is none.
        ("\u5bbf\u547d\ra\x1b[2J\x1b[Hend", "a \u547d\nend\n"),
        # Only a part of the screen scrolls: what leaves it was not the first line.
        ("top\x1b[2;4r\x1b[4;1Ha\r\nb", "top\n\na\nb\n"),
    ],
)
def test_what_could_be_read(shown: str, text: str) -> None:
    assert played([0.5, "o", shown]).text == text


def test_pieces_are_one(tmp_path: Path) -> None:
    """A character, and a sequence, that came in two parts; by the writer itself."""
    transcript = Transcript(make_file(str(tmp_path / "cast")), Size(4, 20), "xterm")
    for piece in (b"Z\xc3", b"\xbcrich \x1b[3", b"1mred\r\n"):
        transcript.shown(piece)
    transcript.typed(b"yes\n", hidden=False)
    transcript.typed(b"secret\n", hidden=True)
    transcript.resized(Size(2, 10))
    transcript.shown(b"0123456789AB")
    transcript.close()
    with open(tmp_path / "cast", "rb") as file:
        found = play(file, "cast")
    assert found.text == "Z\u00fcrich red\n0123456789\nAB\n"
    assert [text for _, text in found.typed] == ["yes\n", None]
    assert (found.rows, found.columns) == (4, 20)


def test_a_secret_that_is_typed_in_pieces(tmp_path: Path) -> None:
    transcript = Transcript(make_file(str(tmp_path / "cast")), Size(4, 20), "xterm")
    transcript.conceal("topsecret")
    for key in ("to", "psec", "ret", "\n", "top", "s"):
        transcript.typed(key.encode(), hidden=False)
    transcript.close()
    with open(tmp_path / "cast", "rb") as file:
        typed = [text for _, text in play(file, "cast").typed]
    assert "".join(filter(None, typed)) == "[secret]\ntops"


def test_a_cut_last_line_is_left_out() -> None:
    lines = [json.dumps(line).encode() + b"\n" for line in (HEADER, [1, "o", "a"])]
    assert play([*lines, b'[2, "o", "b'], "a.cast").text == "a\n"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "a.cast:1: not JSON"),
        ([b"{}\n"], "a.cast is no transcript"),
        ([b'{"version": 2, "width": 0, "height": 1}\n'], "0 is not a terminal's number of columns"),
        ([b'{"version": 2, "width": 1}\n'], "None is not a terminal's number of rows"),
        ([GOOD, b"[1]\n"], "a.cast:2: not an event"),
        ([GOOD, b"[NaN,1,2]\n"], "a.cast:2: not an event"),
        ([GOOD, b"\xff\n"], "a.cast:2: not JSON"),
        (
            [GOOD, b'[1,"r","9"]\n'],
            "a.cast:2: '9' is no size",
        ),
        ([GOOD, b'[1,"r","%sx24"]\n' % (b"9" * 5000)], "is no size"),
        ([GOOD, b'[1,"r","99999x24"]\n'], "99999 is not a terminal's number of columns"),
        ([GOOD, '[1,"r","\u0663x\u0663"]\n'.encode()], "is no size"),
        ([b"[" * 100_000 + b"\n"], "a.cast:1: not JSON"),
    ],
)
def test_what_is_none_is_refused(lines: list[bytes], words: str) -> None:
    with pytest.raises(ConfigError) as told:
        play(lines, "a.cast")
    assert words in str(told.value)


def test_a_smaller_terminal_loses_no_line() -> None:
    """As when a window is made smaller, and larger again."""
    lines = "".join(f"{n}\r\n" for n in range(3))
    events = ([1, "o", lines], [2, "r", "20x2"], [3, "r", "20x9"], [4, "o", "end"])
    assert played(*events).text == "0\n1\n2\nend\n"
    assert played([1, "o", "$ "], [2, "r", "20x2"], [3, "o", "ls"]).text == "$ ls\n"
    assert played([1, "o", "a\r\n\r\n\r\nb"], [2, "r", "20x1"]).text == "a\n\n\nb\n"


def test_little_output_makes_little_text() -> None:
    """Seven bytes may fill a screen, of any size."""
    header = {**HEADER, "width": 65535, "height": 65535}
    found = played([1, "o", "\x1b#8\x1b[2J" * 1000], [2, "o", "end"], header=header)
    assert found.text_truncated
    assert MAX_DRAWN_BYTES * 0.9 < len(found.text) <= MAX_DRAWN_BYTES * 1.1
    assert found.text[:80] == "E" * 80
    assert found.text[-6:] == "E\nend\n"
    assert (found.rows, found.columns) == (65535, 65535)
    assert not played([1, "o", "x\r\n" * 50_000]).text_truncated


def test_the_verb_says_what_it_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cast"
    header = {**HEADER, "width": 4000, "height": 50}
    shown = [1, "o", "\x1b#8\x1b[2J" * 400]
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, shown)))
    assert carry_out(["transcript", str(path)]) == 0
    found = capfd.readouterr()
    assert len(found.out) < MAX_DRAWN_BYTES * 1.1
    assert found.err == "ocisbx: the text begins later: it is far longer than what was shown\n"


@given(st.lists(st.text(max_size=40), max_size=5))
def test_nothing_that_was_shown_steers(shown: list[str]) -> None:
    text = played(*([0.1, "o", piece] for piece in shown)).text
    assert all(c == "\n" or c.isprintable() for c in text)


def test_the_verb(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cast"
    events = [[0.5, "o", "name? "], [1.25, "i", "Ada\n"], [2, "m", "input was hidden"]]
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, *events)))
    assert carry_out(["transcript", str(path)]) == 0
    assert capfd.readouterr().out == "name?\n"
    assert carry_out(["transcript", "--typed", str(path)]) == 0
    assert capfd.readouterr().out == "       1.250  Ada\\n\n       2.000  [hidden]\n"
    assert carry_out(["transcript", "--json", str(path)]) == 0
    assert json.loads(capfd.readouterr().out) == {
        "rows": 4,
        "columns": 20,
        "started_at": "1970-01-01T00:00:00.000+00:00",
        "duration_s": 2.0,
        "text": "name?\n",
        "text_truncated": False,
        "typed": [{"at_s": 1.25, "text": "Ada\n"}, {"at_s": 2.0, "text": None}],
    }
    assert carry_out(["transcript", str(tmp_path / "none")]) == 125
    assert "cannot be read" in capfd.readouterr().err
