"""Programs on the caller's own $PATH."""

from __future__ import annotations

import shutil


def find_program(name: str, path: str | None = None) -> str | None:
    """The absolute path at which a shell of the caller's would find `name`; `path`: directories to
    look in instead of $PATH."""
    return shutil.which(name, path=path)
