"""Directories of one's own and programs that wrap real runtimes, for tests of how they are chosen.

A script that wraps a runtime and fails is what a broken installation is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ocisbx
from ocisbx.quirks import parse_version
from tests.box import FOUND, SYSTRAP_SINCE

ROOT = Path(__file__).resolve().parents[2]
RUNC = next(found.path for found in FOUND if found.name == "runc")
CRUN = next(found.path for found in FOUND if found.name == "crun")


def runsc(*, old: bool) -> str:
    """gVisor with systrap, or from before it."""
    versions = {f.path: parse_version(f.version) for f in FOUND if f.name == "runsc"}
    # One that tells no version was built from a recent module.
    return next(p for p, v in versions.items() if (bool(v) and v < SYSTRAP_SINCE) is old)


NEW_RUNSC, OLD_RUNSC = runsc(old=False), runsc(old=True)

# Everything but `--version` fails while the flag is up; each verb that got further is written down.
WRAPPER = """\
#!/bin/sh
case "$*" in *--version) {told} ;; esac
echo "$*" >> "{log}"
{check}
exec "{real}" "$@"
"""
FLAG = '[ ! -e "{flag}" ] || {{ echo "the flag is up" >&2; exit 1; }}'

# A runtime that says yes to its config.json and does something else.
FORGER = """\
#!/usr/bin/python3 -I
import json, os, sys
real, arguments = {real!r}, sys.argv[1:]
if "--bundle" in arguments:
    path = arguments[arguments.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        config = json.load(file)
    {forge}
    with open(path, "w") as file:
        json.dump(config, file)
os.execv(real, [real, *arguments])
"""


@dataclass
class Stage:
    """Directories of one's own, and programs that wrap runtimes."""

    base: Path

    @property
    def flag(self) -> Path:
        return self.base / "flag"

    @property
    def workspace(self) -> Path:
        return self.base / "ws"

    def program(self, name: str, text: str) -> str:
        path = self.base / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def wrap(
        self, real: str, check: str = FLAG, name: str = "wrapped", version: str | None = None
    ) -> str:
        """A program that is `real`, under a version of its own where one is given."""
        text = WRAPPER.format(
            real=real,
            told=f'exec "{real}" "$@"' if version is None else f"{{ echo {version}; exit; }}",
            check=check.format(flag=self.flag),
            log=self.base / f"{Path(name).name}.log",
        )
        return self.program(name, text)

    def forge(self, forge: str) -> str:
        return self.program("forger", FORGER.format(real=RUNC, forge=forge))

    def starts(self, name: str = "wrapped") -> int:
        """How many containers the wrapper was asked for since the last question."""
        log = self.base / f"{name}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return sum(" run " in line for line in lines)

    def sandbox(self, *names: str, **fields: Any) -> ocisbx.Sandbox:
        runtime = {"names": names, "platform": fields.pop("platform", None)}
        return ocisbx.Sandbox(workspace=str(self.workspace), runtime=runtime, **fields)

    def ran(self) -> int:
        """How often MARK was executed."""
        log = self.workspace / "ran"
        return len(log.read_text().splitlines()) if log.exists() else 0


MARK = ["sh", "-c", "echo once >> ran; cat"]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(tmp_path)
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        place = tmp_path / name
        place.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(place))
    made.workspace.mkdir()
    return made
