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


def resized(shown: str, columns: int, more: str) -> str:
    canvas = Canvas(4, 20)
    canvas.feed(shown.encode())
    canvas.resize(4, columns)
    canvas.feed(more.encode())
    return canvas.view().text.rstrip("\n")


@pytest.mark.parametrize("moved", ["", "\x1b[20G", "\x1b[1;1H", "\x1b[4;1H"])
@pytest.mark.parametrize(
    "erases",
    [
        *("\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[?J", "\x1b[?K"),
        *("\x1b[X", "\x1b[9X", "\x1b[@", "\x1b[9@", "\x1b[P", "\x1b[9P"),
        *("\x1b[L", "\x1b[M", "\x1b[S", "\x1b[T", "\x1b[9^", "\n\n\n\n", "\x1bD" * 4, "\x1bM" * 4),
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


LAST = "x" * 19 + "y"
GONE = " " * 19 + "y"


@pytest.mark.parametrize(
    ("sequence", "seen"),
    [
        # What erases or moves takes the wrap back: `y` takes the last column.
        *(
            ("\x1b[K", LAST),
            ("\x1b[J", LAST),
            ("\x1b[X", LAST),
            ("\x1b[9X", LAST),
            ("\x1b[P", LAST),
        ),
        *(("\x1b[@", LAST), ("\x1b[1K", GONE), ("\x1b[2K", GONE), ("\x1b[1J", GONE)),
        *(("\x1b[2J", GONE), ("\x1b[C", LAST), ("\x1b[20G", LAST), ("\b\x1b[C", LAST)),
        *((each, f"{FULL}\n{GONE}") for each in ("\n", "\x1bD", "\x1b[B", "\x1b[e", "\x1b[2d")),
        ("\x1bM", f"{GONE}\n{FULL}"),
        ("\x1b[L", f"y\n{FULL}"),
        ("\x1b[M", "y"),
        # The rest leaves it.
        *((each, f"{FULL}\ny") for each in ("\t", "\x1b[9I", "\x1b[Z", "\x1b[3J", "\x1b[1m")),
        *((each, f"{FULL}\ny") for each in ("\x1b7\r\x1b8", "\x1b[!p", "\x1b[?7l\x1b[?7h")),
        ("\x1b[T", f"\ny{FULL[1:]}"),
    ],
)
def test_after_the_last_column(sequence: str, seen: str) -> None:
    assert drawn(FULL).cursor == (0, 19)
    assert text(f"{FULL}{sequence}y") == seen


@pytest.mark.parametrize("erases", ["\x1b[K", "\x1b[J", "\x1b[X", "\x1b[9X", "\x1b[P", "\x1b[@"])
def test_the_last_column_is_erased_though_the_line_is_full(erases: str) -> None:
    assert text(FULL + erases) == FULL[:-1]


def test_an_accent_stands_in_the_last_column() -> None:
    assert text(f"{'x' * 18}ae\u0301y") == f"{'x' * 18}aé\ny"


def test_a_wrap_survives_another_width() -> None:
    assert resized(FULL, 30, "y") == f"{FULL}\ny"
    assert resized(FULL, 10, "y") == f"{'x' * 10}\ny"
    assert resized("x" * 15, 10, "yz") == f"{'x' * 9}y\nz"
    assert resized("x" * 15 + "\x1b7\r", 10, "\x1b8yz") == f"{'x' * 9}y\nz"
    assert resized(f"{FULL}\x1b7\r", 30, "\x1b8y") == f"{FULL}\ny"


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


def test_special_graphics() -> None:
    graphics = " ◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
    every = "".join(map(chr, range(0x20, 0x7F)))
    view = drawn(f"\x1b(0{every}|", 1, 100)
    assert view.lines == (every[: 0x5F - 0x20] + graphics + "≠",)
    assert text("\x1b(0éqñ") == "é─ñ"


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("\x0eq\x0fq", "qq"),
        ("\x1b)0q\x0eq\x0fq", "q─q"),
        ("\x1b*0\x1bnqq\x0fq", "──q"),
        ("\x1b+0\x1boqq\x0fq", "──q"),
        ("\x1b*0\x1bNqq\x1bOq", "─qq"),
        ("\x1b+0\x1bOqq", "─q"),
        ("\x1b+0\x1bOq\x1b[mqq", "─qq"),
        ("\x1b*0\x1bN\r\x1b[1mqq", "─q"),
        ("\x1b)0\x1b*0\x0e\x1b7\x0f\x1b(A\x1b8q\x0fq", "─q"),
        # Sets of its that are ASCII here; those that it does not know change nothing.
        *((f"\x1b(0\x1b({code}#abq", "#abq") for code in "B1245679=CEHKQRYZ`f"),
        *((f"\x1b(0\x1b({code}#abq", "#▒␉─") for code in "038:;?@DIUVXabz~"),
        *((f"\x1b({code}#abq", "£áâñ") for code in "A<"),
        ("\x1b-0\x0eq", "q"),
    ],
)
def test_character_sets(shown: str, seen: str) -> None:
    assert text(shown) == seen


