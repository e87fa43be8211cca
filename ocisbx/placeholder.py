"""What keeps a name free while a container runs that may not make it: an empty directory, or a
file of a text that means nothing, which the driver makes on the host and takes away again."""

from __future__ import annotations

import os
import stat
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection


class Placeholder(NamedTuple):
    """`path` is absolute, its parent exists; `content`: "" for a directory, else a file's text."""

    path: str
    content: str = ""


# The texts of placeholders that are files (presets.PROTECTED): all have one byte.
FILLERS = (b".",)
# What may be read of a directory's list to spare looking for names one by one, each of which takes
# as long as a dozen entries; and for how few it is not worth it.
LISTED = 64
FEW = 3


def absent(directory: str | int, names: Collection[str]) -> frozenset[str]:
    """Those of the names that are not in the directory (its path, or a descriptor), by its list:
    for the others one has to look. Raises OSError.

    A file system may take names for the same that differ in case, or, beyond ASCII, in more.
    """
    if len(names) <= FEW:
        return frozenset()
    with os.scandir(directory) as entries:
        there = [entry.name for entry in islice(entries, LISTED + 1)]
    if len(there) > LISTED or not "".join(there).isascii():
        return frozenset()
    taken = {name.lower() for name in there}
    return frozenset([name for name in names if name.isascii() and name.lower() not in taken])


def are_blank(directory: str, names: Collection[str]) -> bool:
    """Whether each of these names in the directory `is_blank`."""
    try:
        missing = absent(directory, names)
    except OSError:
        missing = frozenset()
    return all(is_blank(f"{directory}/{name}") for name in names if name not in missing)


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
