"""The programs that run beside the payload: the init (process 1) and the cell; see ocisbx-init(7).

They are C without a libc, built by tools/build_init.py into `bin/`, one file per architecture.
"""

from __future__ import annotations

import os
from typing import Final

from ocisbx.errors import RuntimeMissing

_BIN_DIR: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def init_path() -> str:
    """Absolute path of the container's process 1 for this machine; raises RuntimeMissing."""
    return _program("init")


def cell_path() -> str:
    """Absolute path of the namespace launcher for this machine; raises RuntimeMissing."""
    return _program("cell")


def _program(name: str) -> str:
    path = f"{_BIN_DIR}/ocisbx-{name}-{os.uname().machine}"
    if not os.access(path, os.X_OK):
        raise RuntimeMissing(
            f"the {name} program is not there: {path}",
            why=f"not built for {os.uname().machine}",
            remedy="in a clone run `python tools/build_init.py`; else reinstall ocisbx",
        )
    return path
