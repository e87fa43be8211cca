"""Calls of tools/vm, from the outside."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Vm:
    """The program, with a directory of its own for what it brings out."""

    out: Path
    environment: dict[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(ROOT / "tools" / "vm"), *arguments],
            cwd=self.out.parent,
            env={**os.environ, "OUT": str(self.out), **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(given)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def sh(self, script: str, *options: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """A shell's script in the guest; without `options` in the cheapest context."""
        return self("run", *(options or ("-s", "plain")), "--", "sh", "-c", script, given=given)


@pytest.fixture
def vm(tmp_path: Path) -> Vm:
    return Vm(tmp_path / "out", {})
