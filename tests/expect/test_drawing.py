"""What stands on the screen after what was printed: as terminals draw it, at a bounded cost."""

from __future__ import annotations

import time

import pyte
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ocisbx.expect.grid import MAX_CELLS, MAX_MARKS
from ocisbx.expect.screen import Canvas, View
from tests.expect.programs import driven

# Some twenty times what the slowest takes of 32 KiB, and a third of what it took pyte 0.8.
PATIENCE_S = 5.0
WAIT_S = 20.0


def drawn(shown: bytes | str, rows: int = 4, columns: int = 20) -> View:
    canvas = Canvas(rows, columns)
    canvas.feed(shown.encode() if isinstance(shown, str) else shown)
    return canvas.view(colours=True)


def text(shown: bytes | str, rows: int = 4, columns: int = 20) -> str:
    return drawn(shown, rows, columns).text.rstrip("\n")


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        # Half a wide character is a blank, wherever the other half went.
        ("漢字\ra", "a 字"),
        ("漢\x1b[1;1Hab", "ab"),
        ("漢\x1b[1;2Hb", " b"),
        ("漢字\x1b[1;1H\x1b[P", " 字"),
        ("漢字\x1b[1;2H\x1b[@", "   字"),
        ("漢\x1b[1;2H\x1b[X", ""),
        ("漢\x1b[1;2H\x1b[X字\r\n", " 字"),
        ("漢字\x1b[1;3H\x1b[1K|", "  |"),
        # At the right margin it goes to the next line whole.
        ("x" * 19 + "漢abc", f"{'x' * 19}\n漢abc"),
        ("\x1b[?7l" + "x" * 19 + "漢", f"{'x' * 18}漢"),
        # What takes no column of its own stands on the character before it, or is nothing.
        ("✔️ Done\r\nnext", "✔️ Done\nnext"),
        ("a\u200bHello", "aHello"),
        ("👩\u200d💻 at work", "👩💻 at work"),
        ("e\u0301te\u0301 漢\u0301!", "été 漢\u0301!"),
        ("\u0301abc", "abc"),
        ("ที่ \u1112\u1161\u11ab", "ที่ 한"),
    ],
)
def test_no_character_takes_others_with_it(shown: str, seen: str) -> None:
    assert text(shown) == seen


@pytest.mark.parametrize("prefix", ["", "?", ">", "<", "=", "!", "1$", '1"'])
@pytest.mark.parametrize("parameters", ["", "1", "1;2", "1;2;3", "1;2;3;4", "4:3", "²"])
def test_no_sequence_takes_what_follows_with_it(prefix: str, parameters: str) -> None:
    for final in map(chr, range(0x40, 0x7F)):
        shown = f"\x1b[{prefix}{parameters}{final}\x1b[r\x1b[H\x1b[2JHELLO\r\nworld"
        assert text(shown) == "HELLO\nworld", shown


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        # As vim and its like begin.
        ("\x1b[?4mHELLO\r\nworld", "HELLO\nworld"),
        ("\x1b[>4;2m\x1b[<u\x1b[=1;1uHELLO", "HELLO"),
        ("\x1bP+q436f;6b75\x1b\\\x1bP$q q\x1b\\HELLO", "HELLO"),
        ("\x1b[" + "9" * 5000 + "mHELLO", "HELLO"),
        ("\x1b[1;2Aone\x1b[2;3;4Htwo", "one\n  two"),
        # Only one that begins with ESC ] ends with BEL; what another sequence breaks off is over.
        ("\x1b]0;title\x07HELLO", "HELLO"),
        ("\x1b]0;title\x1b[31mHELLO", "HELLO"),
        ("\x1b_half\x18HELLO", "HELLO"),
        ("\x1b[3\x1b[31mHELLO", "HELLO"),
        ("\x1b[3\u00e4HELLO", "äHELLO"),
        ("\x1b[3\r1HELLO", "\n\n\nELLO"),
        ("\u009b31mHELLO\u0085world", "HELLO\nworld"),
        # curses repeats characters, scrolls, and comes back, so.
        ("\x1b(0q\x1b[4b\x1b(B>", "─────>"),
        ("one\r\ntwo\x1b[S\x1b[1;1H1", "1wo"),
        ("one\x1b[T\x1b7\r\n\x1b8\x1b8!", "   !\none"),
        ("\x1b[2;3r\x1b[4;1Hfour\nx\x1b[1;1H\x1b[9Aone", "one\n\n\nfourx"),
        ("\x1b[?6h\x1b[5dfour", "\n\n\nfour"),
        ("ab\tc\x1b[3g\r\n\x1b[5G\x1bH\r\tx\ty", "ab      c\n    x              y"),
        (f"one\r\n{'x' * 20}\x1b[Ay", f"one{' ' * 16}y\n{'x' * 20}"),
        (f"{'x' * 20}\x1b[By\x1b[1;1H\x1b[20@\x1b[M", f"{' ' * 19}y"),
        ("abcdef\x1b[1;2H\x1b[2P\x1b[4hXY", "aXYdef"),
        ("one\r\ntwo\r\nsix\x1b[2;1H\x1b[M\x1b[L\x1b[2Mend", "one\nend"),
        ("\x1b[?3hnarrow\x1b[99Cx", "narrow             x"),
    ],
)
def test_sequences_do_what_terminals_do(shown: str, seen: str) -> None:
    assert text(shown) == seen


