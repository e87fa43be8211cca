"""The unpacked tree of a root file system: unpack, finish, compute its digest."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.rootfs_recipe import BuildError, Recipe

# 2026-01-01; newer times in a tree are set to it. Package files keep their own, older ones,
# since a changed time would make Python's bytecode stale.
SOURCE_DATE_EPOCH = 1767225600

# A symlink here lets a payload steer the runtime's mounts: CVE-2019-19921, CVE-2023-27561,
# CVE-2026-41579, CVE-2026-47766.
REAL_DIRECTORIES = ("dev", "etc", "proc", "sys")

_MKDIRS = {"root": 0o700, "run": 0o755, "tmp": 0o1777, "usr": 0o755, "var/tmp": 0o1777}
_FILES = {
    "etc/hostname": "localhost\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/machine-id": "",
    "etc/resolv.conf": "",
}
# The build leaves these: the machine's package sources and names, caches, logs, locks.
_REMOVE = (
    "dev/*",
    "etc/.pwd.lock",
    "etc/apt",
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "var/cache/*",
    "var/lib/apt",
    "var/lib/dpkg/*-old",
    "var/lib/dpkg/lock*",
    "var/lib/dpkg/triggers/Lock",
    "var/lib/systemd",
    "var/log/*",
)


def unpack(archive: Path, root: Path, recipe: Recipe) -> None:
    """Unpack a tar into `root`, owned by the caller; raise BuildError when tar fails.

    ocisbx's rootless mode maps one id, the caller's to uid 0: no other owner could be shown.
    """
    root.mkdir(mode=0o755)
    command = [
        *["tar", "--extract", "--file", str(archive), "--directory", str(root)],
        *["--no-same-owner", "--preserve-permissions", "--delay-directory-restore"],
        *["--anchored", "--wildcards", "--wildcards-match-slash"],
        *(f"--exclude=./{pattern}" for pattern in (*_REMOVE, *recipe.remove)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        what = f"cannot unpack the packages of {recipe.name}"
        raise BuildError(what, why=done.stderr.strip()[-1000:])


def finish(root: Path, recipe: Recipe) -> None:
    """Add what the recipe and every root need, then make modes and times the same everywhere.

    Raise BuildError where a directory that the runtime mounts on is a symlink.
    """
    for path, mode in (dict.fromkeys((*REAL_DIRECTORIES, *recipe.mkdirs), 0o755) | _MKDIRS).items():
        (root / path).mkdir(parents=True, exist_ok=True)
        (root / path).chmod(mode)
    for path in REAL_DIRECTORIES:
        if not stat.S_ISDIR((root / path).lstat().st_mode):
            what = f"/{path} is not a real directory"
            raise BuildError(
                what, why="a runtime would mount where the link leads (CVE-2026-41579)"
            )
    for path, text in (_FILES | recipe.files).items():
        _replace(root / path)
        (root / path).write_text(text)
        (root / path).chmod(0o644)
    for path, target in recipe.links.items():
        _replace(root / path)
        (root / path).symlink_to(target)
    if recipe.applets:
        _link_applets(root / recipe.applets)
    for made in _bottom_up(root):
        _settle(made)


def digest(root: Path) -> str:
    """Return "sha256:HEX" of the canonical listing of a tree; raise BuildError for a device, fifo.

    One record a path, sorted by the path's bytes, the root itself left out:
    `TYPE SP MODE SP SIZE SP CONTENT SP PATH NUL TARGET NUL`. TYPE is d, f or l; MODE four octal
    digits (0777 for a symlink); SIZE in bytes for a file, else 0; CONTENT the file's sha256 in hex,
    else `-`; PATH relative, without `./`; TARGET the symlink's, else empty. Owners and times are
    not part of it: the first is always the caller, and the second a copy loses.
    """
    total = hashlib.sha256()
    base = os.fsencode(root) + b"/"
    for path in sorted(os.fsencode(one) for one in _bottom_up(root) if one != root):
        total.update(_record(path, path.removeprefix(base)))
    return "sha256:" + total.hexdigest()


def size_bytes(root: Path) -> int:
    """Return the sum of the files' sizes, each hard-linked one counted once."""
    files = (path.lstat() for path in _bottom_up(root))
    return sum({one.st_ino: one.st_size for one in files if stat.S_ISREG(one.st_mode)}.values())


def is_built_root(path: Path) -> bool:
    """Tell whether a directory looks like our work, and so may be replaced: mount points empty.

    The system's own root is never taken for one: its /proc has content.
    """
    points = [path / name for name in ("dev", "proc", "sys")]
    return all(
        point.is_dir() and not point.is_symlink() and not any(point.iterdir()) for point in points
    )


def _record(path: bytes, name: bytes) -> bytes:
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return b"l 0777 0 - %s\0%s\0" % (name, os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return b"d %04o 0 - %s\0\0" % (mode, name)
    if not stat.S_ISREG(status.st_mode):
        what = f"{os.fsdecode(path)} is neither a file, a directory nor a symlink"
        raise BuildError(what, why="devices and sockets have no place in a root file system")
    with open(path, "rb") as content:
        checksum = hashlib.file_digest(content, "sha256").hexdigest().encode()
    return b"f %04o %d %s %s\0\0" % (mode, status.st_size, checksum, name)


def _bottom_up(root: Path) -> Iterator[Path]:
    for folder, directories, files in os.walk(root, topdown=False):
        links = [name for name in directories if os.path.islink(os.path.join(folder, name))]
        yield from (Path(folder, name) for name in (*files, *links))
        yield Path(folder)


def _replace(path: Path) -> None:
    """Make room for a new file: what is there may be a symlink that leads out of the root."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)


def _link_applets(program: Path) -> None:
    """Make `program`'s applets symlinks to it, in its own directory, where nothing is yet."""
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    for applet in listed.stdout.split():
        link = program.parent / applet
        if not os.path.lexists(link):
            link.symlink_to(program.name)


def _settle(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISLNK(status.st_mode):
        owner = 0o700 if stat.S_ISDIR(status.st_mode) else 0o400
        path.chmod(stat.S_IMODE(status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID) | owner)
    changed_s = min(int(status.st_mtime), SOURCE_DATE_EPOCH)
    os.utime(path, (changed_s, changed_s), follow_symlinks=False)
