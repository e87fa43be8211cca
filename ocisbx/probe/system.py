"""What `doctor` looks at beyond the Host record: the distribution, security modules, surroundings.

Every reader takes the root below which the files lie, so that tests write files.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from dataclasses import dataclass

from ocisbx import command
from ocisbx.init import cell_path
from ocisbx.places import find_places
from ocisbx.probe.programs import find_program

ACT_TIMEOUT_S = 5.0
HELPERS = ("newuidmap", "newgidmap")
TRUE_PROGRAMS = ("/bin/true", "/usr/bin/true")

# Files that container engines leave in the root of what they run.
CONTAINER_MARKS: dict[str, str] = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    "run/systemd/container": "systemd-nspawn or its kin",
}


@dataclass(frozen=True, slots=True)
class System:
    """Surroundings of this process; sysctls are None where the kernel has no such file."""

    # ID of os-release(5), then the words of ID_LIKE.
    distributions: tuple[str, ...] = ()
    unprivileged_userns_clone: int | None = None
    yama_scope: int | None = None
    selinux_enforcing: bool = False
    # The engine whose mark was found, and the mark's path.
    container: tuple[str, str] | None = None
    xdg_runtime_dir: str = ""
    # Why XDG_RUNTIME_DIR cannot be used; empty: it can, or is not set.
    xdg_trouble: str = ""
    runtime_place: str = ""
    # Why newuidmap(1) and newgidmap(1), where they are installed, can give no ids.
    helper_troubles: tuple[str, ...] = ()


def read_system(root: str = "/") -> System:
    """Read all of it."""
    base = root.rstrip("/")
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    return System(
        distributions=distributions(f"{base}/etc/os-release"),
        unprivileged_userns_clone=number(f"{base}/proc/sys/kernel/unprivileged_userns_clone"),
        yama_scope=number(f"{base}/proc/sys/kernel/yama/ptrace_scope"),
        selinux_enforcing=number(f"{base}/sys/fs/selinux/enforce") == 1,
        container=container_mark(root),
        xdg_runtime_dir=given,
        xdg_trouble=directory_trouble(given, os.geteuid()) if given else "",
        runtime_place=find_places().runtime,
        helper_troubles=tuple(
            trouble
            for path in map(find_program, HELPERS)
            if path is not None and (trouble := helper_trouble(path, base))
        ),
    )


def container_mark(root: str = "/") -> tuple[str, str] | None:
    """The engine whose container this is, and the path that tells it."""
    base = root.rstrip("/")
    marks = ((name, f"/{mark}") for mark, name in CONTAINER_MARKS.items())
    return next(((name, path) for name, path in marks if os.path.lexists(base + path)), None)


def helper_trouble(path: str, base: str = "") -> str:
    """Why the helper at `path` runs without the rights that it needs, in words; empty: it has them.

    Debian gives it the setuid bit, Fedora the file capability (capabilities(7)).
    """
    status = _text(f"{base}/proc/self/status")
    if re.search(r"^NoNewPrivs:\s*1$", status, re.MULTILINE):
        return f"{path} gains no rights: no_new_privs is set on this process"
    if os.statvfs(path).f_flag & os.ST_NOSUID:
        return f"{path} lies on a file system that is mounted nosuid"
    info = os.stat(path)
    setuid = bool(info.st_mode & stat.S_ISUID) and info.st_uid == 0
    if setuid or "security.capability" in os.listxattr(path):
        return ""
    return f"{path} is neither setuid root nor has it a file capability"


def distributions(path: str) -> tuple[str, ...]:
    """ID and ID_LIKE of an os-release(5) file, most specific first; empty when unreadable."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition("=")
        try:
            found[name.strip()] = " ".join(shlex.split(value))
        except ValueError:
            continue
    words = [found.get("ID", ""), *found.get("ID_LIKE", "").split()]
    return tuple(dict.fromkeys(word for word in words if re.fullmatch(r"[a-z0-9._-]+", word)))


def number(path: str) -> int | None:
    """The integer that a sysctl's file holds; None when there is none."""
    try:
        return int(_text(path))
    except ValueError:
        return None


def read_only(path: str) -> bool:
    """Whether the file system of `path` is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def directory_trouble(path: str, uid: int) -> str:
    """Why ocisbx cannot keep its bundles below `path`, in words; empty when it can."""
    if not path.startswith("/"):
        return f"{path} is not an absolute path"
    try:
        info = os.stat(path)
        flags = os.statvfs(path).f_flag
    except OSError as error:
        return f"{path}: {error.strerror}"
    troubles = (
        (info.st_uid != uid, f"belongs to uid {info.st_uid}, you are {uid}"),
        (flags & os.ST_RDONLY, "lies on a read-only file system"),
        (flags & os.ST_NOEXEC, "lies on a file system that is mounted noexec"),
        (not os.access(path, os.W_OK | os.X_OK), "cannot be written"),
    )
    return next((f"{path} {words}" for met, words in troubles if met), "")


def no_exec(path: str) -> bool:
    """Whether nothing on the file system of `path` (or of what exists above it) can be run."""
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def try_user_namespace() -> str:
    """Make a user namespace with the cell; empty when that works, else its words.

    Raises:
        RuntimeMissing: the cell is not there.
    """
    true = next((path for path in TRUE_PROGRAMS if os.access(path, os.X_OK)), TRUE_PROGRAMS[0])
    try:
        done = command.run([cell_path(), "-u", "--", true], timeout_s=ACT_TIMEOUT_S)
    except (OSError, command.CommandTimeout) as error:
        return str(error)
    if done.status.ok:
        return ""
    return done.stderr.decode(errors="replace").strip() or str(done.status)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
