"""Transcripts as text: what a person could read, and nothing that steers a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.cli import carry_out
from ocisbx.errors import ConfigError
from ocisbx.expect.playback import Playback, play
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
        ([b"[" * 100_000 + b"\n"], "a.cast:1: not JSON"),
    ],
)
def test_what_is_none_is_refused(lines: list[bytes], words: str) -> None:
    with pytest.raises(ConfigError) as told:
        play(lines, "a.cast")
    assert words in str(told.value)


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
        "typed": [{"at_s": 1.25, "text": "Ada\n"}, {"at_s": 2.0, "text": None}],
    }
    assert carry_out(["transcript", str(tmp_path / "none")]) == 125
    assert "cannot be read" in capfd.readouterr().err
