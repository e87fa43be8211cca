"""Well-known programs and ways of asking, proven by the files that they leave."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tests.recipes.cookbook import last

if TYPE_CHECKING:
    from tests.recipes.cookbook import Cookbook

pytestmark = pytest.mark.runtime


def test_python(cookbook: Cookbook) -> None:
    report = cookbook.cook("python")
    assert report["outcome"] == "ok", last(report)
    assert next(s["groups"] for s in report["steps"] if s["name"] == "the sum") == ["285"]
    assert (cookbook.workspace / "squares.txt").read_text() == "0 1 4 9 16 25 36 49 64 81\n"


def test_python_that_fails(cookbook: Cookbook) -> None:
    (cookbook.workspace / "squares.txt").mkdir()
    report = cookbook.cook("python")
    assert report["outcome"] == "fail"
    assert report["message"].startswith("IsADirectoryError: "), last(report)


def test_bash(cookbook: Cookbook) -> None:
    report = cookbook.cook("bash")
    assert report["outcome"] == "ok", last(report)
    # That of a program that Ctrl-C ended: it was stopped, and went on, before.
    assert (cookbook.workspace / "status.txt").read_text() == "130\n"


def test_vim(cookbook: Cookbook) -> None:
    path = cookbook.workspace / "list.txt"
    path.write_text("- milk\n- butter\n")
    report = cookbook.cook("vim")
    assert report["outcome"] == "ok", last(report)
    assert path.read_text() == "- milk\n- oil\n- bread\n"


def test_less(cookbook: Cookbook) -> None:
    lines = [f"line {number}" for number in range(1000)]
    lines[700] = "this is the end"
    (cookbook.workspace / "book.txt").write_text("\n".join(lines))
    report = cookbook.cook("less")
    assert report["outcome"] == "ok", last(report)
    page = (cookbook.workspace / "page.txt").read_text().splitlines()
    # A screen of 24 rows, the last of which is less's own.
    assert page == lines[700:723]


def test_top(cookbook: Cookbook) -> None:
    report = cookbook.cook("top")
    assert report["outcome"] == "ok", last(report)
    assert (cookbook.workspace / "status.txt").read_text() == "143\n"


def test_a_program_that_reads_its_terminal(cookbook: Cookbook) -> None:
    report = cookbook.cook("tty")
    assert report["outcome"] == "ok", last(report)
    assert (cookbook.workspace / "deleted.txt").read_text() == "one\ntwo\n"


def test_a_program_that_switches_echo_off(cookbook: Cookbook) -> None:
    token = "an unusual word"
    report = cookbook.cook("echo-off", secrets={"TOKEN": token})
    assert report["outcome"] == "ok", last(report)
    told = (cookbook.workspace / "token.sha256").read_text().split()[0]
    assert told == hashlib.sha256(token.encode()).hexdigest()


def test_a_flood(cookbook: Cookbook) -> None:
    report = cookbook.cook("flood")
    assert report["outcome"] == "ok", last(report)
    assert (cookbook.workspace / "answer.txt").read_text() == "no\n"


def test_a_program_that_dies(cookbook: Cookbook) -> None:
    report = cookbook.cook("dies")
    assert (report["outcome"], report["message"]) == ("fail", "it ended before it asked")
    assert report["steps"][-1]["before"] == "Passw"
    assert report["duration_s"] < 30


def test_half_a_character(cookbook: Cookbook) -> None:
    report = cookbook.cook("half")
    assert report["outcome"] == "ok", last(report)
    assert (cookbook.workspace / "answer.txt").read_text() == "crème"
