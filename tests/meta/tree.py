"""The files of the project. Not asked of git: these tests also run in a copy without .git."""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = {"ocisbx", "bundles", "rootfs", "schemas", "tests", "benchmarks", "tools"}
FILES = {"pyproject.toml", "README.md"}

# What is built lies in folders of these names, and in hidden ones.
_BUILT = {"__pycache__", "bin", "root"}


def files(*suffixes: str) -> Iterator[Path]:
    """Yields the project's own files, those with one of *suffixes* where any is given."""
    for folder, folders, names in os.walk(ROOT):
        if folder == str(ROOT):
            folders[:] = sorted(FOLDERS.intersection(folders) | {".ci"}.intersection(folders))
            names = sorted(FILES.intersection(names))
        else:
            folders[:] = sorted(name for name in folders if name[0] != "." and name not in _BUILT)
        for path in (Path(folder, name) for name in sorted(names)):
            if path.is_file() and (not suffixes or path.suffix in suffixes):
                yield path


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))
