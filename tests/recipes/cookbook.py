"""The recipes of the manual, run as its page prints them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tomllib
from typing import TYPE_CHECKING, Any

from ocisbx.cli import carry_out
from tests.command_line import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from tests.box import Box

PAGE = ROOT / "ocisbx/man/ocisbx-expect-recipes.7.md"
RECIPES = ROOT / "ocisbx/man/recipes"
PRINTED = re.compile(r"^\$ ocisbx (expect ([a-z-]+)\.toml(?: .*)?)$", re.MULTILINE)


def printed() -> dict[str, list[str]]:
    """The words after `ocisbx` of each command line on the page that runs a recipe."""
    lines = PRINTED.finditer(PAGE.read_text(encoding="utf-8"))
    # The first for each: a later one is a variant.
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(line[2], shlex.split(os.path.expandvars(line[1])))
    return found


class Cookbook:
    """Recipes in the box's workspace, which is the current directory."""

    def __init__(
        self, box: Box, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self.box = box
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        monkeypatch.chdir(box.workspace)
        monkeypatch.setenv("PWD", str(box.workspace))
        monkeypatch.setenv("OCISBX_RUNTIME", box.runtime.path)

    @property
    def workspace(self) -> Path:
        return self.box.workspace

    def cook(
        self,
        name: str,
        *words: str,
        secrets: Mapping[str, str] | None = None,
        needs_name: bool = False,
    ) -> dict[str, Any]:
        """The report of a recipe, run by the page's command line, with `words` added to it.

        `needs_name`: what it runs asks for the terminal's name, which gVisor does not tell: it is
        run as the page says for that runtime.
        """
        shutil.copy(RECIPES / f"{name}.toml", self.workspace)
        for variable, value in (secrets or {}).items():
            self._monkeypatch.setenv(variable, value)
        line = [*printed()[name], *words]
        if needs_name and self.box.runtime.name == "runsc":
            line += ["--", "script", "-qec", shlex.join(self.command(name)), "/dev/null"]
        self._capfd.readouterr()
        code = carry_out([line[0], "--json", *line[1:]])
        said = self._capfd.readouterr()
        assert said.out, said.err
        report: dict[str, Any] = json.loads(said.out)
        assert report["exit_code"] == code
        for value in (secrets or {}).values():
            assert value not in said.out
        return report

    def command(self, name: str) -> list[str]:
        """What the recipe runs."""
        script = tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
        words: list[str] = script["command"]
        return words


def last(report: dict[str, Any]) -> str:
    """How it ended, and what came before that."""
    step = report["steps"][-1]
    return f"{report['outcome']}: step {step['number']}: {step['before'][-500:]!r}"
