"""`python -m ocisbx` in a box, as a user starts it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.box import Box

ROOT = Path(__file__).resolve().parents[1]
OCISBX = (sys.executable, "-P", "-m", "ocisbx")
TIMEOUT_S = 60.0
# Tests may themselves run in the background of a shell, where SIGINT is ignored.
DEFAULT_SIGNALS = ("env", "--default-signal=INT,TERM,HUP")


def environment(box: Box, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A cache of its own for each box: the first run of each test compiles its plan."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": os.environ["HOME"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "OCISBX_RUNTIME": box.runtime.path,
        **box.environment,
        "XDG_CACHE_HOME": f"{box.base}/cache",
        **(extra or {}),
    }


def ocisbx(
    box: Box,
    *arguments: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end, in the box's workspace."""
    defaults: dict[str, Any] = {"cwd": box.workspace, "timeout": TIMEOUT_S}
    streams: dict[str, Any] = {"capture_output": True, "text": True}
    return subprocess.run(
        [*OCISBX, *arguments],
        check=False,
        env=environment(box, env),
        **(defaults | streams | options),
    )


def start(box: Box, *arguments: str | os.PathLike[str], **options: Any) -> subprocess.Popen[str]:
    """Start one command line; its streams are pipes."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [*DEFAULT_SIGNALS, *OCISBX, *arguments],
        env=environment(box),
        cwd=box.workspace,
        **(pipes | options),
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """stderr without the notes of a first run."""
    lines = done.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("ocisbx: note: "))
