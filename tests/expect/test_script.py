"""The models of a script: what is taken, what is refused, and that JSON and Python agree."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.errors import ConfigError
from ocisbx.expect.file import build_script
from ocisbx.expect.hidden import load_secrets
from ocisbx.expect.script import KINDS, Script

WORD = st.text("abc é", min_size=1, max_size=6)
PATTERN = st.one_of(WORD, st.sampled_from([r"(a+)b", r"(?P<x>\d)", "a|b", "[", "("]))
LINE = st.one_of(
    WORD, st.sampled_from(["${1}", "${x}", "${secret:pw}", "${param:p}", "$$", "$", "a\x03"])
)
CODE = st.integers(-1, 256)
CASE = st.fixed_dictionaries(
    {},
    optional={
        "expect": PATTERN,
        "exact": WORD,
        "eof": st.just(value=True),
        "exit_code": st.one_of(CODE, st.lists(CODE, max_size=2)),
        "timeout": st.just(value=True),
        "answer": LINE,
        "send": LINE,
        "sendcontrol": st.sampled_from(["c", "[", "1"]),
        "action": st.sampled_from(["ok", "fail", "continue", "next", "needs_user", "maybe"]),
        "at_most": st.integers(-1, 3),
        "message": LINE,
    },
)
STEP = st.one_of(
    st.fixed_dictionaries({"expect": st.one_of(PATTERN, st.lists(PATTERN, max_size=2))}),
    st.fixed_dictionaries({"sendline": LINE}, optional={"timeout_s": st.integers(-1, 5)}),
    st.fixed_dictionaries({"cases": st.lists(CASE, max_size=3)}),
    st.fixed_dictionaries({"resize": st.lists(st.integers(-1, 70_000), max_size=3)}),
    st.fixed_dictionaries(
        {"signal": st.one_of(st.integers(-1, 70), st.sampled_from(["INT", "X"]))}
    ),
    st.fixed_dictionaries({"sleep_s": st.floats(allow_nan=True)}),
    st.dictionaries(st.sampled_from([*KINDS, "nothing"]), WORD, max_size=2),
)
DOCUMENT = st.fixed_dictionaries(
    {"steps": st.lists(STEP, max_size=3)},
    optional={
        "secrets": st.just({"pw": {"env": "PW"}}),
        "params": st.fixed_dictionaries(
            {"p": st.fixed_dictionaries({}, optional={"default": LINE})}
        ),
        "size": st.just([24, 80]),
    },
)
VALIDATOR = jsonschema.Draft202012Validator(Script.model_json_schema())


@given(DOCUMENT)
def test_every_document_is_a_script_or_is_refused(document: dict[str, Any]) -> None:
    try:
        script = build_script(document)
    except ConfigError as error:
        told = error
    else:
        assert VALIDATOR.is_valid(document)
        again = build_script(script.model_dump(mode="json", exclude_defaults=True))
        assert again == script
        return
    assert told.what.replace("\n", "").isprintable()
    assert told.remedy


def test_each_step_has_one_kind() -> None:
    for wrong in ({}, {"expect": "a", "send": "b"}, {"nothing": "a"}):
        with pytest.raises(ConfigError, match="exactly one of the keys expect, expect_exact"):
            build_script({"steps": [wrong]})


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({}, "expected one of expect, exact, eof and timeout"),
        ({"expect": "a", "exact": "a"}, "expected one of expect"),
        ({"expect": "a", "answer": "b", "sendcontrol": "c"}, "cannot stand beside answer"),
        ({"eof": True, "answer": "b"}, "nobody reads after the end"),
        ({"eof": True, "action": "continue"}, "nothing comes after the end"),
        ({"timeout": True, "action": "continue"}, "the step's time is over"),
        ({"timeout": True, "action": "needs_user"}, "the step's time is over"),
        ({"expect": "(a)", "answer": "${2}"}, "captures no such thing"),
        ({"expect": "(?P<x>a)", "answer": "${y}"}, "captures no such thing"),
        ({"exact": "a", "answer": "${1}"}, "captures no such thing"),
        ({"exact": "a", "answer": "${secret:pas}"}, "did you mean 'pass'"),
        ({"exact": "a", "message": "${secret:pass}"}, "no place for a secret"),
    ],
)
def test_what_contradicts_itself(case: dict[str, Any], problem: str) -> None:
    document = {"steps": [{"cases": [case]}], "secrets": {"pass": {"env": "X"}}}
    with pytest.raises(ConfigError) as raised:
        build_script(document)
    assert problem in raised.value.what
    assert raised.value.what.startswith("steps[0].cases[0]")


def test_what_is_right() -> None:
    case = {"expect": "(?P<x>a)(b)?", "answer": "${x}${1}${2}${0}${secret:pass}"}
    document = {"steps": [{"cases": [case]}], "secrets": {"pass": {"env": "X"}}}
    assert build_script(document).steps


def test_secrets_come_from_variables_and_files(tmp_path: Any) -> None:
    file = tmp_path / "key"
    file.write_text("from file\n")
    sources = {"a": {"env": "A"}, "b": {"file": str(file)}}
    script = build_script({"steps": [{"send": "x"}], "secrets": sources})
    assert load_secrets(script, {"A": "from env"}) == {"a": "from env", "b": "from file"}
    with pytest.raises(ConfigError, match="the variable A is not set"):
        load_secrets(script, {})
    for text, why in (("", "empty"), ("a\x03b\n", "control"), ("two\nlines\n", "control")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=why) as raised:
            load_secrets(script, {"A": "x"})
        assert "lines" not in str(raised.value)
    wrong: list[dict[str, Any]] = [
        {"a": {}},
        {"a": {"env": "A", "file": "/a"}},
        {"a b": {"env": "A"}},
    ]
    for table in wrong:
        with pytest.raises(ConfigError, match="secrets"):
            build_script({"steps": [{"send": "x"}], "secrets": table})
