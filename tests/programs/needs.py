"""The programs that these tests run, and the Debian package that each comes from: needs.txt."""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("needs.txt")


class Need(NamedTuple):
    """A program to find on PATH and in `directories`, or (with a slash) a path to exist."""

    program: str
    package: str
    directories: tuple[str, ...]

    def find(self) -> str | None:
        """An absolute path, or None."""
        if "/" in self.program:
            return next(iter(sorted(glob.glob(self.program))), None)
        places = [path for pattern in self.directories for path in sorted(glob.glob(pattern))]
        return shutil.which(self.program, path=os.pathsep.join([os.environ["PATH"], *places]))


def needs() -> list[Need]:
    lines = (line.split() for line in TABLE.read_text().splitlines() if line[:1] not in ("", "#"))
    return [Need(program, package, tuple(places)) for program, package, *places in lines]


def program(name: str) -> str:
    """The absolute path of a program of the table, which the fixture `_installed` saw."""
    found = next(need.find() for need in needs() if need.program == name)
    assert found is not None
    return found


def missing() -> str:
    """What an administrator must run to have all of them; empty when nothing is missing."""
    packages = [need.package for need in needs() if need.find() is None]
    if not packages:
        return ""
    return f"apt-get install -y --no-install-recommends {' '.join(dict.fromkeys(packages))}"
