"""`tools/build-rootfs`: a root file system from its recipe, as an unprivileged user.

The distribution's packages come through mmdebstrap(1). What is built is compared with the
recipe's lock (package versions, digest of the tree) before it takes its place in one rename, so
that neither an error nor a signal leaves a half-made tree.
"""

import argparse
import errno
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tools.rootfs_packages import (
    Distribution,
    check_requirements,
    check_space,
    download,
    find_distribution,
    no_space,
    read_versions,
)
from tools.rootfs_recipe import BuildError, Locked, Recipe, read_lock, write_lock
from tools.rootfs_tree import digest, finish, is_built_root, size_bytes, unpack

RECIPES = Path(__file__).resolve().parent.parent / "rootfs"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: list[str] | None = None) -> int:
    """Build what the command line asks for; return 0, 1 (not as locked), 69 or 125."""
    options = _parse(arguments)
    for number in _SIGNALS:
        signal.signal(number, _interrupted)
    os.umask(0o022)
    try:
        recipe = Recipe.load(options.recipes, options.name)
        target = options.output or options.recipes / recipe.name / "root"
        lock = options.recipes / recipe.name / "lock.toml"
        _build(recipe, Path(os.path.abspath(target)), lock, update_lock=options.update_lock)
    except BuildError as error:
        return _report(error)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return _report(no_space(options.name, str(error)))
        return _report(BuildError(f"cannot build {options.name}", why=str(error)))
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    names = ", ".join(sorted(path.parent.name for path in RECIPES.glob("*/recipe.toml")))
    parser = argparse.ArgumentParser(
        prog="build-rootfs",
        description="Build a root file system from rootfs/NAME/recipe.toml into rootfs/NAME/root.",
        epilog="Exit code: 0 built or up to date, 1 not as locked, 2 usage, 69 this machine cannot "
        "build (the administrator's command is printed), 125 failed.",
    )
    parser.add_argument("name", metavar="NAME", help=f"one of: {names}")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="build DIR instead")
    parser.add_argument(
        "--update-lock",
        action="store_true",
        help="take the versions that the distribution serves now, and write rootfs/NAME/lock.toml",
    )
    parser.add_argument(
        "--recipes", type=Path, default=RECIPES, metavar="DIR", help="recipes of another directory"
    )
    return parser.parse_args(arguments)


def _build(recipe: Recipe, target: Path, lock_path: Path, *, update_lock: bool) -> None:
    check_requirements()
    distribution = find_distribution(recipe)
    lock = read_lock(lock_path)
    locked = lock.get(distribution.suite, {}).get(distribution.arch)
    if not update_lock:
        locked = _usable(locked, recipe, distribution)
    _check_target(target)
    with _scratch(target) as scratch:
        if locked and not update_lock and _is_current(target, locked):
            _say(recipe.name, f"{target} is up to date: {locked.digest}")
            return
        begun = time.monotonic()
        check_space(recipe, Path(tempfile.gettempdir()), scratch)
        archive = download(recipe, distribution, scratch, lambda text: _say(recipe.name, text))
        versions = read_versions(archive)
        if locked and not update_lock:
            _compare_versions(recipe, locked, versions)
        _say(recipe.name, f"unpacking {len(versions)} packages")
        root = scratch / "root"
        unpack(archive, root, recipe)
        finish(root, recipe)
        made = Locked(recipe.fingerprint(), digest(root), versions)
        if update_lock:
            lock.setdefault(distribution.suite, {})[distribution.arch] = made
            write_lock(lock_path, lock)
        elif locked and made.digest != locked.digest:
            raise _not_reproduced(recipe, locked, made)
        total = size_bytes(root)
        _replace(root, target, scratch)
    spent_s = time.monotonic() - begun
    _say(recipe.name, f"{target}: {total / 1e6:.1f} MB in {spent_s:.1f} s, {made.digest}")


def _is_current(target: Path, locked: Locked) -> bool:
    try:
        return is_built_root(target) and digest(target) == locked.digest
    except BuildError:  # a container has left a fifo or a socket there
        return False


def _usable(locked: Locked | None, recipe: Recipe, distribution: Distribution) -> Locked:
    remedy = f"tools/build-rootfs {recipe.name} --update-lock, then review the lock's change"
    if locked is None:
        what = f"the lock of {recipe.name} has nothing for {distribution.suite} {distribution.arch}"
        raise BuildError(what, remedy=remedy, exit_code=1)
    if locked.recipe != recipe.fingerprint():
        what = f"the recipe of {recipe.name} has changed since its lock was written"
        raise BuildError(what, remedy=remedy, exit_code=1)
    return locked


def _compare_versions(recipe: Recipe, locked: Locked, versions: dict[str, str]) -> None:
    differences = locked.differences(versions)
    if not differences:
        return
    what = f"the distribution serves other versions than the lock of {recipe.name}"
    why = "\n  ".join([*differences, "its servers keep the newest versions only"])
    remedy = (
        f"tools/build-rootfs {recipe.name} --update-lock takes these, then review the lock's change"
    )
    raise BuildError(what, why=why, remedy=remedy, exit_code=1)


def _not_reproduced(recipe: Recipe, locked: Locked, made: Locked) -> BuildError:
    what = f"the tree of {recipe.name} is not the locked one, though its packages are"
    why = f"lock {locked.digest}, built {made.digest}"
    remedy = "when tools/ has changed how trees are made: --update-lock; else report it"
    return BuildError(what, why=why, remedy=remedy, exit_code=1)


def _check_target(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        what = f"{target} is not a directory"
        raise BuildError(what, remedy="name another with -o")
    if target.exists() and any(target.iterdir()) and not is_built_root(target):
        what = f"{target} has content that is not a root file system"
        raise BuildError(what, why="it would be replaced", remedy="name another with -o")


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """Yield a directory beside the target, removed at the end; one build a parent at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    holder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        prefix = f".{target.name}.build-"
        # Under the lock, whatever is there was left by a build that was killed.
        for left in target.parent.glob(f"{prefix}*"):
            shutil.rmtree(left)
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch)
    finally:
        os.close(holder)


def _replace(root: Path, target: Path, scratch: Path) -> None:
    """Put the new tree in the old one's place; a signal waits until both renames are done."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        if target.exists():
            target.rename(scratch / "old")
        root.rename(target)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _interrupted(number: int, _frame: FrameType | None) -> None:
    for one in _SIGNALS:  # a second one must not stop the clean-up
        signal.signal(one, signal.SIG_IGN)
    print("build-rootfs: interrupted, nothing is changed", file=sys.stderr)
    raise SystemExit(128 + number)


def _report(error: BuildError) -> int:
    print(f"build-rootfs: {error.what}", file=sys.stderr)
    if error.why:
        print(f"  {error.why}", file=sys.stderr)
    if error.remedy:
        print(f"  remedy: {error.remedy}", file=sys.stderr)
    return error.exit_code


def _say(name: str, text: str) -> None:
    print(f"build-rootfs: {name}: {text}", file=sys.stderr)