@pytest.mark.parametrize(
    ("sequence", "foreground", "underlined"),
    [
        ("\x1b[>4;2m", "default", False),
        ("\x1b[4:3m", "default", True),
        ("\x1b[4m\x1b[4:0m", "default", False),
        ("\x1b[38:2::1:2:255m", "0102ff", False),
        ("\x1b[38:2:1:2:255m", "0102ff", False),
        ("\x1b[38;2;1;2;255m", "0102ff", False),
        ("\x1b[38;2;999;0;0m", "default", False),
        ("\x1b[58;2;4;31;4;31m", "red", False),
        ("\x1b[38;5;9;4m", "ff0000", True),
        ("\x1b[95;38m", "brightmagenta", False),
    ],
)
def test_colours(sequence: str, foreground: str, *, underlined: bool) -> None:
    run = drawn(sequence + "x\x1b[?5h").runs[0][0]
    assert (run.foreground, run.underlined, run.reverse) == (foreground, underlined, True)


@pytest.mark.parametrize(
    ("shown", "rows", "seen"),
    [
        ("hello\r\n$ ", 10, "hello\n$"),
        ("hello\r\n$ ", 1, "$"),
        (
            "".join(f"{n}\r\n" for n in range(20)) + "$ ",
            10,
            "\n".join([*"", *map(str, range(11, 20)), "$"]),
        ),
        ("a\r\nb\r\nc\x1b[H", 2, "b\nc"),
        ("hello\x1b[24;1H\x1b[2K\x1b[1;1H", 3, "hello"),
    ],
)
def test_a_smaller_terminal_keeps_what_can_be_kept(shown: str, rows: int, seen: str) -> None:
    canvas = Canvas(24, 20)
    canvas.feed(shown.encode())
    canvas.view()
    canvas.resize(rows, 20)
    view = canvas.view()
    assert view.text.rstrip("\n ") == seen
    assert view.rows == len(view.lines) == rows
    canvas.resize(24, 20)
    assert canvas.view().text.rstrip("\n ") == seen


# What makes much of little. Each is meant to be repeated.
AMPLIFIERS = (
    *(
        "a\u0301".encode(),
        "\u0301".encode(),
        b"\x1b#8",
        b"\x1b#8\x1b[2J",
        b"\x1b#8\x1b[1;31m\x1b[2J",
    ),
    *(
        b"\n",
        b"x\r",
        b"x\x1b[J",
        b"x\x1b[1J",
        b"\x1bc",
        b"\x1bM",
        b"\x1b[4hx",
        b"\x1b[@\r",
        b"\x1b[9999@",
    ),
    *(b"\x1b[P", b"\x1b[9999X", b"\x1b[K", b"\x1b[L", b"\x1b[65535L", b"\x1b[9999M", b"\x1b[S"),
    *(
        b"\x1b[9999T",
        b"x\x1b[9999b",
        "漢\x1b[9999b".encode(),
        b" \x1bH",
        b" \x1bH\x1b[9999Z\x1b[9999I",
        b"\x1b[g\x1b[C",
        b"\t\r",
        b"\x1b7",
        b"\x1b8",
        "漢".encode(),
        b"\xff",
    ),
    *(
        b"\x1b[" + b"1;" * 120 + b"m",
        b"\x1b[?5h\x1b[?5l",
        b"\x1b[?1049h",
        b"\x1b[?3h",
        b"\x1b[9999;9999Hx",
        b"\x1b[!p",
        b"\x1b[48;2;1;2;3m\x1b[T\x1b[44m\x1b[J",
        b"\x1b(0\x1b)0\x0e\x1bNq",
    ),
    *(
        b"\x1b[" + b";" * 5000,
        b"\x1b]0;" + b"x" * 5000,
        b"\x1b]P1",
        b"\x1b]R",
        b"\x1bP" + b"x" * 5000,
        b"\x1b[" + b"9" * 5000,
    ),
)


