"""ocisbx-runtimes(7) says what the quirks data says."""

import re

import pytest

from ocisbx.container.select import ORDERS
from ocisbx.quirks import AUTO_ORDER, KNOWN_NAMES, LACKS, TABLE, Lack
from tests.meta.tree import ROOT

PAGE = (ROOT / "ocisbx/man/ocisbx-runtimes.7.md").read_text(encoding="utf-8")


def row(lack: Lack) -> str:
    versions = f"before {'.'.join(map(str, lack.fixed))}" if lack.fixed else "all"
    cells = (lack.runtime, versions, lack.promise, lack.evidence, lack.instead)
    return f"| {' | '.join(cells)} |"


def test_the_table_of_what_cannot_be_offered_is_that_of_the_quirks() -> None:
    """In its order, whole, and nothing besides."""
    _, _, section = PAGE.partition("## What a runtime cannot offer\n")
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert lines[2:] == [row(lack) for lack in LACKS]


@pytest.mark.parametrize("name", KNOWN_NAMES)
def test_every_runtime_is_introduced_and_its_way_told(name: str) -> None:
    assert re.search(rf"^\| {name}\b", PAGE, re.MULTILINE)
    assert f"**{name}**" in PAGE


def test_the_orders_are_those_of_the_selection() -> None:
    assert f"| {', '.join(AUTO_ORDER)}: the fastest" in PAGE
    first, *rest = ORDERS["strongest"]
    assert f"| {first}, then those of `auto` |" in PAGE
    assert tuple(rest) == AUTO_ORDER


def test_every_platform_is_named() -> None:
    for platform in {platform for quirks in TABLE for platform in quirks.platforms}:
        assert f"{platform} is tried" in PAGE
