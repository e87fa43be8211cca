"""What xterm (379, by its own print of the screen) makes of sequences that terminals differ in."""

from __future__ import annotations

import pytest

from ocisbx.expect.screen import Canvas, View


def drawn(shown: str, rows: int = 4, columns: int = 20) -> View:
    canvas = Canvas(rows, columns)
    canvas.feed(shown.encode())
    return canvas.view(colours=True)


def text(shown: str) -> str:
    return drawn(shown).text.rstrip("\n")


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