def test_a_soft_reset_is_of_how_to_write() -> None:
    before = "\x1b[2;3r\x1b[?6h\x1b[4h\x1b(0\x1b)0\x1b*0\x0e\x1bN\x1b[?7l\x1b[?25l"
    view = drawn(f"\x1b]0;title\x07{before}{LOUD}\x1b[2;4H\x1b7\x1b[!pq\x0eq")
    assert view.lines == ("", "", "   qq", "")
    assert view.cursor == (2, 5)
    assert view.cursor_visible
    assert view.title == "title"
    assert len(view.runs[2]) == 1
    assert text(f"abc\r{before}\x1b[!p\x1b[1;1H{FULL}yz") == f"{FULL}\nyz"
    assert text(f"{before}\x1b[!p\x1b[4;1H\na\x1b[1;1Hb\x1b[9Be") == "b\n\n\nae"
    # What was saved is where a terminal begins.
    assert text(f"\x1b[2;2H{LOUD}\x1b7\x1b[!p\x1b[3;3H\x1b8a") == "a"
    assert drawn(f"{LOUD}\x1b7\x1b[!p\x1b8a").runs == drawn("a").runs


def test_a_soft_reset_is_of_nothing_else() -> None:
    assert text("ab\r\ncd\x1b[!p") == "ab\ncd"
    assert text("\x1b[20h\x1b[!pabc\nd") == "abc\nd"
    assert text("\x1b[3g\x1b[5G\x1bH\r\x1b[!p\ta\tb") == f"    a{' ' * 14}b"
    assert drawn("\x1b[?5h\x1b[!pa").runs[0][0].reverse


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("\x1b[2Ia", f"{' ' * 16}a"),
        ("\x1b[0Ia", f"{' ' * 8}a"),
        ("\x1b[9Iab", f"{' ' * 19}a\nb"),
        ("\x1b[9999Ia", f"{' ' * 19}a"),
        ("\x1b[20G\x1b[2Za", f"{' ' * 8}a"),
        ("\x1b[20G\x1b[0Za", f"{' ' * 16}a"),
        ("\x1b[9G\x1b[Za", "a"),
        ("\x1b[20G\x1b[9999Za", "a"),
        ("\x1b[3g\x1b[5G\x1bH\x1b[20G\x1b[Za\x1b[Zb", "    b"),
        ("\x1b[3g\ta", f"{' ' * 19}a"),
        ("\x1b[9G\x1b[g\r\ta", f"{' ' * 16}a"),
        ("\x1b[9G\x1b[2g\x1b[1g\r\ta", f"{' ' * 8}a"),
        ("\x1b[5G\x1bH\x1bH\r\ta\tb", "    a   b"),
        ("\x1b[5G\x1bH\x1bH\x1b[g\r\ta", f"{' ' * 8}a"),
        (f"{FULL}\x1bH\r\t\t\ty", f"{'x' * 19}y"),
        ("\x1b[3g\x1bca\tb", "a       b"),
    ],
)
def test_stops(shown: str, seen: str) -> None:
    assert text(shown) == seen


