"""What is filled into a text to type, and what never is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.errors import ConfigError
from ocisbx.expect.hidden import Hidden
from ocisbx.expect.template import Filled, check_line, joined, parse_template
from ocisbx.terminal.veil import MASK

PLAIN = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)
HOSTILE = st.one_of(PLAIN, st.sampled_from(["${secret:key}", "${1}", "$$", "$", "${", "}"]))


@given(PLAIN, HOSTILE, HOSTILE)
def test_each_place_is_filled_once(around: str, captured: str, secret: str) -> None:
    escaped = around.replace("$", "$$")
    template = parse_template(f"{escaped}${{1}}{escaped}${{secret:key}}$$${{param:key}}")
    filled = template.fill({"1": captured}.__getitem__, {"key": secret}, {"key": captured})
    assert joined(filled) == f"{around}{captured}{around}{secret}${captured}"
    assert [text for text, foreign in filled if foreign] == [captured]
    assert (template.captures, template.secrets, template.params) == (("1",), ("key",), ("key",))


@given(st.text())
def test_any_text_is_a_template_or_refused(text: str) -> None:
    try:
        template = parse_template(text)
    except ConfigError:
        assert "$" in text
        return
    empty = dict.fromkeys([*template.secrets, *template.params], "")
    filled = template.fill(lambda name: "", empty, empty)
    if "$" not in text:
        assert joined(filled) == text


@pytest.mark.parametrize("text", ["$", "$x", "${", "${}", "${secret:}", "${a b}", "${123}", "$}"])
def test_a_lone_dollar_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        parse_template(text)


@given(PLAIN, st.characters(categories=["Cc"]).filter(lambda c: c != "\t"), PLAIN)
def test_no_capture_presses_a_key(left: str, control: str, right: str) -> None:
    text = left + control + right
    with pytest.raises(ConfigError, match="control character"):
        parse_template("${0}").fill(lambda name: text, {}, {})
    with pytest.raises(ConfigError, match="control character"):
        check_line(text)


@given(
    st.lists(st.text("abc *", min_size=1).filter(str.strip), min_size=1, max_size=3),
    st.lists(st.one_of(st.text("abc *[]\r\n", max_size=5), st.integers(0, 2)), max_size=8),
)
def test_a_secret_is_masked_wherever_it_stands(secrets: list[str], pieces: list[str | int]) -> None:
    hidden = Hidden()
    for secret in secrets:
        hidden.add(secret)
    text = "".join(p if isinstance(p, str) else secrets[p % len(secrets)] for p in pieces)
    masked = hidden.mask(text)
    for secret in secrets:
        assert secret not in masked.replace(MASK, "\0")
    # A text of the author's alone is shown, and one of the program's is not, in how many pieces so
    # ever.
    assert hidden.mask_filled([Filled(text, foreign=False)]) == text
    assert hidden.mask_filled([Filled(one, foreign=True) for one in text]) == masked


def test_a_secret_is_masked_also_behind_one_that_the_author_wrote() -> None:
    hidden = Hidden()
    hidden.add("xcor")
    hidden.add("correct")
    pieces = [Filled("xcor", foreign=False), Filled("rect", foreign=True)]
    assert hidden.mask_filled(pieces) == f"x{MASK}"


def test_no_secret_is_looked_for_in_the_mask() -> None:
    hidden = Hidden()
    hidden.add("horse")
    hidden.add("e")
    assert hidden.mask("a horse here") == f"a {MASK} h{MASK}r{MASK}"


def test_a_secret_is_masked_across_the_end_of_a_line() -> None:
    hidden = Hidden()
    hidden.add("correct horse\n")
    assert hidden.mask("x correct \r\nhorse y") == f"x {MASK} y"
    assert hidden.mask("corr\nect ho \rrse") == MASK
    assert hidden.tail("a" * 300 + "correct horse", 20) == "..." + "a" * 12 + MASK
