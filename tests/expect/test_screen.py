"""The screen as a person sees it: cursor, colours, wide characters, and output that means harm."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ocisbx.errors import ConfigError, ExpectEOF, ExpectTimeout
from ocisbx.expect.screen import Canvas
from tests.expect.programs import driven, python

WAIT_S = 20.0
FULL_SCREEN = """
    import curses

    def main(window):
        curses.start_color()
        curses.init_pair(1, curses.COLOR_RED, curses.COLOR_BLUE)
        items, chosen = ["alpha", "beta", "gamma"], 0
        while True:
            rows, columns = window.getmaxyx()
            window.erase()
            window.addstr(0, 2, f"menu {columns}x{rows}")
            for row, item in enumerate(items, start=2):
                look = curses.color_pair(1) | curses.A_BOLD if row - 2 == chosen else 0
                window.addstr(row, 4, item, look)
            window.addstr(rows - 1, 0, "q: quit")
            window.refresh()
            key = window.getch()
            if key == ord("q"):
                return items[chosen]
            chosen = (chosen + {curses.KEY_DOWN: 1, curses.KEY_UP: -1}.get(key, 0)) % 3

    print("chosen", curses.wrapper(main))
"""


def test_frames_are_drawn_as_terminals_draw_them() -> None:
    """curses chooses VT100's line graphics, also where all else is UTF-8."""
    canvas = Canvas(4, 20)
    canvas.feed(b"\x1b)0\x1b(0lqk\x1b(B Zo\xc3")
    canvas.feed(b"\xab \xe2\x82\xac\r\n\x0ex\x0f x")
    assert canvas.view().text == "┌─┐ Zoë €\n│ x\n\n"
    canvas.feed(b"\x1b(0")
    canvas.restart()
    canvas.feed(b"lqk")
    assert canvas.view().lines[0] == "lqk"


def test_a_full_screen_program_is_driven_by_what_stands_there() -> None:
    with driven(*python(FULL_SCREEN)) as terminal:
        terminal.expect_screen(r"(?m)^q: quit$", WAIT_S)
        view = terminal.screen(colours=True)
        assert (view.rows, view.columns) == (24, 80)
        assert view.lines[0] == "  menu 80x24"
        assert view.lines[2:5] == ("    alpha", "    beta", "    gamma")
        (run,) = [run for run in view.runs[2] if run.text == "alpha"]
        assert (run.foreground, run.background, run.bold) == ("red", "blue", True)
        assert terminal.screen().runs == ()
        terminal.send("\x1bOB\x1bOB")
        terminal.spawn.terminal.resize(10, 40)
        terminal.expect_screen(r"(?ms)menu 40x10.*^q: quit$", WAIT_S)
        assert terminal.screen_match is not None
        assert terminal.screen().lines[9] == "q: quit"
        terminal.send("q")
        # The output itself stayed to be looked at.
        assert terminal.expect(r"chosen (\w+)", WAIT_S) == 0
        assert terminal.match[1] == "gamma"
        assert "q: quit" in terminal.before


def test_the_screen_tells_the_end_and_the_time() -> None:
    with driven("sh", "-c", "printf 'a\\rb\\n'; read x") as terminal:
        started = time.monotonic()
        with pytest.raises(ExpectTimeout, match="'never' did not appear"):
            terminal.expect_screen("never", 1)
        assert time.monotonic() - started < 20
        assert terminal.screen().lines[:2] == ("b", "")
        assert terminal.screen().cursor == (1, 0)
        assert terminal.expect_screen(["x", "^b"], 0) == 1
        with pytest.raises(ConfigError):
            terminal.expect_screen("(", 0)
        terminal.sendline("z")
        with pytest.raises(ExpectEOF):
            terminal.expect_screen("never", WAIT_S)
        assert terminal.expect_screen("z", WAIT_S) == 0


def test_wide_characters_take_two_columns_and_are_one() -> None:
    canvas = Canvas(2, 10)
    canvas.feed("日本語\033[1;9Hx\033[2;1He\u0301".encode())
    view = canvas.view(colours=True)
    assert view.lines == ("日本語  x", "é")
    assert "".join(run.text for run in view.runs[0]) == "日本語  x "


def test_a_character_in_two_pieces_is_drawn_whole() -> None:
    canvas = Canvas(1, 10)
    for byte in "a€b\033[1mc".encode():
        canvas.feed(bytes([byte]))
    assert canvas.view().lines == ("a€bc",)


def test_after_a_flood_the_last_screen_is_drawn() -> None:
    script = "yes 2>/dev/null | head -c 3000000; printf '\\033[H\\033[2Jthe end'; read x"
    with driven("sh", "-c", script) as terminal:
        terminal.screen()
        assert terminal.expect("the end", WAIT_S) == 0
        assert terminal.screen().lines[0] == "the end"
        assert terminal.screen().text.strip() == "the end"


SEQUENCES = st.one_of(
    st.binary(max_size=20),
    st.builds(
        lambda start, numbers, end: start + b";".join(numbers) + end,
        st.sampled_from([b"\x1b[", b"\x1b[?", b"\x1b]", b"\xc2\x9b", b"\x1b(", b"\x1b#", b"\x1b%"]),
        st.lists(st.sampled_from([b"", b"0", b"3", b"7", b"99999", b"9" * 5000, b"x"]), max_size=4),
        st.sampled_from([*(bytes([c]) for c in range(0x40, 0x7F)), b"\x07", b"\x1b\\", b""]),
    ),
    st.text(max_size=5).map(str.encode),
)


@given(st.lists(SEQUENCES, max_size=12), st.integers(1, 6), st.integers(1, 6))
@example([b"\x1b[" + b"9" * 5000 + b"m", b"after"], 2, 6)
@example([b"\x1b[?3h", b"x" * 50], 2, 6)
@example([b"\x1b]0;\x1b[31m\x9b\x07", b"\x1b[99999;99999H", b"\x1b[99999@x"], 3, 5)
def test_nothing_that_a_program_prints_breaks_the_screen(
    pieces: list[bytes], rows: int, columns: int
) -> None:
    canvas = Canvas(rows, columns)
    for piece in pieces:
        canvas.feed(piece)
    view = canvas.view(colours=True)
    assert len(view.lines) == rows == len(view.runs)
    assert view.text.replace("\n", "").isprintable()
    assert view.title.isprintable()
    assert (view.rows, view.columns) == (rows, columns)
    row, column = view.cursor
    assert 0 <= row < view.rows
    assert 0 <= column < view.columns
    canvas.resize(columns, rows)
    assert len(canvas.view().lines) == columns