def test_stops_are_there_before_the_columns_are() -> None:
    assert resized("\x1b[5G\x1bH", 40, "\r\t\t\t\t\ta") == f"{' ' * 32}a"


def test_a_wide_character_is_repeated_up_to_the_end_of_the_line() -> None:
    """Where xterm goes on, at a cost that nobody's output needs."""
    assert text(f"{'x' * 13}漢\x1b[9b|") == f"{'x' * 13}漢漢漢|"


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("ab\x1b[3b|", "abbbb|"),
        ("a\x1b[0b|", "aa|"),
        ("漢\x1b[3b|", "漢漢漢漢|"),
        ("e\u0301\x1b[2b|", "éee|"),
        (f"{'x' * 18}ab\x1b[2bc", f"{'x' * 18}ab\nbbc"),
        ("\x1b[3b|", "|"),
        # Anything else between them.
        *((f"ab{each}\x1b[3b|", "ab|") for each in ("\x07", "\x0f", "\x1b[1m", "\x1b(B")),
        *((f"ab{each}\x1b[3b|", "ab|") for each in ("\x1b]0;t\x07", "\x1b[?999z", "\x1b=")),
        ("ab\x1b[2b\x1b[2b|", "abbb|"),
        ("ab\r\x1b[3b", "ab"),
    ],
)
def test_only_what_came_just_before_is_repeated(shown: str, seen: str) -> None:
    assert text(shown) == seen


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("\x1b[2;3fa", "\n  a"),
        ("\x1b[0;0fa", "a"),
        ("abc\x1b[2Ed", "abc\n\nd"),
        ("abc\x1b[0Ed", "abc\nd"),
        ("a\r\nb\r\nc\x1b[9Fd", "d\nb\nc"),
        ("ab\x1b[99ay", f"ab{' ' * 17}y"),
        # VPR goes past the bottom of what scrolls, unless DECOM holds it.
        ("\x1b[2;3r\x1b[1;5H\x1b[9ea", "\n\n\n    a"),
        ("\x1b[1;2r\x1b[9ea", "\n\n\na"),
        ("\x1b[2;3r\x1b[?6h\x1b[ea\x1b[9eb", "\n\nab"),
        ("\x1b[2;3r\x1b[9Ba", "\n\na"),
        ("\x1b[4;3H\x1b7\x1b[2;3r\x1b[?6h\x1b7\x1b[1;4r\x1b8a", "\na"),
        ("\x1b[2;4r\x1b[?6h\x1b[3;3H\x1b7\x1b[1;2r\x1b8a", "\n  a"),
        # DECAWM is not saved with the cursor.
        (f"{FULL}\x1b7\x1b[?7l\x1b8yz", f"{'x' * 19}z"),
        (f"\x1b[?7l{FULL}ab\x1b[?7hy", f"{'x' * 19}b\ny"),
        ("ab\x1b[^c", "  c\nab"),
        (
            "\x1b[2;3r\x1b[?6h\x1b[2;9H\x1b#8\x1b[9By",
            "\n".join(["E" * 20] * 3 + ["y" + "E" * 19]),
        ),
        ("\x1b[?6h\x1b#8\x1b[2;3ra\x1b[1M", "\n".join(["a" + "E" * 19] + ["E" * 20] * 3)),
    ],
)
def test_where_the_cursor_goes(shown: str, seen: str) -> None:
    assert text(shown) == seen


def test_an_alignment_display_leaves_the_colours_of_the_pen() -> None:
    pen, rest = drawn(f"{LOUD}\x1b#8a").runs[0]
    assert pen == run_of("a", "red", "blue")
    assert rest == run_of("E" * 19, "default", "default")


def test_what_is_concealed_is_blank() -> None:
    view = drawn("a\x1b[8;44mb\u65e5c\x1b[28md\x1b[me")
    assert view.lines[0] == "a    de"
    assert view.runs[0][:3] == (
        run_of("a", "default", "default"),
        run_of("    d", "default", "blue"),
        run_of("e" + " " * 13, "default", "default"),
    )
    assert text("\x1b[8mb\x1b[2G\x1b[28mc") == " c"
