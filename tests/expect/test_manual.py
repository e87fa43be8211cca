"""The examples of the manual are real: scripts parse, Python runs, messages are those printed."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import jsonschema
import pytest

from ocisbx.cli import carry_out
from ocisbx.expect.file import parse_script
from ocisbx.expect.report import EXIT_CODES
from ocisbx.expect.script import KINDS, Case, Script
from ocisbx.schemas import schema
from tests.meta.tree import ROOT, text

if TYPE_CHECKING:
    from pathlib import Path

VERB, FILE, PYTHON = (text(ROOT / f"ocisbx/man/ocisbx-expect.{part}.md") for part in (1, 5, 7))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", blocks(FILE, "toml"))
def test_scripts_of_the_manual(example: str) -> None:
    assert parse_script(example, "manual").steps
    jsonschema.validate(tomllib.loads(example), schema("expect"))


def test_every_key_is_in_the_manual() -> None:
    for name in (*KINDS, *Script.model_fields, *Case.model_fields):
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", FILE), name


def test_every_outcome_has_its_code_in_the_manual() -> None:
    for outcome, code in EXIT_CODES.items():
        assert re.search(rf"^\| {code} \| .*`{outcome}`", VERB, re.MULTILINE), outcome


def test_python_of_the_manual_runs() -> None:
    exec(compile("".join(blocks(PYTHON, "python")), "manual", "exec"), {})  # noqa: S102 -- ours


def test_the_message_of_the_manual_is_true(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("[[steps]]\nexpect = 'Password: ('\n")
    assert carry_out(["expect", "--dry-run", "bad.toml"]) == 125
    command, _, message = blocks(VERB, "")[0].partition("\n")
    assert command == "$ ocisbx expect --dry-run bad.toml"
    assert capfd.readouterr().err == message
