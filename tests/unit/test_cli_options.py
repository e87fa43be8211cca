"""Parsing command lines: what is typed becomes options and words, or one clear refusal."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.cli import VERBS, carry_out
from ocisbx.cli.bundle import VERBS as BUNDLE_VERBS
from ocisbx.cli.options import HELP, Option, Parsed, Syntax, parse, render_help
from ocisbx.cli.output import printable
from ocisbx.cli.run import config_path, extra_environment
from ocisbx.cli.run_options import CALL, CONTAINER, FIELDS, RUN, TEXT
from ocisbx.errors import ConfigError

SCREEN_LINES = 40
SCREEN_COLUMNS = 80


@pytest.mark.parametrize(
    ("line", "options", "words"),
    [
        ("true", {}, ["true"]),
        ("-- true -x", {}, ["true", "-x"]),
        ("ls -l --json", {}, ["ls", "-l", "--json"]),
        ("--json ls", {"json": True}, ["ls"]),
        ("-v /a -v/b:ro --volume=/c ls", {"volume": ["/a", "/b:ro", "/c"]}, ["ls"]),
        ("-it sh", {"interactive": True, "tty": True}, ["sh"]),
        ("-ieK=V sh", {"interactive": True, "env": ["K=V"]}, ["sh"]),
        ("--timeout 1 --timeout=2 x", {"timeout": "2"}, ["x"]),
        ("-e A=b=c --env D x", {"env": ["A=b=c", "D"]}, ["x"]),
        ("--keep-bundle -odd x", {"keep-bundle": "-odd"}, ["x"]),
        ("--name= x", {"name": ""}, ["x"]),
        ("", {}, []),
        ("--", {}, []),
        ("-- --", {}, ["--"]),
    ],
)
def test_what_is_typed(line: str, options: dict[str, object], words: list[str]) -> None:
    assert parse(RUN, line.split()) == Parsed(options, words)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("--nope x", "unknown option '--nope'"),
        ("--timout 3 x", "did you mean '--timeout'?"),
        ("-Z x", "unknown option '-Z'"),
        ("--timeout", "option --timeout needs a value: SECONDS"),
        ("-e", "option -e needs a value"),
        ("--json=1 x", "option --json takes no value"),
        ("-iZ x", "unknown option '-Z'"),
    ],
)
def test_what_is_refused(line: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(RUN, line.split())
    assert what in caught.value.what
    assert "ocisbx run --help" in caught.value.remedy


def test_options_of_other_verbs_stand_anywhere() -> None:
    syntax = Syntax("ocisbx x", "", (Option(("--json",), "flag", "", ""),))
    assert parse(syntax, ["a", "--json", "b"]) == Parsed({"json": True}, ["a", "b"])
    assert parse(syntax, ["a", "--", "--json"]) == Parsed({}, ["a", "--json"])


@given(st.lists(st.text(max_size=12), max_size=8))
def test_no_command_line_breaks_the_parser(arguments: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        parse(RUN, arguments)


@given(st.lists(st.text(), max_size=5))
def test_what_follows_the_dashes_is_the_command(words: list[str]) -> None:
    assert parse(RUN, ["--json", "--", *words]) == Parsed({"json": True}, words)


def test_the_help_of_run_names_every_option() -> None:
    for option in (*CONTAINER, *CALL):
        long = option.names[-1]
        assert long in TEXT or f" {option.names[0]}," in TEXT, long


def test_every_option_is_used_once() -> None:
    keys = [option.key for option in (*CONTAINER, *CALL, HELP)]
    assert len(keys) == len(set(keys))
    assert set(FIELDS) < {option.key for option in CONTAINER}


def test_a_help_text_has_usage_options_and_examples() -> None:
    option = Option(("-o", "--output"), "one", "DIR", "where to")
    text = render_help(Syntax("ocisbx x -o DIR", "Do it.", (option,), ("ocisbx x -o y",)))
    assert text.splitlines() == [
        "usage: ocisbx x -o DIR",
        "",
        "Do it.",
        "",
        "  -o, --output DIR  where to",
        "",
        "examples:",
        "  ocisbx x -o y",
    ]


def test_variables_come_from_files_options_and_the_caller(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path_factory.mktemp("env") / "file"
    path.write_text("A=file\nB=file\n# no\nMINE\n")
    monkeypatch.setenv("MINE", "m")
    monkeypatch.delenv("NOBODYS", raising=False)
    options = {"env-file": [str(path)], "env": ["A=option", "NOBODYS", "E="]}
    assert extra_environment(options) == {"A": "option", "B": "file", "MINE": "m", "E": ""}


@pytest.mark.parametrize("options", [{"env": ["=x"]}, {"env-file": ["/nonexistent/file"]}])
def test_variables_that_are_none(options: dict[str, list[str]]) -> None:
    with pytest.raises(ConfigError):
        extra_environment(options)


def test_a_variable_that_is_not_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAW", "\udcff")
    with pytest.raises(ConfigError, match="not a value for RAW"):
        extra_environment({"env": ["RAW"]})


def test_the_configuration_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCISBX_CONFIG", raising=False)
    assert config_path({}) is None
    monkeypatch.setenv("OCISBX_CONFIG", "/e.toml")
    assert config_path({}) == "/e.toml"
    assert config_path({"config": "/o.toml"}) == "/o.toml"
    assert config_path({"config": ""}) == ""


def test_printable_text_is_one_line_without_escapes() -> None:
    assert printable("a b\x1b[1m\n") == "a b\\x1b[1m\\n"


@pytest.mark.parametrize("verb", ["", *VERBS, *(f"bundle {verb}" for verb in BUNDLE_VERBS)])
def test_every_verb_has_help_that_fits_a_screen(
    verb: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert carry_out([*verb.split(), "--help"]) == 0
    page = capfd.readouterr().out
    assert page.startswith(f"usage: ocisbx {verb}")
    assert page.count("usage: ") == 1
    assert "\nexample" in page
    lines = page.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= SCREEN_COLUMNS
    assert not [line for line in lines if line != line.rstrip()]


def test_no_verb_is_help_and_a_flag_is_version() -> None:
    assert carry_out([]) == 0
    assert carry_out(["--version"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "ocisbx: 'rnu' is not a verb (did you mean 'run'?)\n  remedy: "),
        (["expect"], "ocisbx: one FILE.toml, or -, expected\n  remedy: "),
        (["\x1b[1m"], "ocisbx: '\\x1b[1m' is not a verb\n"),
        (["run"], "ocisbx: command is empty\n  remedy: "),
        (["run", "--host", "x", "true"], "ocisbx: --host plans only\n  remedy: "),
        (["run", "--name", "../x", "true"], "ocisbx: '../x' is not a name: "),
        (["run", "--name", "a\nb", "true"], "ocisbx: 'a\\nb' is not a name: "),
        (["run", "--name", "n" * 300, "true"], "ocisbx: 'nnn"),
        (["bundle", "chek"], "ocisbx: bundle 'chek' is not a verb (did you mean 'check'?)"),
        (["bundle", "make", "--", "true"], "ocisbx: -o DIR is missing"),
        (["bundle", "diff", "a"], "ocisbx: 2 directories expected, 1 given"),
        (["inspect", "no-such-thing"], "ocisbx: 'no-such-thing' is neither a container"),
        (["schema", "nope"], "ocisbx: 'nope' is not a schema"),
        *(
            ([verb, "x"], f"ocisbx: 'x' is one word too many\n  remedy: usage: ocisbx {verb} ")
            for verb in ("ps", "gc", "doctor", "features", "version")
        ),
        (["run", "--env-file", "/no/file", "x"], "ocisbx: --env-file '/no/file' cannot be read: "),
        (["run", "--config", "", "true"], "ocisbx: '.' cannot be read: is a directory\n  remedy: "),
        (["run", "-e", "=v", "true"], "ocisbx: '=v' is not an environment variable: "),
    ],
)
def test_a_refusal_is_one_message(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert carry_out(arguments) == 125
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert "Traceback" not in captured.err
