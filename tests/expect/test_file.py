"""The file form: TOML in, a script out, or every mistake with its line; and the command line."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.cli import carry_out
from ocisbx.errors import ConfigError
from ocisbx.expect.file import parse_script
from ocisbx.expect.lines import line_of, locate
from ocisbx.schemas import schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD = """\
# Answers what terraform asks.
command = ["terraform", "apply"]
timeout_s = 60
size = [40, 120]

[secrets]
token = { env = "TF_TOKEN" }
"pass" = { file = "/run/pass" }

[[steps]]
name = "log in"
expect = ['token: ?$', "login (\\\\w+)"]

[[steps]]
sendline = "${secret:token}"

[[steps]]
timeout_s = 600
cases = [
  { expect = 'Enter a value: $', answer = "yes", action = "continue", at_most = 3 },
  # the end
  { exact = "Apply complete", action = "ok" },
  { expect = '''Error: (.*)
''', action = "fail", message = "${1}" },
  { eof = true, action = "fail" },
]

[[steps]]
resize = [24, 80]
[[steps]]
signal = "INT"
"""


def test_a_good_file() -> None:
    script = parse_script(GOOD, "good.toml")
    assert [step.kind for step in script.steps] == [
        "expect", "sendline", "cases", "resize", "signal",
    ]  # fmt: skip
    jsonschema.validate(tomllib.loads(GOOD), schema("expect"))


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (
            "'token: ?$'",
            "'token: (?$'",
            "f.toml:12: steps[0].expect: 'token: (?$' is not a pattern",
        ),
        ('"yes"', '"y\\u0003"', "f.toml:20: steps[2].cases[0].answer: 'y\\x03' holds a control"),
        ("exact =", "exakt =", "f.toml:22: steps[2].cases[1].exakt: unknown field"),
        ("{ exact =", "{ at_most = 0, exact =", "f.toml:22: steps[2].cases[1].at_most: "),
        ('"${1}"', '"${2}"', "f.toml:24: steps[2].cases[2].message: ${2}: the case captures no"),
        ("{secret:token}", "{secret:tokn}", "f.toml:15: steps[1].sendline: ${secret:tokn}: "),
        ("[24, 80]", "[0, 80]", "f.toml:29: steps[3].resize: 0 is not a terminal's number of rows"),
        ('"INT"', '"INTT"', "f.toml:31: steps[4].signal: 'INTT' is not a signal"),
        ("timeout_s = 600", "timout_s = 600", "did you mean 'timeout_s'?"),
        ("resize = [24, 80]", "foo = 1", "f.toml:28: steps[3]: a step has exactly one of the keys"),
        (
            "resize = [24, 80]",
            'sendcontrol = "1"',
            "f.toml:29: steps[3].sendcontrol: there is no key Ctrl and '1'",
        ),
        ('{ env = "TF_TOKEN" }', "{}", "f.toml:7: secrets.token: expected one of env and file"),
        ("size = [40, 120]", "size = [40]", "f.toml:4: size: [40] is not a size"),
        ("timeout_s = 60\n", "timeout_s = -1\n", "f.toml:3: timeout_s: "),
        ("[[steps]]\nsignal", "[[steps]\nsignal", "f.toml: not valid TOML"),
    ],
)
def test_a_mistake_is_told_with_its_line(old: str, new: str, wanted: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as raised:
        parse_script(GOOD.replace(old, new, 1), "f.toml")
    assert wanted in str(raised.value)


def test_all_mistakes_are_told_in_the_order_of_their_lines() -> None:
    text = "[[steps]]\nexpect = '('\n[[steps]]\ncases = [{exact='a', answer='\\u0003'}, {foo=1}]\n"
    with pytest.raises(ConfigError) as raised:
        parse_script(text.replace("'\\u0003'", '"\\u0003"'), "f.toml")
    lines = raised.value.what.splitlines()
    assert lines[0] == "the script has 3 problems:"
    assert [line.strip().split(": ")[0] for line in lines[1:]] == [
        "f.toml:2",
        "f.toml:4",
        "f.toml:4",
    ]


@pytest.mark.parametrize("text", ["", "steps = []", "steps = 1", "[steps]\nexpect = 'a'"])
def test_a_file_without_steps_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f\.toml:?\d?: steps: "):
        parse_script(text, "f.toml")


KEYS = st.text("ab é.\"'#[]=", max_size=4)
VALUES = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-9, 9), st.text("a\"'\\\n#]}, é=[{", max_size=6), st.just(1.5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)


def paths(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if path:
        yield path, value
    parts: dict[Any, Any] = dict(enumerate(value)) if isinstance(value, list) else {}
    parts = value if isinstance(value, dict) else parts
    for part, inner in parts.items():
        yield from paths(inner, (*path, part))


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.booleans())
def test_every_key_has_its_line(document: dict[str, Any], multiline: bool) -> None:  # noqa: FBT001 -- hypothesis gives it
    text = tomli_w.dumps(document, multiline_strings=multiline)
    found = locate(text)
    lines = text.split("\n")
    for path, _ in paths(tomllib.loads(text)):
        if not any(isinstance(part, str) for part in path):
            continue
        assert path in found, (path, text)
        last = [part for part in path if isinstance(part, str)][-1]
        if last.isascii() and last.isalpha() and isinstance(path[-1], str):
            assert last in lines[found[path] - 1]


def test_lines_of_all_that_toml_has() -> None:
    text = (
        'a.b = 1 # x = 2\n"c d" = \'\'\'\nx = 1\n\'\'\'\'\ne = """\n\\"""\n"""\n'
        "[t.u]\nf = 1979-05-27T07:32:00Z\n[[l]]\ng = [1, # [\n {h = 1},\n]\n"
        "[[l]]\n[l.m]\ni = {}\n[[l.n]]\nj=1"
    )
    assert tomllib.loads(text)
    found = locate(text)
    wanted = {
        ("a", "b"): 1, ("c d",): 2, ("e",): 5, ("t", "u"): 8, ("t", "u", "f"): 9, ("l", 0): 10,
        ("l", 0, "g", 1, "h"): 12, ("l", 1): 14, ("l", 1, "m", "i"): 16, ("l", 1, "n", 0, "j"): 18,
    }  # fmt: skip
    assert {path: found[path] for path in wanted} == wanted
    assert line_of(found, ("l", 1, "kind", "m", "none")) == 15
    assert line_of(found, ("none",)) == 0


