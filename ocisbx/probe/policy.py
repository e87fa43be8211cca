"""Where the rules of [filesystem] lead on this host: what exists, through which links, how far."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING, Literal

from ocisbx.container import rules
from ocisbx.container.paths import is_below
from ocisbx.host import Link, Matches, PathKind, Place
from ocisbx.placeholder import is_blank
from ocisbx.probe.paths import KINDS, LINK_LIMIT
from ocisbx.probe.runtimes import source_tree_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# How much of a tree is looked at for a glob, and for other names of what is denied.
WALK_ENTRIES = 50_000
WALK_DEPTH = 32
# Mounts cost 20 to 60 us each (performance.md 3.4).
PLACES_LIMIT = 512

# A Python of the system's is not the caller's to change.
SYSTEM_PREFIXES = ("/usr", "/usr/local")


def find_matches(wanted: Iterable[rules.Rule]) -> dict[str, Matches]:
    """Where each pattern leads, by pattern; never raises, what cannot be seen is missing."""
    deep = {rule.pattern: rule.verb != "allow_write" for rule in wanted}
    return {pattern: _find(pattern, deep=needed) for pattern, needed in deep.items()}


def find_own_code(places: Iterable[str]) -> dict[str, Matches]:
    """The same for our own code. Of a virtual environment's files many have other names, in the
    cache of the program that installed them."""
    return {path: Matches(places=(look(path),)) for path in places}


def _find(pattern: str, *, deep: bool) -> Matches:
    """`deep`: whether other names matter."""
    base, parts = rules.split_pattern(pattern)
    if not parts:
        return Matches(places=(look(base, deep=deep),))
    walk = _Walk(parts)
    top = look(base)
    if top.kind is PathKind.DIRECTORY:
        walk.enter(top.real, ())
    places = tuple(
        place.model_copy(update={"links": (*top.links, *place.links)})
        for path in walk.found[:PLACES_LIMIT]
        for place in (look(path, deep=deep),)
    )
    if len(walk.found) > PLACES_LIMIT:
        walk.cut = f"it matches more than {PLACES_LIMIT} paths"
    # A base that does not exist (yet) is a directory whose coming makes a difference.
    return Matches(places=places, cut=walk.cut, walked=tuple(walk.walked) or (base,))


class _Walk:
    """A bounded walk that matches a glob and follows no symlink."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        self._parts = parts
        self._left = WALK_ENTRIES
        self.found: list[str] = []
        self.walked: list[str] = []
        self.cut = ""

    def enter(self, directory: str, names: tuple[str, ...]) -> None:
        if len(names) > WALK_DEPTH:
            self.cut = f"{directory} lies deeper than {WALK_DEPTH} directories"
            return
        self.walked.append(directory)
        for entry in _entries(directory):
            self._left -= 1
            if self._left < 0:
                self.cut = f"there are more than {WALK_ENTRIES} files and directories to look at"
                return
            self._take(entry, (*names, entry.name))

    def _take(self, entry: os.DirEntry[str], names: tuple[str, ...]) -> None:
        if rules.matches(names, self._parts):
            if _is_text(entry.path):
                self.found.append(entry.path)
            else:
                self.cut = f"{entry.path!a} has a name that is not UTF-8"
        elif entry.is_dir(follow_symlinks=False) and rules.may_lead(names, self._parts):
            self.enter(entry.path, names)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def look(path: str, *, deep: bool = False) -> Place:
    """Walk along an absolute path; `deep`: look for other names of the files that it leads to."""
    links: list[Link] = []
    rest = [part for part in path.split("/") if part]
    current = "/"
    missing = ""
    while rest:
        name = rest.pop(0)
        if name in (".", ".."):
            current = current if name == "." else os.path.dirname(current)
            continue
        step = os.path.join(current, name)
        target = None if missing else _link_target(step)
        if target is None:
            current = step
            missing = missing or ("" if os.path.lexists(step) else step)
            continue
        links.append(Link(path=step, target=target, rest="/".join(rest)))
        if len(links) > LINK_LIMIT:
            # They lead to each other, and to nothing that could be held.
            real = os.path.join(step, *rest)
            return Place(real=real, kind=PathKind.MISSING, links=tuple(links))
        rest = [part for part in target.split("/") if part] + rest
        current = "/" if target.startswith("/") else current
    return _place(current, tuple(links), missing, deep=deep)


def _link_target(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _place(real: str, links: tuple[Link, ...], missing: str, *, deep: bool) -> Place:
    kind = PathKind.MISSING
    if not missing:
        try:
            mode = os.lstat(real).st_mode
            kind = next((kind for test, kind in KINDS if test(mode)), PathKind.OTHER)
        except OSError:
            pass
        missing = real if is_blank(real) else ""
    elif _is_no_directory(os.path.dirname(missing)):
        instead = os.path.dirname(missing)
        elsewhere = _other_name(instead, PathKind.FILE) if deep else ""
        return Place(real=real, kind=kind, links=links, instead=instead, elsewhere=elsewhere)
    return Place(
        real=real,
        kind=kind,
        links=links,
        missing=missing,
        parent=_parent(os.path.dirname(missing)) if missing else "ours",
        elsewhere=_other_name(real, kind) if deep else "",
    )


def _is_no_directory(path: str) -> bool:
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _parent(directory: str) -> Literal["ours", "closed", "others"]:
    if os.access(directory, os.W_OK):
        return "ours"
    try:
        return "closed" if os.stat(directory).st_uid == os.geteuid() else "others"
    except OSError:
        return "others"


def _other_name(real: str, kind: PathKind) -> str:
    """A file at or below `real` that has a name elsewhere too (link(2)); empty: there is none."""
    if kind is PathKind.FILE:
        return real if _has_other_names(real) else ""
    names: dict[tuple[int, int], int] = {}
    shown: dict[tuple[int, int], tuple[str, int]] = {}
    for count, entry in enumerate(_below(real)):
        if count > WALK_ENTRIES:
            return f"{real} (one of its more than {WALK_ENTRIES} files)"
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            key = (info.st_dev, info.st_ino)
            names[key] = names.get(key, 0) + 1
            shown[key] = (entry.path, info.st_nlink)
    return next((path for key, (path, links) in shown.items() if names[key] < links), "")


def _has_other_names(path: str) -> bool:
    try:
        return os.lstat(path).st_nlink > 1
    except OSError:
        return False


def _below(directory: str) -> Iterator[os.DirEntry[str]]:
    for entry in _entries(directory):
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)


def own_code(runtimes: Iterable[str], writable: Iterable[str]) -> tuple[str, ...]:
    """What the caller's next call runs of ours, as far as it lies in what the payload may write:
    the package, Python's environment, the runtimes; of a source tree also what sets these up, and
    the places where they are looked for."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tree = os.path.dirname(package)
    places = [package, *runtimes]
    places += [one for one in (sys.prefix, sys.base_prefix) if one not in SYSTEM_PREFIXES]
    if os.path.exists(f"{tree}/tools/run"):
        places += [f"{tree}/{name}" for name in ("tools", "pyproject.toml", ".venv")]
        places.append(os.path.dirname(source_tree_directory()))
    found = dict.fromkeys(map(os.path.realpath, places))
    tops = tuple(writable)
    return tuple(
        path
        for path in sorted(found)
        if any(is_below(path, top) or is_below(top, path) for top in tops)
        # Of what lies in another of them nothing has to be said.
        and not any(path != other and is_below(path, other) for other in found)
    )