@pytest.mark.parametrize("size", [(24, 80), (65535, 65535), (65535, 1), (50, 4000)])
def test_little_output_makes_little_work(size: tuple[int, int]) -> None:
    """It is the same for each byte, whatever it says and however large the terminal."""
    for sequence in AMPLIFIERS:
        canvas = Canvas(*size)
        started = time.process_time()
        canvas.feed(sequence * (32768 // len(sequence)))
        canvas.view(colours=True)
        assert time.process_time() - started < PATIENCE_S, sequence


def test_a_huge_terminal_is_drawn_in_part() -> None:
    """Whoever is inside sets its size."""
    view = drawn("漢\u0301" * 50_000, 65535, 65535)
    assert view.rows * view.columns <= MAX_CELLS
    assert view.rows == len(view.lines) == len(view.runs)
    assert drawn("x" * 300, 200, 400).lines[0] == "x" * 300
    script = "stty rows 65535 cols 65535; printf 'ready\\n'; read x"
    with driven("sh", "-c", script) as terminal:
        started = time.monotonic()
        terminal.expect_screen("ready", WAIT_S)
        assert time.monotonic() - started < WAIT_S / 2
        assert terminal.size.rows == 65535
        terminal.sendline()


OUTPUT = st.lists(
    st.one_of(
        st.sampled_from(AMPLIFIERS),
        st.binary(max_size=9),
        st.sampled_from(["漢", "e\u0301", "\u0301" * 40, "\u200d", "한", "✔️"]).map(str.encode),
        st.builds(
            lambda *parts: "".join(parts).encode(),
            st.sampled_from(
                [
                    *("\x1b[", "\x1b[?", "\x1b[>", "\x1b[!", "\u009b", "\x1b]", "\x1b]P"),
                    *("\x1b(", "\x1b*", "\x1b#", "\x1b", "\x1bP"),
                ]
            ),
            st.lists(st.integers(0, 12).map(str), max_size=3).map(";".join),
            st.characters(min_codepoint=0x20, max_codepoint=0x7E),
        ),
    ),
    max_size=15,
)


@given(OUTPUT, st.integers(1, 5), st.integers(1, 9), st.integers(0, 99))
@example(
    [b"\x1b[?6h", b"\x1b[2;4r", b"\x1b[9d", b"\x1b[9;9H", b"\x1b7", b"\x1b[?6l", b"\x1b8"], 5, 9, 9
)
@example(["漢".encode(), b"\x1b[4h", "漢".encode()], 2, 1, 4)
def test_it_is_all_one_in_which_pieces_it_comes(
    pieces: list[bytes], rows: int, columns: int, cut: int
) -> None:
    shown = b"".join(pieces)
    canvas = Canvas(rows, columns)
    for byte in shown:
        canvas.feed(bytes([byte]))
    view = canvas.view(colours=True)
    assert view == drawn(shown, rows, columns)
    canvas = Canvas(rows, columns)
    canvas.feed(shown[:cut])
    canvas.feed(shown[cut:])
    assert view == canvas.view(colours=True)
    assert len(view.lines) == rows
    assert all(len(line) <= columns * (1 + MAX_MARKS) for line in view.lines)
    for line, runs in zip(view.lines, view.runs, strict=True):
        assert "".join(run.text for run in runs).rstrip(" ") == line
    assert 0 <= view.cursor[0] < rows
    assert 0 <= view.cursor[1] < columns
    canvas.resize(columns, rows)
    assert len(canvas.view().lines) == columns


COUNTS = st.sampled_from(["", "1", "2", "3", "40"])
# What pyte draws as terminals do, but not from behind the last column; and not what deletes.
FROM_A_COLUMN = st.one_of(
    st.sampled_from(["\n", "\t", "\x1bM", "\x1bD"]),
    st.sampled_from(["\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[K", "\x1b[1K", "\x1b[2K"]),
    st.builds("\x1b[{}{}".format, COUNTS, st.sampled_from("@X")),
)
PLAIN = st.lists(
    st.one_of(
        st.text(alphabet="abc ", min_size=1, max_size=9),
        st.builds("\x1b[{}G{}".format, st.integers(0, 12), FROM_A_COLUMN),
        st.sampled_from(["\r", "\b", "\x1b#8\x1b[H", "\x1b)0\x0e", "\x0f", "\x1bc"]),
        st.builds("\x1b[{}{}".format, COUNTS, st.sampled_from("CDEFGL")),
        st.builds("\x1b[{};{}H".format, st.integers(0, 7), st.integers(0, 12)),
        st.sampled_from(["\x1b[4h", "\x1b[4l", "\x1b[?7l", "\x1b[?7h", "\x1b[20h", "\x1b[20l"]),
    ),
    max_size=25,
)


@given(PLAIN)
def test_plain_output_is_drawn_as_by_pyte(pieces: list[str]) -> None:
    shown = "".join(pieces)
    theirs = pyte.Screen(10, 5)
    stream = pyte.Stream(theirs)
    stream.use_utf8 = False
    stream.feed(shown)
    view = drawn(shown, 5, 10)
    assert list(view.lines) == [line.rstrip(" ") for line in theirs.display]
    assert view.cursor == (theirs.cursor.y, min(theirs.cursor.x, 9))
