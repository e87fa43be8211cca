"""What xterm (379, by its own print of the screen) makes of sequences that terminals differ in."""

from __future__ import annotations

import pytest

from ocisbx.expect.screen import Canvas, Run, View

FULL = "x" * 20
LOUD = "\x1b[1;3;4;7;31;44m"


def run_of(text: str, foreground: str, background: str) -> Run:
    looks = {"bold": False, "italic": False, "underlined": False, "reverse": False}
    return Run(text, foreground, background, **looks)


def drawn(shown: str, rows: int = 4, columns: int = 20) -> View:
    canvas = Canvas(rows, columns)
    canvas.feed(shown.encode())
    return canvas.view(colours=True)


def text(shown: str) -> str:
    return drawn(shown).text.rstrip("\n")


@pytest.mark.parametrize("moved", ["\x1b[20G", "\x1b[1;1H", "\x1b[4;1H"])
@pytest.mark.parametrize(
    "erases",
    [
        *("\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[?J", "\x1b[?K"),
        *("\x1b[X", "\x1b[9X", "\x1b[@", "\x1b[9@", "\x1b[P", "\x1b[9P"),
        *("\x1b[L", "\x1b[M", "\x1b[S", "\x1b[T", "\n\n\n\n", "\x1bD" * 4, "\x1bM" * 4),
    ],
)
def test_what_is_erased_gets_the_background_only(moved: str, erases: str) -> None:
    view = drawn(f"ab\r\n{FULL}{moved}{LOUD}{erases}\x1b[m")
    runs = [run for row in view.runs for run in row if run.background != "default"]
    assert runs
    for run in runs:
        assert run == run_of(" " * len(run.text), "default", "blue")


def test_a_line_that_a_character_wraps_to_gets_the_background() -> None:
    view = drawn(f"\x1b[4;1H{LOUD}{FULL}y")
    assert view.runs[3][0].text == "y"
    assert view.runs[3][1] == run_of(" " * 19, "default", "blue")
    assert drawn(f"ab{LOUD}\x1bc").runs == drawn("").runs


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("\x1b]P1aabbccHELLO", "HELLO"),
        ("\x1b]P1aabbcc\x1b]P2ddeeffHELLO", "HELLO"),
        ("\x1b]P1aabbcc\x1b\\HELLO", "HELLO"),
        ("\x1b]P1aabbcc\x07HELLO", "HELLO"),
        ("\x1b]P1aa\r\nbcHELLO", "HELLO"),
        ("\x1b]PxyzHELLO", "O"),
        # What ends others ends it sooner.
        ("\x1b]Pabc\x07HELLO", "HELLO"),
        ("\x1b]P1a\x1b[1mHELLO", "HELLO"),
        ("\x1b]P12\x18HELLO", "HELLO"),
        ("\x1b]RHELLO", "HELLO"),
        ("\x1b]R\x1b]RHE", "HE"),
        ("\x1b]Rab\x1b]P1234567ab", "abab"),
        # It begins so: these are others.
        ("\x1b]0;P1aabbccR\x07HELLO", "HELLO"),
        ("\x1b]1P1aabbccR\x07HELLO", "HELLO"),
    ],
)
def test_a_palette_of_linux_ends_by_its_length(shown: str, seen: str) -> None:
    assert text(shown) == seen
    for cut in range(len(shown)):
        canvas = Canvas(4, 20)
        canvas.feed(shown[:cut].encode())
        canvas.feed(shown[cut:].encode())
        assert canvas.view().text.rstrip("\n") == seen
