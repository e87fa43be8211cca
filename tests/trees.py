"""Trees that containers attack: made, read back, and the attacks themselves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.box import Box

ATTACKS = Path(__file__).with_name("path_attacks.py").read_text()
KEPT = "kept as it was\n"


def tree(root: Path) -> dict[str, str | None]:
    """Every name below `root`, with the text of files."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_text("latin-1")
        for path in sorted(root.rglob("*"))
    }


def fill(root: Path) -> None:
    for name in ("one/two/file", "one/two/directory/inner", "one/two/directory/deep/er"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(KEPT)


def attacked(box: Box, paths: list[str], **fields: Any) -> str:
    """What the attacks print; the payload's own leftovers are taken away."""
    result = box.python(ATTACKS, *paths, **fields)
    assert (result.exit_code, result.stderr) == (0, b""), result.stderr
    return result.stdout.decode()


def sweep(root: Path) -> None:
    for path in sorted(root.rglob("*spare*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for path in root.rglob("*.link"):
        path.unlink()


GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "PATH": os.environ["PATH"]}
ME = "git config --global user.name me; git config --global user.email me@example.org; set -e; "


def repository(path: Path) -> None:
    for words in (["init", "-q"], ["config", "user.name", "me"], ["config", "user.email", "m@e"],
                  ["commit", "-q", "--allow-empty", "-m", "first"]):  # fmt: skip
        subprocess.run(["git", *words], cwd=path, env=GIT, check=True, capture_output=True)
