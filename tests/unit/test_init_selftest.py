"""The parser of the init's self-test: whole, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.errors import RuntimeFailed
from ocisbx.init.selftest import SelfTest, parse_self_test

ERRNO = st.integers(0, 133)
BITS = st.none() | st.integers(0, 2**64 - 1)
TESTS = st.builds(
    SelfTest,
    st.none() | st.booleans(),
    st.none() | st.integers(0, 2),
    *[BITS] * 5,
    st.none() | st.lists(st.integers(0, 2**32 - 1)).map(tuple),
    *[ERRNO] * 8,
)
STATUS = ("NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Groups")


def lines(test: SelfTest) -> list[str]:
    """As init_selftest.c prints them."""
    shown = []
    for name, value in zip((*STATUS, *SelfTest._fields[len(STATUS) :]), test, strict=True):
        if isinstance(value, tuple):
            shown.append(f"{name} {''.join(f'{group} ' for group in value)}")
        elif value is not None:
            shown.append(f"{name} {value:016x}" if name.startswith("Cap") else f"{name} {value:d}")
    return shown


def parse(shown: list[str]) -> SelfTest:
    return parse_self_test(("\n".join(shown) + "\n").encode())


@given(TESTS, st.data())
def test_what_was_printed_comes_back_in_any_order(test: SelfTest, data: st.DataObject) -> None:
    assert parse(data.draw(st.permutations(lines(test)))) == test


@given(TESTS, st.data())
def test_a_line_that_is_missing_or_there_twice_is_noticed(
    test: SelfTest, data: st.DataObject
) -> None:
    shown = lines(test)
    at = data.draw(st.integers(0, len(shown) - 1))
    with pytest.raises(RuntimeFailed, match="was not expected"):
        parse([*shown, shown[at]])
    name = shown.pop(at).partition(" ")[0]
    if name in STATUS:
        unknown: dict[str, Any] = {SelfTest._fields[STATUS.index(name)]: None}
        assert parse(shown) == test._replace(**unknown)
    else:
        with pytest.raises(RuntimeFailed, match=f"no line {name}"):
            parse(shown)


@given(TESTS, st.data())
def test_damage_is_refused_or_another_value(test: SelfTest, data: st.DataObject) -> None:
    text = bytearray("\n".join(lines(test)).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = parse_self_test(bytes(text))
    except RuntimeFailed:
        return
    assert sum(one != other for one, other in zip(found, test, strict=True)) <= 1


@given(st.binary())
def test_hostile_bytes_are_refused(output: bytes) -> None:
    with pytest.raises(RuntimeFailed) as caught:
        parse_self_test(output)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Seccomp -1", "'-1' is not a number"),
        ("Seccomp \N{SUPERSCRIPT TWO}", "ascii"),
        ("NoNewPrivs 2", "'2' is neither 0 nor 1"),
        ("CapEff 0", "'0' is not a set of capabilities"),
        ("Groups 0 x", "'x' is not a number"),
        ("mount", "'' is not a number"),
        ("x" * 9999, "was not expected"),
    ],
)
def test_the_message_names_what_is_wrong(line: str, why: str) -> None:
    with pytest.raises(RuntimeFailed) as caught:
        parse([line])
    assert why in caught.value.why
    assert len(caught.value.why) <= 200
