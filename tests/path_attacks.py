"""Runs in a container: tries to change what it may not, says what it managed to do.

    python3 path_attacks.py FILE DIRECTORY MISSING...

FILE and DIRECTORY exist and are denied, the MISSING do not and are kept free. Prints one line for
each attack that the kernel let pass.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

RENAME_EXCHANGE = 2
AT_FDCWD = -100
libc = ctypes.CDLL(None, use_errno=True)


def exchange(one: str, other: str) -> None:
    if libc.renameat2(AT_FDCWD, one.encode(), AT_FDCWD, other.encode(), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


def write(path: str, flags: int = os.O_WRONLY) -> None:
    descriptor = os.open(path, flags, 0o644)
    os.write(descriptor, b"attacked")
    os.close(descriptor)


def spare(path: str) -> str:
    """A file of the payload's own beside `path`, to move over it."""
    other = f"{path}.spare"
    if os.path.isdir(path):
        os.makedirs(other, exist_ok=True)
    else:
        write(other, os.O_WRONLY | os.O_CREAT)
    return other


def link_and_write(path: str) -> None:
    os.link(path, f"{path}.linked")
    write(f"{path}.linked")


def swap_for_a_symlink(path: str) -> None:
    os.symlink("/tmp", f"{path}.link")
    os.replace(f"{path}.link", path)


def move_parents_away(path: str) -> None:
    for parent in map(str, Path(path).parents):
        if parent == os.getcwd():
            break
        with contextlib.suppress(OSError):
            os.rename(parent, f"{parent}.away")
            return
    raise OSError(errno.EBUSY, "none can be moved")


def through(door: str) -> Callable[[str], None]:
    return lambda path: write(door + path, os.O_WRONLY | os.O_CREAT)


def through_a_directory_descriptor(path: str) -> None:
    parent = os.open(os.path.dirname(path), os.O_PATH)
    descriptor = os.open(os.path.basename(path), os.O_WRONLY, dir_fd=parent)
    os.write(descriptor, b"attacked")


def make_parents_and_create(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write(path, os.O_WRONLY | os.O_CREAT)


FILE: dict[str, Callable[[str], None]] = {
    "write": write,
    "append": lambda path: write(path, os.O_WRONLY | os.O_APPEND),
    "truncate": lambda path: os.truncate(path, 0),
    "open and truncate": lambda path: write(path, os.O_WRONLY | os.O_TRUNC),
    "through /proc/self/root": through("/proc/self/root"),
    "through /proc/1/root": through("/proc/1/root"),
    "through a descriptor": through_a_directory_descriptor,
    "chmod": lambda path: os.chmod(path, 0o700),
    "utime": os.utime,
    "xattr": lambda path: os.setxattr(path, "user.attacked", b"1"),
    "hard link": link_and_write,
}
EITHER: dict[str, Callable[[str], None]] = {
    "rename over": lambda path: os.rename(spare(path), path),
    "exchange": lambda path: exchange(spare(path), path),
    "rename away": lambda path: os.rename(path, f"{path}.away"),
    "replace by a symlink": swap_for_a_symlink,
    "move a parent away": move_parents_away,
    "remove": lambda path: os.rmdir(path) if os.path.isdir(path) else os.unlink(path),
}
DIRECTORY: dict[str, Callable[[str], None]] = {
    "create in it": lambda path: write(f"{path}/new", os.O_WRONLY | os.O_CREAT),
    "make a directory in it": lambda path: os.mkdir(f"{path}/newdir"),
    "write in it": lambda path: write(f"{path}/inner"),
    "remove in it": lambda path: os.unlink(f"{path}/inner"),
    "move into it": lambda path: os.rename(spare(f"{path}.f"), f"{path}/moved"),
    "move out of it": lambda path: os.rename(f"{path}/inner", f"{path}.out"),
    "link into it": lambda path: os.link(spare(f"{path}.f"), f"{path}/linked"),
    "remove it all": shutil.rmtree,
    "chmod": lambda path: os.chmod(path, 0o700),
}
MISSING: dict[str, Callable[[str], None]] = {
    "create": lambda path: write(path, os.O_WRONLY | os.O_CREAT),
    "create exclusively": lambda path: write(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "make parents, create": make_parents_and_create,
    "make it a directory": lambda path: write(f"{path}/x", os.O_WRONLY | os.O_CREAT),
    "symlink": lambda path: os.symlink("/tmp", path),
    "fifo": os.mkfifo,
    "move there": lambda path: os.rename(spare(f"{os.getcwd()}/spare"), path),
    "hard link": lambda path: os.link(spare(f"{os.getcwd()}/spare"), path),
}


def attack(path: str, ways: dict[str, Callable[[str], None]]) -> None:
    for name, way in ways.items():
        try:
            way(path)
        except OSError:
            continue
        sys.stdout.write(f"{name}: {path}\n")


def main() -> None:
    file, directory, *missing = map(os.path.abspath, sys.argv[1:])
    attack(file, FILE | EITHER)
    attack(directory, DIRECTORY | EITHER)
    for path in missing:
        attack(path, MISSING)


main()