# ------------------------------------------------------------------------ the command line
def test_a_dry_run_tells_what_would_be_done(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    assert carry_out(["expect", "--dry-run", str(file)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "terraform apply: 5 steps"
    assert lines[1] == "   1  expect        60 s  log in"
    assert lines[3] == "   3  cases         600 s"
    assert carry_out(["expect", str(file), "--json", "--dry-run", "--", "sh", "-c", "x"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["command"] == ["sh", "-c", "x"]
    jsonschema.validate(document, schema("expect"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one FILE.toml, or -, expected"),
        (["a", "b"], "one FILE.toml, or -, expected"),
        (["/nonexistent"], "cannot be read"),
        (["--dry", "x"], "did you mean '--dry-run'"),
    ],
)
def test_a_wrong_command_line_is_125(
    arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert carry_out(["expect", *arguments]) == 125
    assert said in capfd.readouterr().err


def test_a_wrong_file_is_125_and_names_the_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad\x1b.toml"
    file.write_text("[[steps]]\nexpect = 'a('\n")
    assert carry_out(["expect", "--dry-run", str(file), "--", "true"]) == 125
    told = capfd.readouterr().err
    assert r"bad\x1b.toml':2: steps[0].expect: 'a(' is not a pattern" in told
    assert "\x1b" not in told
    file.write_text("[[steps]]\nexpect = 'a'\n")
    assert carry_out(["expect", "--dry-run", str(file)]) == 125
    assert "no command was given" in capfd.readouterr().err
