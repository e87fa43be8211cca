"""What the command line prints steers no terminal, and means the same."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ocisbx.cli.output import inert_json, printable

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
STEERING = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u202e", "\u2066"}


@given(TEXTS)
def test_json_says_the_same_and_steers_nothing(text: str) -> None:
    said = inert_json({"text": text, text: [text]})
    assert json.loads(said) == {"text": text, text: [text]}
    assert not STEERING & set(said)


@given(TEXTS)
def test_a_printable_line_steers_nothing(text: str) -> None:
    assert not STEERING & set(printable(text))


def test_what_can_be_read_stays_as_it_is() -> None:
    assert inert_json("Grüße, 世界 🎉") == '"Grüße, 世界 🎉"'
