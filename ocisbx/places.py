"""Where ocisbx keeps things, and the checks that make those directories trustworthy.

interface.md, "Places": `$XDG_RUNTIME_DIR/ocisbx` (else `/tmp/ocisbx-UID`) for bundles, sockets and
runtime state; `$XDG_CACHE_HOME/ocisbx` for what can be made again; `$XDG_STATE_HOME/ocisbx` for
what is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING

from ocisbx.errors import OcisbxError

if TYPE_CHECKING:
    from collections.abc import Iterator

# root's containers run as a mapped user that has to cross this directory to reach its bundle
# (whose name cannot be guessed); nobody else has to see anything of ours.
MODE_PRIVATE = 0o700
MODE_CROSSABLE = 0o711
USABLE_S = 1.0

# Until when what a user has seen of a directory is taken for granted, by time.monotonic().
_usable_until: dict[tuple[str, int], float] = {}


class Places:
    """Absolute paths, by the caller's environment at the moment that one is asked for; none is
    created before it is needed."""

    @property
    def runtime(self) -> str:
        return _runtime_directory()

    @property
    def cache(self) -> str:
        return _xdg("XDG_CACHE_HOME", ".cache") + "/ocisbx"

    @property
    def state(self) -> str:
        return _xdg("XDG_STATE_HOME", ".local/state") + "/ocisbx"

    @property
    def bundles(self) -> str:
        return f"{self.runtime}/bundles"

    @property
    def kept(self) -> str:
        """What runtimes share between containers; removed by `gc` when there are none."""
        return f"{self.runtime}/kept"

    @property
    def slots(self) -> str:
        """One file for each sandbox that runs under a cap (slots.py)."""
        return f"{self.runtime}/slots"

    @property
    def containers(self) -> str:
        """What stays of each container in the background until it is removed."""
        return f"{self.state}/containers"

    @property
    def worktrees(self) -> str:
        """Workspaces of sessions, so not within what no sandbox may be given."""
        return f"{self.state}-worktrees"

    @property
    def controls(self) -> str:
        """A socket for each container in the background whose supervisor lives."""
        return f"{self.runtime}/controls"

    @property
    def bytecode(self) -> str:
        """Of our modules and Python's, as supervisors want it."""
        return f"{self.cache}/bytecode"

    @property
    def plans(self) -> str:
        return f"{self.cache}/plans"

    @property
    def audit(self) -> str:
        return f"{self.state}/audit.jsonl"


_PLACES = Places()


def find_places() -> Places:
    """Those of the caller; touches no file but to look at them."""
    return _PLACES


def _xdg(name: str, default: str) -> str:
    # The XDG base directory specification: a relative path is to be ignored.
    value = os.environ.get(name, "")
    if not value.startswith("/"):
        value = f"{os.environ.get('HOME') or '/'}/{default}"
    return value.rstrip("/")


def _runtime_directory() -> str:
    """$XDG_RUNTIME_DIR when it is ours, writable and lets programs run; else below /tmp."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base.startswith("/") and _usable(base):
        return base.rstrip("/") + "/ocisbx"
    return f"/tmp/ocisbx-{os.geteuid()}"


def _usable(path: str) -> bool:
    """Whether it was so at most a second ago: a call asks half a dozen times."""
    now, asked = time.monotonic(), (path, os.geteuid())
    if now < _usable_until.get(asked, 0.0):
        return True
    usable = _is_usable(path)
    _usable_until[asked] = now + USABLE_S if usable else 0.0
    return usable


def _is_usable(path: str) -> bool:
    try:
        info = os.stat(path)
        flags = os.statvfs(path).f_flag
    except OSError:
        return False
    # A bind of the init keeps the noexec of its file system inside a user namespace.
    runnable = not flags & (os.ST_NOEXEC | os.ST_RDONLY)
    ours = info.st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK)
    return runnable and ours and (os.geteuid() != 0 or _crossable(path))


def _crossable(path: str) -> bool:
    """Whether root's containers, whose ids are mapped, can reach what lies in `path`.

    /run/user/0 (pam_systemd) is mode 0700, so it is no place for them.
    """
    while path != "/":
        if not os.stat(path).st_mode & 0o001:
            return False
        path = os.path.dirname(path)
    return True


def ensure(path: str) -> str:
    """Create `path` (and what is missing above it) as ours alone, and check that it is so.

    Raises:
        OcisbxError: it cannot be made, is a symlink, or belongs to or is open to somebody else.
    """
    try:
        info = _lstat_or_make(path)
    except OSError as error:
        raise OcisbxError(
            f"cannot create {path}",
            why=os.strerror(error.errno or 0),
            remedy="make its parent writable, or point XDG_RUNTIME_DIR, XDG_CACHE_HOME and "
            "XDG_STATE_HOME at directories that you own",
        ) from error
    if not _ours_alone(info):
        raise OcisbxError(
            f"{path} is not a directory that only you can write",
            why=f"owner {info.st_uid}, mode {stat.filemode(info.st_mode)}",
            remedy=f"remove it, or set XDG_RUNTIME_DIR to a directory of your own (not {path})",
        )
    return path


def trusted(path: str) -> bool:
    """Whether `path` is there and only we can put things into it: who reads in /tmp asks first.

    Anybody may make /tmp/ocisbx-UID before us, and fill it with links to what is ours.
    """
    try:
        return _ours_alone(os.lstat(path))
    except OSError:
        return False


def _ours_alone(info: os.stat_result) -> bool:
    ours = info.st_uid == os.geteuid() and not info.st_mode & 0o022
    return stat.S_ISDIR(info.st_mode) and ours


def bundle_names() -> list[str]:
    """What lies among this user's bundles; nothing where the place is not ours to trust."""
    bundles = find_places().bundles
    if not (trusted(os.path.dirname(bundles)) and trusted(bundles)):
        return []
    return os.listdir(bundles)


@contextlib.contextmanager
def locked(directory: str, kind: int) -> Iterator[None]:
    """Hold the lock of a directory of ours: fcntl.LOCK_SH or LOCK_EX (flock(2)); with LOCK_NB,
    BlockingIOError is raised where it cannot be had at once."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        # Closing alone would not do where a child was forked meanwhile, which has it open too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lstat_or_make(path: str) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, _directory_mode())
        # Whatever the caller's umask.
        os.chmod(path, _directory_mode())
    return os.lstat(path)


def _directory_mode() -> int:
    return MODE_CROSSABLE if os.geteuid() == 0 else MODE_PRIVATE
