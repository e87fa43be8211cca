"""What keeps a name free while a container runs that may not make it: an empty directory, or a
file of a text that means nothing, which the driver makes on the host and takes away again."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple


class Placeholder(NamedTuple):
    """`path` is absolute, its parent exists; `content`: "" for a directory, else a file's text."""

    path: str
    content: str = ""


# The texts of placeholders that are files (presets.PROTECTED): all have one byte.
FILLERS = (b".",)


def is_blank(path: str) -> bool:
    """Whether nothing is there, or nothing but what could be a placeholder; follows no symlink."""
    try:
        return holds_nothing(path, os.lstat(path))
    except FileNotFoundError:
        return True
    except OSError:
        return False


def holds_nothing(path: str, info: os.stat_result) -> bool:
    """Whether it could be a placeholder. `info`: its own, not that of what it may lead to. Raises
    OSError."""
    if stat.S_ISDIR(info.st_mode):
        return info.st_nlink <= 2 and not os.listdir(path)
    if not stat.S_ISREG(info.st_mode) or info.st_size != 1:
        return False
    with open(path, "rb") as file:
        return file.read(2) in FILLERS
