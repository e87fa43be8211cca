"""Parameters of a script: what may be said when it is run, and what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.cli import carry_out as ocisbx
from ocisbx.errors import ConfigError
from ocisbx.expect.file import build_script
from ocisbx.expect.params import command_of, load_params
from tests.expect.programs import carry_out, python

if TYPE_CHECKING:
    from pathlib import Path

PARAMS = {"who": {"default": "Ada"}, "where": {}}
ASK = """
    for _ in range(2):
        print("<" + input("? ") + ">")
"""


def test_they_are_typed_and_shown() -> None:
    steps: list[dict[str, Any]] = [
        {"cases": [{"exact": "? ", "answer": "${param:who} of ${param:where}"}]},
        {"expect": "<(.*)>"},
        {"expect_exact": "? "},
        {"sendline": "${param:who}"},
        {"cases": [{"exact": "<", "action": "ok", "message": "${param:who} ${0} $$"}]},
    ]
    given = {"where": "${param:who}"}
    report = carry_out(python(ASK), steps, params=PARAMS, given=given, secrets={"one": "q"})
    assert (report.outcome, report.message) == ("ok", "Ada < $"), report
    # What is filled in is not read again.
    assert report.steps[1].groups == ("Ada of ${param:who}",)


def test_what_is_given_comes_before_the_default() -> None:
    script = build_script({"steps": [{"send": "x"}], "params": PARAMS})
    assert load_params(script, {"where": ""}) == {"who": "Ada", "where": ""}
    assert load_params(script, {"who": "G", "where": "x=y"}) == {"who": "G", "where": "x=y"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the parameter where was not given, and has no default"),
        ({"where": "x", "whoo": "y"}, "no parameter 'whoo' (did you mean 'who'?)"),
        ({"where": "two\nlines"}, "params.where: 'two\\nlines' holds a control character"),
        ({"where": "a\0b"}, "params.where: "),
        ({"where": "\ud800"}, "params.where: "),
    ],
)
def test_what_does_not_fit(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        carry_out(("cat",), [{"send": "x"}], params=PARAMS, given=given)
    assert said in raised.value.what


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"steps": [{"sendline": "${param:wo}"}]}, "steps[0].sendline: ${param:wo}: [params] has"),
        (
            {"steps": [{"cases": [{"exact": "a", "message": "${param:x}"}]}]},
            "steps[0].cases[0].message: ${param:x}: [params] has no such name",
        ),
        ({"command": ["a", "b${param:wh}"]}, "command[1]: ${param:wh}: [params] has no such name"),
        ({"params": {"a b": {}}}, "params.'a b': a name is letters, digits and _"),
        ({"params": {"a": {"default": "x\ny"}}}, "params.a.default: 'x\\ny' holds a control"),
        ({"params": {"a": {"default": 1}}}, "params.a.default: 1 is not a text"),
        ({"params": {"a": "b"}}, "params.a: "),
    ],
)
def test_what_a_file_may_not_say(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_script({"steps": [{"send": "x"}], **document})
    assert problem in raised.value.what


def test_in_a_command_no_other_dollar_is_special() -> None:
    words = ["sh", "-c", "echo $1 ${HOME} $$ ${secret:x}", "sh", "-${param:who}-${param:who}"]
    script = build_script({"steps": [{"send": "x"}], "params": PARAMS, "command": words})
    assert command_of(script, {"who": "$1 ${param:where}"}) == [
        *words[:4],
        "-$1 ${param:where}-$1 ${param:where}",
    ]


# ------------------------------------------------------------------------ the command line
FILE = """
command = ["ssh", "${param:who}@${param:where}"]
[params]
who = { default = "ada" }
where = {}
[[steps]]
expect = "x"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "login.toml"
    path.write_text(FILE)
    return str(path)


def test_a_dry_run_tells_the_command(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    given = ["--param", "where=old", "--param", "where=a=b"]
    assert ocisbx(["expect", "--dry-run", file, *given]) == 0
    assert capfd.readouterr().out.startswith("ssh ada@a=b: 1 steps\n")
    assert ocisbx(["expect", "--dry-run", "--json", file, *given, "--", "x", "${param:no}"]) == 0
    document = json.loads(capfd.readouterr().out)
    # What comes on the command line is as it is.
    assert document["command"] == ["x", "${param:no}"]
    assert document["params"] == {"where": {}, "who": {"default": "ada"}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "ocisbx: the parameter where was not given"),
        (["--param", "where"], "ocisbx: 'where' is no parameter: expected NAME=VALUE"),
        (["--param", "were=x"], "no parameter 'were' (did you mean 'where'?): its [params] are wh"),
        (["--param", "\x1b=x"], "no parameter '\\x1b'"),
    ],
)
def test_a_wrong_one_is_125(
    file: str, words: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ocisbx(["expect", file, *words]) == 125
    assert said in capfd.readouterr().err


def test_a_script_without_any_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plain.toml"
    path.write_text('command = ["true"]\n[[steps]]\nexpect = "x"\n')
    assert ocisbx(["expect", str(path), "--param", "a=b"]) == 125
    assert "no parameter 'a': it has no [params]" in capfd.readouterr().err
