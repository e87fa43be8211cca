"""Looking along a path: what it is, what it really is, and which symlinks lead there."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from ocisbx.host import Entry, Link, PathFact, PathKind

if TYPE_CHECKING:
    from collections.abc import Iterable

# path_resolution(7): the kernel gives up after 40 symlinks.
LINK_LIMIT = 40

KINDS = (
    (stat.S_ISDIR, PathKind.DIRECTORY),
    (stat.S_ISREG, PathKind.FILE),
    (stat.S_ISSOCK, PathKind.SOCKET),
)


def look_at(path: str) -> PathFact:
    """The fact of one absolute path; never raises, what cannot be seen is missing."""
    try:
        real = os.path.realpath(path, strict=True)
        mode = os.stat(real).st_mode
    except OSError:
        return PathFact(kind=PathKind.MISSING, real=path, links=links_along(path))
    kind = next((kind for test, kind in KINDS if test(mode)), PathKind.OTHER)
    return PathFact(kind=kind, real=real, links=links_along(path))


def links_along(path: str) -> tuple[Link, ...]:
    """Each symlink that resolving `path` passes, in order, by the real path of its directory."""
    found: list[Link] = []
    rest = [part for part in path.split("/") if part not in ("", ".")]
    current = "/"
    while rest:
        name = rest.pop(0)
        if name == "..":
            current = os.path.dirname(current)
            continue
        step = os.path.join(current, name)
        try:
            target = os.readlink(step)
        except OSError:
            current = step
            continue
        found.append(Link(path=step, target=target, rest="/".join(rest)))
        if len(found) > LINK_LIMIT:
            break
        rest = [part for part in target.split("/") if part not in ("", ".")] + rest
        current = "/" if target.startswith("/") else current
    return tuple(found)


def list_directory(path: str) -> tuple[Entry, ...]:
    """The entries of a directory by name; empty when it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return tuple(sorted((_entry(entry) for entry in entries), key=lambda e: e.name))
    except OSError:
        return ()


def _entry(entry: os.DirEntry[str]) -> Entry:
    if entry.is_symlink():
        return Entry(name=entry.name, kind="symlink", target=os.readlink(entry.path))
    if entry.is_dir():
        return Entry(name=entry.name, kind="directory")
    return Entry(name=entry.name, kind="file" if entry.is_file() else "other")


def listings_towards(source: str, relative: str) -> dict[str, tuple[Entry, ...]]:
    """Listings of `source` and each directory below it on the way to `relative`.

    Nothing when `source/relative` exists: then nobody has to know what lies beside it.
    """
    if os.path.lexists(os.path.join(source, relative)):
        return {}
    found: dict[str, tuple[Entry, ...]] = {}
    current = source
    for name in relative.split("/"):
        found[current] = list_directory(current)
        current = os.path.join(current, name)
        if not os.path.isdir(current) or os.path.islink(current):
            break
    return found


def below(path: str, parents: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """(source, relative) for each (source, target) that `path` lies strictly below."""
    return [
        (source, os.path.relpath(path, target))
        for source, target in parents
        if target == "/" or path.startswith(target + "/")
    ]
