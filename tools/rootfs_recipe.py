"""Recipes and locks of root file systems: `rootfs/NAME/recipe.toml` and `rootfs/NAME/lock.toml`."""

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

VARIANTS = ("extract", "essential", "minbase")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")  # Debian Policy 5.6.1
_LOCK_HEAD = """\
# Written by `tools/build-rootfs NAME --update-lock`, one table a release and architecture.
# recipe: of recipe.toml; digest: of the finished tree (../README.md says how it is made).
"""


class BuildError(Exception):
    """What went wrong, why, what to do about it, and the exit code of `tools/build-rootfs`.

    Exit codes: 1 the lock says no, 69 this machine cannot build, 125 the build failed.
    """

    def __init__(self, what: str, *, why: str = "", remedy: str = "", exit_code: int = 125) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy
        self.exit_code = exit_code


@dataclass(frozen=True)
class Recipe:
    """What a root file system is made of; all paths are relative to the root.

    `suite` is a release's codename, or "host" for that of the machine. `variant` is mmdebstrap's:
    "extract" unpacks the packages and runs nothing of them, the others install. `remove` holds
    tar's wildcards (`*` matches `/` too), `links` maps a path to its symlink's target, `files` a
    path to its text, and `applets` names a busybox-like program whose `--list` becomes symlinks
    beside it.
    """

    name: str
    description: str
    variant: str
    packages: tuple[str, ...]
    suite: str = "host"
    remove: tuple[str, ...] = ()
    mkdirs: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    applets: str = ""

    @classmethod
    def load(cls, recipes: Path, name: str) -> Self:
        """Read `RECIPES/NAME/recipe.toml`; raise BuildError for an unknown name or a bad recipe."""
        known = sorted(path.parent.name for path in recipes.glob("*/recipe.toml"))
        if name not in known:
            what = f"no recipe {name!r}"
            raise BuildError(what, remedy=f"take one of: {', '.join(known) or 'none found'}")
        path = recipes / name / "recipe.toml"
        recipe = cls(name=name, **_checked(path, _read_toml(path)))
        recipe._check(path)
        return recipe

    def _check(self, path: Path) -> None:
        paths = [*self.remove, *self.mkdirs, *self.links, *self.files, self.applets]
        wrong = [
            *(f"packages: {one!r}" for one in self.packages if not _PACKAGE.fullmatch(one)),
            *(f"path {one!r}" for one in paths if one.startswith("/") or ".." in one.split("/")),
            *([] if self.variant in VARIANTS else [f"variant: {self.variant!r}"]),
            *([] if re.fullmatch(r"[a-z][a-z0-9-]*", self.suite) else [f"suite: {self.suite!r}"]),
        ]
        if wrong:
            what = f"{path}: bad value"
            raise BuildError(what, why="; ".join(wrong))

    def fingerprint(self) -> str:
        """Return "sha256:HEX" of what the recipe says, without its comments and description."""
        data = {one.name: getattr(self, one.name) for one in fields(self)}
        del data["description"]
        return "sha256:" + hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Locked:
    """One table of a lock: the recipe's fingerprint, the tree's digest, versions by package."""

    recipe: str
    digest: str
    packages: dict[str, str]

    def differences(self, packages: dict[str, str]) -> list[str]:
        """Return one line for each package whose version is not the one of the lock."""
        names = sorted(self.packages.keys() | packages.keys())
        pairs = ((name, self.packages.get(name), packages.get(name)) for name in names)
        return [
            f"{name}: lock {locked or 'without it'}, distribution {served or 'without it'}"
            for name, locked, served in pairs
            if locked != served
        ]


def read_lock(path: Path) -> dict[str, dict[str, Locked]]:
    """Return the tables of a lock by suite and architecture; none where there is no file."""
    if not path.exists():
        return {}
    try:
        return {
            suite: {arch: Locked(**table) for arch, table in tables.items()}
            for suite, tables in _read_toml(path).items()
        }
    except (TypeError, AttributeError) as error:
        what = f"{path}: not a lock"
        remedy = "restore it with git, or write it anew with --update-lock after removing it"
        raise BuildError(what, why=str(error), remedy=remedy) from error


def write_lock(path: Path, lock: dict[str, dict[str, Locked]]) -> None:
    """Write a lock, sorted, so that a change of one package is a change of one line."""
    lines = [_LOCK_HEAD]
    for suite, tables in sorted(lock.items()):
        for arch, locked in sorted(tables.items()):
            lines += [f"[{suite}.{arch}]", f'recipe = "{locked.recipe}"']
            lines += [f'digest = "{locked.digest}"', "", f"[{suite}.{arch}.packages]"]
            lines += [
                f'"{name}" = "{version}"' for name, version in sorted(locked.packages.items())
            ]
            lines += [""]
    fresh = path.with_name(path.name + ".new")
    fresh.write_text("\n".join(lines))
    fresh.replace(path)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        what = f"cannot read {path}"
        raise BuildError(what, why=str(error)) from error


def _checked(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe's document as keywords of Recipe; raise BuildError for unknown or missing."""
    texts = {"description", "variant", "suite", "applets"}
    lists = {"packages", "remove", "mkdirs"}
    tables = {"links", "files"}
    kinds = dict.fromkeys(texts, str) | dict.fromkeys(lists, list) | dict.fromkeys(tables, dict)
    wrong = [f"unknown field {key!r}" for key in data.keys() - kinds.keys()]
    wrong += [
        f"{key}: not {kinds[key].__name__}"
        for key in data.keys() & kinds.keys()
        if not isinstance(data[key], kinds[key])
    ]
    wrong += [f"{key}: missing" for key in {"description", "variant", "packages"} - data.keys()]
    if wrong:
        what = f"{path}: not a recipe"
        raise BuildError(what, why="; ".join(sorted(wrong)))
    return {key: tuple(data[key]) if key in lists else data[key] for key in data}
