"""The rules of [filesystem]: whose they are, and what their patterns mean. Pure."""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

from ocisbx.container.paths import clean, is_below
from ocisbx.errors import ConfigError
from ocisbx.host import Matches
from ocisbx.mounts import directory_wanted, is_per_call
from ocisbx.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ocisbx.config import SandboxConfig
    from ocisbx.host import Host, PathFact

Verb = Literal["allow_write", "deny_read", "deny_write"]

# Any number of directories, none too.
ANY_DEPTH = "**"

NOTHING = Matches()


class Rule(NamedTuple):
    """One pattern, made absolute; `missing` as in presets.Protected."""

    verb: Verb
    pattern: str
    written: str
    origin: Literal["caller", "preset", "own code"]
    missing: str | None = None


def is_glob(pattern: str) -> bool:
    return any(mark in pattern for mark in "*?[")


def split_pattern(pattern: str) -> tuple[str, tuple[str, ...]]:
    """The directory above the first component with a wildcard, and the components from there."""
    parts = pattern.split("/")
    first = next((at for at, part in enumerate(parts) if is_glob(part)), len(parts))
    return "/".join(parts[:first]) or "/", tuple(parts[first:])


def matches(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path, component by component, fits a pattern's; as a shell with `globstar` and
    `dotglob`: `*`, `?` and `[...]` stay within a name, a leading dot is like any other character.
    """
    if not wanted:
        return not names
    if wanted[0] == ANY_DEPTH:
        return matches(names, wanted[1:]) or (bool(names) and matches(names[1:], wanted))
    return bool(names) and fnmatchcase(names[0], wanted[0]) and matches(names[1:], wanted[1:])


def may_lead(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether something below the directory `names` can match."""
    for at, part in enumerate(wanted):
        if part == ANY_DEPTH or at == len(names):
            return True
        if not fnmatchcase(names[at], part):
            return False
    return False


def led_to(host: Host, rule: Rule) -> Matches:
    """Where a rule leads. A described host may be silent about what a preset protects: then
    nothing of it is there. Raises KeyError: it does not tell about a rule of the caller's."""
    if rule.origin == "caller":
        return host.matches[rule.pattern]
    return host.matches.get(rule.pattern, NOTHING)


def allowed_paths(rules: Sequence[Rule], matches: Mapping[str, Matches]) -> tuple[str, ...]:
    """What `allow_write` leads to."""
    return tuple(
        place.real
        for rule in rules
        if rule.verb == "allow_write"
        for place in matches[rule.pattern].places
    )


class Given(NamedTuple):
    """What the caller hands over, by real path: the workspace, what can be written, all of it."""

    workspace: str | None
    writable: tuple[str, ...]
    sources: tuple[str, ...]


def given_paths(merged: SandboxConfig, facts: Mapping[str, PathFact], cwd: str) -> Given:
    """`facts` as in Host.paths."""
    rows = [(facts[volume.source].real, volume.read_only) for volume in merged.volumes]
    workspace = None
    if (wanted := directory_wanted(merged.workspace)) is not None:
        workspace = facts[cwd if wanted.path is None else clean(wanted.path)].real
        rows.append((workspace, bool(wanted.read_only)))
    return Given(
        workspace,
        tuple(path for path, read_only in rows if not read_only),
        tuple(path for path, _ in rows),
    )


def collect_rules(
    merged: SandboxConfig, given: Given, home: str, own_code: Sequence[str]
) -> tuple[Rule, ...]:
    """Every rule: the caller's, then the preset's and those for our own code.

    Raises:
        ConfigError: a pattern is below a workspace that there is not.
    """
    own = own_code if PRESETS[merged.preset].protected else ()
    return (
        *_callers(merged, given.workspace),
        *_presets(merged, given, home),
        *(Rule("deny_write", path, path, "own code", "") for path in own),
    )


def _callers(merged: SandboxConfig, workspace: str | None) -> Iterator[Rule]:
    policy = merged.filesystem
    verbs: tuple[tuple[Verb, Sequence[str]], ...] = (
        ("allow_write", policy.allow_write),
        ("deny_read", policy.deny_read),
        ("deny_write", policy.deny_write),
    )
    for verb, patterns in verbs:
        for written in patterns:
            if not written.startswith("/") and is_per_call(merged.workspace):
                continue
            if not written.startswith("/") and workspace is None:
                raise ConfigError(
                    f"filesystem.{verb}: {written} is below the workspace, and there is none",
                    remedy="write the absolute path, or give a workspace",
                )
            pattern = clean(posixpath.join(workspace or "/", written))
            missing = None if verb == "allow_write" or is_glob(pattern) else ""
            yield Rule(verb, pattern, written, "caller", missing)


def _presets(merged: SandboxConfig, given: Given, home: str) -> Iterator[Rule]:
    """Those of the preset that lie where something can be written."""
    for one in PRESETS[merged.preset].protected:
        base = home if one.pattern.startswith("~/") else given.workspace
        if base is None:
            continue
        path = f"{base}/{one.pattern.removeprefix('~/')}"
        if any(is_below(path, writable) for writable in given.writable):
            yield Rule("deny_write", path, one.pattern, "preset", one.missing)
