"""Every recipe is on the page, is a script as the schema says, and is run by a test."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from ocisbx.expect.file import parse_script
from ocisbx.schemas import schema
from tests.recipes.cookbook import PAGE, RECIPES, printed

FILES = sorted(RECIPES.glob("*.toml"), key=lambda path: path.stem)


def test_all_are_printed() -> None:
    assert sorted(printed()) == [path.stem for path in FILES]
    text = PAGE.read_text(encoding="utf-8")
    for path in FILES:
        assert re.search(rf"`{path.stem}`", text), path.stem


def test_all_are_run() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert {path.stem for path in FILES} <= set(re.findall(r'\.cook\(\s*"([a-z-]+)"', tests))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_recipe_is_a_script(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# "), "its first line says what it does"
    assert parse_script(text, path.name).command
    jsonschema.validate(tomllib.loads(text), schema("expect"))
