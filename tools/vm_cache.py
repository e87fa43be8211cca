"""The cache of the test machine: named by what things are made from, complete or not there."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.rootfs_recipe import BuildError

# Worktrees of different states share the cache; one that is in use is never removed.
_KEPT = 4
_UNFINISHED = "new-"


def directory() -> Path:
    """Return the cache's directory: root's is the machine's, as that of tools/install-runtimes."""
    if os.geteuid() == 0:
        return Path("/var/cache/ocisbx-dev/vm")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "ocisbx-dev" / "vm"


def digest(*parts: object) -> str:
    """Return a short name for what something is made from."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]


def namespaces(*command: str) -> list[str]:
    """Return the command as root of namespaces of its own; what it mounts ends with it.

    It ends with its caller: left alone, it would write into what the next build has removed.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    own = ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child", "--", *command]
    return ["setpriv", "--pdeathsig", "KILL", *own]


@contextmanager
def building(cache: Path, waiting: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the cache's lock; whatever unfinished thing is there then was left by a killed build."""
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache.glob(f"{_UNFINISHED}*"):
            remove(left)
        yield


@contextmanager
def fresh(place: Path) -> Iterator[Path]:
    """Give a new directory, which becomes `place` when all went well, and is removed if not."""
    made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=place.parent))
    try:
        yield made
        made.rename(place)
    finally:
        if made.exists():
            remove(made)


@contextmanager
def in_use(place: Path) -> Iterator[bool]:
    """Keep `place` from being removed; the value tells whether it is there."""
    try:
        holder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(holder, fcntl.LOCK_SH)
        # It may have been removed between the two calls.
        there = place.exists() and os.path.samestat(os.fstat(holder), place.stat())
        if there:
            os.utime(place)
        yield there
    finally:
        os.close(holder)


def prune(cache: Path, kind: str) -> None:
    """Remove the things of a kind that were not used for longest."""
    found = sorted(cache.glob(f"{kind}-*"), key=lambda one: one.stat().st_mtime, reverse=True)
    for one in found[_KEPT:]:
        remove_unused(one)


def remove_unused(place: Path) -> bool:
    """Remove a thing unless a machine runs from it; tell whether it is gone."""
    holder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = place.with_name(f"{_UNFINISHED}{place.name}")
        place.rename(gone)
    except BlockingIOError:
        return False
    finally:
        os.close(holder)
    remove(gone)
    return True


def remove(place: Path) -> None:
    """Remove a directory, also one with files of subordinate ids."""
    shutil.rmtree(place, ignore_errors=True)
    if place.exists():
        subprocess.run(namespaces("rm", "-rf", str(place)), check=False, capture_output=True)
    if place.exists():
        what = f"cannot remove {place}"
        raise BuildError(what)


def sizes(cache: Path) -> dict[str, int]:
    """Return the bytes on disk of each complete thing in the cache."""
    found = {}
    for place in sorted(cache.glob("*-*")):
        if not place.name.startswith(_UNFINISHED) and place.is_dir():
            files = (one.lstat() for one in place.rglob("*"))
            found[place.name] = sum(one.st_blocks * 512 for one in files)
    return found
