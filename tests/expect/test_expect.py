"""expect() and its kin on real programs: matches, ends, times, and what must not hang."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from pexpect import EOF, TIMEOUT

from ocisbx.errors import ConfigError, ExpectEOF, ExpectTimeout, TerminalError
from ocisbx.expect.expecting import Expect
from ocisbx.terminal.device import READ_BYTES
from tests.box import eventually
from tests.expect.programs import driven, program, python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT_S = 20.0


def test_a_prompt_is_answered_and_the_end_is_told() -> None:
    with driven(*python("print('hello ' + input('name? ')); raise SystemExit(3)")) as terminal:
        assert terminal.expect(r"(\w+)\? ", WAIT_S) == 0
        assert (terminal.before, terminal.after) == ("", "name? ")
        assert terminal.match[1] == "name"
        assert terminal.sendline("Ada") == 4
        assert terminal.expect([EOF, r"hello (\w+)\r\n"], WAIT_S) == 1
        assert terminal.match[1] == "Ada"
        assert terminal.before == "Ada\r\n"
        with pytest.raises(ExpectEOF) as raised:
            terminal.expect("more", WAIT_S)
        assert raised.value.what == "the output ended before 'more' appeared"
        assert raised.value.why.endswith("there was no output")
        # The terminal hangs up a moment before the program is gone.
        assert terminal.spawn.how_ended() == "exited with code 3"
        # Again, at once, and as pexpect's constant.
        assert terminal.expect(["more", EOF], WAIT_S) == 1
        with pytest.raises(TerminalError, match="the program has ended"):
            terminal.sendline("anybody?")


def test_the_first_match_in_the_output_wins_and_then_the_first_in_the_list() -> None:
    with driven("printf", "one two three") as terminal:
        assert terminal.expect(["three", "two", "t"], WAIT_S) == 1
        assert terminal.expect_exact(["x", "three", EOF], WAIT_S) == 1
        assert terminal.match == "three"


def test_time_that_is_over() -> None:
    with driven("sh", "-c", "printf 'wait\\033[31m...'; sleep 60") as terminal:
        started = time.monotonic()
        with pytest.raises(ExpectTimeout) as raised:
            terminal.expect(["done", "failed"], 1)
        assert 1 <= time.monotonic() - started < 20
        error = raised.value
        assert error.what == "'done' or 'failed' did not appear in 1 s"
        # What the program printed is shown, and steers nothing.
        assert error.why == r"the output ends with 'wait\x1b[31m...'"
        assert error.render().replace("\n", "").isprintable()
        assert terminal.before == "wait\x1b[31m..."
        assert terminal.expect(["done", TIMEOUT], 0) == 1
        # It was not consumed.
        assert terminal.expect("wait", 0) == 0


def test_zero_seconds_look_at_what_is_there_and_at_all_of_it(tmp_path: Path) -> None:
    with driven(*python("print('x' * 30000 + ' end'); input()")) as terminal:
        assert terminal.expect("never|end", WAIT_S) == 0
        with pytest.raises(ExpectTimeout):
            terminal.expect("more", 0)
    written = tmp_path / "written"
    script = f"stty -echo; seq 1500; echo end; touch {written}; read line; seq 3"
    with driven("sh", "-c", script) as terminal:
        # 8 KB lie in the terminal, more than one read of it gives.
        assert eventually(written.exists)
        assert terminal.expect(r"\bend\r\n", 0) == 0
        terminal.sendline()
        assert terminal.expect("3\r\n", WAIT_S) == 0


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing \\), unterminated subpattern"),
        ("[", "unterminated character set"),
        ("(?R)", "unknown extension"),
        ("a{1000000000}", "1000000000 steps"),
        ("((a{1000}){1000}){1000}", "steps"),
        ("(?:" * 5000 + ")" * 5000, "nested too deeply"),
        ("x" * 100_000, "100000 characters"),
        (r"\k", "bad escape"),
    ],
)
def test_a_pattern_that_does_not_compile_is_refused_before_anything_is_read(
    pattern: str, why: str
) -> None:
    with driven("cat") as terminal:
        terminal.sendline("here")
        with pytest.raises(ConfigError, match=why):
            terminal.expect(["here", pattern], WAIT_S)
        assert terminal.expect("here", WAIT_S) == 0


def test_a_pattern_that_backtracks_is_stopped() -> None:
    with driven("printf", "a" * 60 + "b") as terminal:
        started = time.monotonic()
        with pytest.raises(ConfigError) as raised:
            terminal.expect(r"(\w|\w\w)+\d$", WAIT_S)
        assert time.monotonic() - started < WAIT_S
        assert "took over 1 s" in raised.value.what
        assert "backtracks" in raised.value.remedy
        assert terminal.expect("b", WAIT_S) == 0


def test_compiled_patterns_keep_their_flags() -> None:
    with driven("printf", "One\nTWO three") as terminal:
        assert (
            terminal.expect(
                [re.compile("one.two"), re.compile("one\r$", re.IGNORECASE | re.MULTILINE)], 5
            )
            == 1
        )
        assert terminal.expect(re.compile("t w o # spaced", re.IGNORECASE | re.VERBOSE), 5) == 0


def test_half_a_character_waits_for_its_other_half() -> None:
    source = r"""
        import os, time
        os.write(1, b"sm\xc3")
        input()
        os.write(1, b"\xb8r \xff ok\n")
        input()
        os.write(1, b"end \xe2\x82")
    """
    with driven(*python(source), echo=False) as terminal:
        assert terminal.expect("sm", WAIT_S) == 0
        assert terminal.expect(["ø", TIMEOUT], 0.2) == 1
        terminal.sendline()
        assert terminal.expect("ør \ufffd ok", WAIT_S) == 0
        terminal.sendline()
        # The end comes in the middle of a character.
        assert terminal.expect(EOF, WAIT_S) == 0
        assert terminal.before.endswith("end \ufffd")


def test_bytes_stay_bytes() -> None:
    with driven("printf", r"\377\000 sm\303\270r", encoding=None) as terminal:
        assert terminal.expect([b"\xff(.)", "ø"], WAIT_S) == 0
        assert terminal.match[1] == b"\0"
        assert terminal.expect("ø", WAIT_S) == 0
        assert terminal.before == b" sm"


def test_what_is_typed_and_read_at_once_does_not_lock() -> None:
    """cat waits for us to read what it prints, while we type on."""
    line = "x" * 1000 + "\n"
    with driven("cat") as terminal:
        assert terminal.send(line * 300) == 300 * len(line)
        terminal.send("end of it\n")
        assert terminal.expect("end of it", WAIT_S) == 0
        assert terminal.expect("end of it", WAIT_S) == 0


def test_a_program_that_does_not_read_is_an_error_in_time() -> None:
    with driven("sh", "-c", "stty raw -echo; echo up; sleep 60") as terminal:
        terminal.expect("up", WAIT_S)
        with pytest.raises(TerminalError) as raised:
            terminal.send("x" * 1_000_000, timeout_s=0.5)
        assert raised.value.what == "the program does not read what is typed"


def test_a_flood_is_passed_in_bounded_memory() -> None:
    with driven(
        "sh", "-c", "yes 2>/dev/null | head -c 30000000; printf 'DONE> '; sleep 60"
    ) as terminal:
        terminal.spawn.max_before = 1 << 20
        assert terminal.expect("DONE> $", 60) == 0
        # The piece that brings the match is not cut.
        assert len(terminal.before) <= (1 << 20) + READ_BYTES
        assert terminal.before.endswith("y\r\ny\r\n")
        assert terminal.spawn.before_truncated
        assert sum(map(len, terminal.spawn.tail)) < 2 << 20


def test_what_was_dropped_before_it_was_looked_for_is_told() -> None:
    with driven("sh", "-c", "seq 400000; echo END; echo more; echo END; sleep 60") as terminal:
        terminal.spawn.max_before = 1 << 20
        while not terminal.buffer.endswith("more\r\nEND\r\n"):
            assert terminal.spawn.absorb(WAIT_S)
        with pytest.raises(ExpectTimeout):
            terminal.expect("never", 0)
        assert terminal.spawn.before_truncated
        for truncated in (True, False):
            assert terminal.expect("END", WAIT_S) == 0
            assert terminal.spawn.before_truncated is truncated


def test_all_of_before_is_there_when_the_window_was_cut() -> None:
    text = "".join(f"line {number}\r\n" for number in range(20_000))
    with driven("sh", "-c", "seq -f 'line %.0f' 0 19999; printf 'DONE> '") as terminal:
        assert terminal.expect("DONE> ", WAIT_S) == 0
        assert terminal.before == text
        assert not terminal.spawn.before_truncated


@pytest.mark.parametrize("text", ["abc", ""])
def test_a_match_of_nothing_at_the_end_keeps_what_was_before(text: str) -> None:
    with driven("printf", "%s", text) as terminal:
        terminal.expect([EOF, "$never"], WAIT_S)
        terminal.spawn.feed("more")
        assert terminal.expect("$", 0) == 0
        assert terminal.before == "more"


def test_keys_reach_the_program_as_from_a_keyboard() -> None:
    with driven("sh", "-c", "stty raw -echo; echo up; head -c 4 | od -An -c") as terminal:
        terminal.expect("up", WAIT_S)
        for key in "c[?M":
            terminal.sendcontrol(key)
        terminal.expect(r"003 +033 +177 +\\r", WAIT_S)
    with driven("sh", "-c", "echo up; exec sleep 60") as terminal:
        terminal.expect("up", WAIT_S)
        terminal.sendcontrol("c")
        assert terminal.expect(EOF, WAIT_S) == 0
        assert terminal.spawn.how_ended() == "was killed by signal 2"
    with driven("cat") as terminal:
        terminal.sendeof()
        assert terminal.expect(EOF, WAIT_S) == 0
        with pytest.raises(ConfigError, match="there is no key Ctrl and"):
            terminal.sendcontrol("1")


def test_echo_is_off_at_a_password_prompt() -> None:
    with driven(*python("import getpass; print(len(getpass.getpass('key: ')))")) as terminal:
        terminal.expect("key: ", WAIT_S)
        assert not terminal.echo
        terminal.sendline("pass word", secret=True)
        terminal.expect(r"\b9\r\n", WAIT_S)
        assert "pass word" not in terminal.before


def test_a_secret_stands_in_no_message() -> None:
    with driven("cat") as terminal:
        assert terminal.echo
        terminal.sendline("hunter2", secret=True)
        terminal.expect(["7", TIMEOUT], 0.5)
        with pytest.raises(ExpectTimeout) as raised:
            terminal.expect("never", 0.1)
        assert "hunter2" not in str(raised.value)
        assert "[secret]" in raised.value.why


def test_read_gives_what_was_asked_for() -> None:
    with driven("sh", "-c", "printf 'one two'; read x; printf three") as terminal:
        assert terminal.read(3, WAIT_S) == "one"
        with pytest.raises(ExpectTimeout, match="the next 10 characters"):
            terminal.read(10, 0.2)
        assert terminal.expect("two", 0) == 0
        terminal.sendline()
        assert terminal.read(timeout_s=WAIT_S) == "\r\nthree"
        assert terminal.read(5, 0) == ""


def test_a_size_that_is_none_is_refused() -> None:
    with program("cat") as started:
        started.terminal.resize(50, 132)
        assert os.get_terminal_size(started.terminal.controller_fd) == (132, 50)
        for size in ((0, 80), (24, 0), (100_000, 80), (24, 100_000), (-1, 1)):
            with pytest.raises(ConfigError, match="is not a terminal"):
                started.terminal.resize(*size)


def test_a_descriptor_that_is_closed_under_us() -> None:
    controller, terminal_fd = os.openpty()
    terminal = Expect(controller)
    os.close(terminal_fd)
    os.close(controller)
    with pytest.raises(TerminalError, match="the terminal cannot be read"):
        terminal.expect("x", 1)
    with pytest.raises(TerminalError):
        terminal.send("x")
    with pytest.raises(TerminalError):
        assert terminal.echo
    with pytest.raises(TerminalError, match="cannot be read"):
        Expect(controller)


@pytest.mark.parametrize("number", [signal.SIGWINCH, 40])
def test_a_signal_without_anybody_in_the_foreground_is_an_error(number: int) -> None:
    """And goes to nobody else: killpg(0, ...) is for our own group."""
    came: list[int] = []
    before = signal.signal(number, lambda *_: came.append(number))
    controller, terminal = os.openpty()
    try:
        with pytest.raises(TerminalError, match=f"signal {int(number)} cannot be sent"):
            Expect(controller).spawn.terminal.signal(number)
    finally:
        os.close(terminal)
        os.close(controller)
        signal.signal(number, before)
    assert came == []


def test_the_end_and_the_time_stand_for_themselves_on_the_screen_too() -> None:
    with driven("sh", "-c", "echo here; read x") as terminal:
        assert terminal.expect_screen([EOF, "here"], WAIT_S) == 1
        assert terminal.screen_match[0] == "here"
        assert terminal.expect_screen(["never", EOF, TIMEOUT], 0.1) == 2
        matches = [terminal.screen_match]
        with pytest.raises(ExpectTimeout, match="'never' or EOF did not appear"):
            terminal.expect_screen(["never", EOF], 0)
        matches.append(terminal.screen_match)
        terminal.sendline()
        assert terminal.expect_screen(["never", EOF, TIMEOUT], WAIT_S) == 1
        assert [*matches, terminal.screen_match] == [TIMEOUT, None, EOF]
        with pytest.raises(ExpectEOF, match="before 'never' or TIMEOUT appeared"):
            terminal.expect_screen(["never", TIMEOUT], WAIT_S)


def test_what_was_typed_as_a_secret_stands_in_no_error_though_it_is_looked_for() -> None:
    secret = "tiger. 5%"
    with driven("cat") as terminal:
        terminal.sendline(secret, secret=True)
        terminal.expect_exact([f"{secret}\r\n{secret}\r\n"], WAIT_S)
        looks: list[tuple[Callable[..., int], Any]] = [
            (terminal.expect_exact, secret),
            (terminal.expect_exact, f"is {secret}!"),
        ]
        for pattern in (f"{secret}x", re.escape(secret) + "x", re.compile(re.escape(secret) + "x")):
            looks += [(terminal.expect, pattern), (terminal.expect_screen, pattern)]
        for look, sought in looks:
            with pytest.raises(ExpectTimeout) as raised:
                look([sought, "never"], 0)
            assert "[secret]" in raised.value.what
            assert "tiger" not in str(raised.value)
    with driven("cat", encoding=None) as terminal:
        terminal.sendline(secret.encode(), secret=True)
        with pytest.raises(ExpectTimeout, match=r"^'\[secret\]!' did not appear"):
            terminal.expect_exact(f"{secret}!".encode(), 0)


def test_several_secrets_in_a_pattern_are_masked_escaped_or_not() -> None:
    with driven("cat") as terminal:
        for secret in (r"a\!b", "q.r"):
            terminal.sendline(secret, secret=True)
        for sought in (r"a\!b q\.r", r"q\.r a\!b", r"q.r a\\!b"):
            with pytest.raises(ExpectTimeout) as raised:
                terminal.expect(sought, 0)
            assert raised.value.what.count("[secret]") == 2
            assert not any(part in raised.value.what for part in ("!", "q", "r'"))


def test_what_is_wrong_with_a_pattern_is_told_without_the_secret_that_it_holds() -> None:
    secret = "tiger. 5%"
    slow = rf"{re.escape(secret)}|(\w|\w\w)+\d$"
    wrong: dict[Any, str] = {
        slow: "took over 1 s",
        re.compile(slow): "took over 1 s",
        f"({secret}": "is not a pattern",
        f"(?P={secret})": "is not a pattern",
    }
    source = "input(); print('a' * 60 + 'b', end='', flush=True); input()"
    with driven(*python(source), echo=False) as terminal:
        terminal.sendline(secret, secret=True)
        terminal.expect_screen("ab", WAIT_S)
        for look in (terminal.expect, terminal.expect_screen):
            for pattern, why in wrong.items():
                with pytest.raises(ConfigError, match=why) as raised:
                    look(["never", pattern], WAIT_S)
                assert "[secret]" in raised.value.what
                assert "tiger" not in raised.value.render()
                assert "tiger" not in repr(vars(raised.value))
