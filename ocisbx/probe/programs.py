"""Programs on the caller's own $PATH."""

from __future__ import annotations

import shutil


def find_program(name: str) -> str | None:
    """The absolute path at which a shell of the caller's would find `name`."""
    return shutil.which(name)
