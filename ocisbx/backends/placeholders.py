"""Placeholders on the host: made before a container starts, shared by those that run at the same
time, removed by the last of them.

Each directory that has some has a register, named by its device and inode. Whoever uses one holds
a shared lock on the register while its container runs, so that the kernel lets go of it when a
driver is killed; who gets the exclusive lock is alone, and removes what the register names. Only
who holds the lock of the directory of registers changes any of this.

Making and deleting a directory costs 110 us on ext4, and moving one there and back 17: so they
are kept in a pool where that lies on the same file system.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.errors import OcisbxError
from ocisbx.placeholder import is_blank
from ocisbx.places import ensure, find_places, locked, trusted
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ocisbx.placeholder import Placeholder

READ_LIMIT_BYTES = 1 << 20
POOLED = 64
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# The directories and registers that this process holds.
_held: set[int] = set()


class Made(NamedTuple):
    """A line of a register; `inode` 0: it was about to be made."""

    name: str
    content: str
    inode: int


class Area(NamedTuple):
    """The directory of registers, and the pool."""

    registers: str
    pool: str


def registers() -> str:
    return f"{find_places().runtime}/placeholders"


def pool() -> str:
    return f"{find_places().cache}/placeholders"


@contextlib.contextmanager
def hold(wanted: Sequence[Placeholder]) -> Iterator[None]:
    """Have these placeholders on the host until the context ends, whoever else has them too.

    Raises:
        OcisbxError: one cannot be made, or something else came to be there.
    """
    if not wanted:
        yield
        return
    by_parent: dict[str, list[Placeholder]] = {}
    for one in wanted:
        by_parent.setdefault(os.path.dirname(one.path), []).append(one)
    area = Area(registers(), pool())
    for path in (os.path.dirname(area.registers), area.registers):
        ensure(path)
    # Without a pool each is made and deleted.
    with contextlib.suppress(OcisbxError):
        for path in (os.path.dirname(area.pool), area.pool):
            ensure(path)
    held: list[tuple[int, int]] = []
    holder = os.getpid()
    try:
        with locked(area.registers, fcntl.LOCK_EX):
            held += (_enter(parent, some, area) for parent, some in by_parent.items())
        _held.update(*held)
        yield
    finally:
        # What a fork of the holder has of it is the holder's.
        if os.getpid() == holder:
            _held.difference_update(*held)
            with locked(area.registers, fcntl.LOCK_EX):
                for directory, register in held:
                    _remove_if_last(directory, register, area)
                    # As in `locked`.
                    fcntl.flock(register, fcntl.LOCK_UN)
                    os.close(directory)
                    os.close(register)


def _enter(parent: str, wanted: Sequence[Placeholder], area: Area) -> tuple[int, int]:
    """Returns the descriptors of the directory and of its register, whose lock is shared now."""
    directory = register = -1
    try:
        directory = _open_parent(parent)
        info = os.fstat(directory)
        path = f"{area.registers}/{info.st_dev:x}-{info.st_ino:x}"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        register = os.open(path, flags, 0o600)
        fcntl.flock(register, fcntl.LOCK_SH)
        known = _read(register)
        new = [one for one in wanted if _is_new(directory, one, known)]
        if new:
            intents = [Made(os.path.basename(one.path), one.content, 0) for one in new]
            _write(register, parent, [*known, *intents])
            spare = _spare(directory, area.pool)
            made = [_make(directory, one, spare) for one in intents]
            _write(register, parent, [*known, *made])
    except OSError as error:
        if register >= 0:
            _remove_if_last(directory, register, area)
        for descriptor in (directory, register):
            if descriptor >= 0:
                os.close(descriptor)
        raise OcisbxError(
            f"cannot keep names free in {show(parent)}",
            why=f"{error.filename or parent}: {error.strerror}",
            remedy="run it again if it has just changed; else see [filesystem] in ocisbx-config(5)",
        ) from error
    return directory, register


def _open_parent(path: str) -> int:
    """Step by step, so that no symlink that was put there leads elsewhere."""
    current = os.open("/", DIRECTORY)
    try:
        for name in path.split("/"):
            if name:
                current, old = os.open(name, DIRECTORY, dir_fd=current), current
                os.close(old)
    except OSError:
        os.close(current)
        raise
    return current


def _is_new(directory: int, wanted: Placeholder, known: Sequence[Made]) -> bool:
    """Whether it has to be made. Raises OSError: something else is there."""
    name = os.path.basename(wanted.path)
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return True
    made = next((one for one in known if one.name == name and one.inode == info.st_ino), None)
    if made is not None and made.content == wanted.content:
        return False
    # The caller's own empty directory serves as well, and stays.
    if stat.S_ISDIR(info.st_mode) != (not wanted.content):
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), wanted.path)
    return False


def _make(directory: int, intent: Made, spare: dict[str, list[str]]) -> Made:
    if not _take(directory, intent, spare[intent.content]):
        if intent.content:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(intent.name, flags, 0o644, dir_fd=directory)
            try:
                os.write(descriptor, intent.content.encode())
            finally:
                os.close(descriptor)
        else:
            os.mkdir(intent.name, 0o755, dir_fd=directory)
    info = os.stat(intent.name, dir_fd=directory, follow_symlinks=False)
    return intent._replace(inode=info.st_ino)


def _spare(directory: int, place: str) -> dict[str, list[str]]:
    """By content: what the pool has that can be moved into this directory."""
    found: dict[str, list[str]] = defaultdict(list)
    try:
        if os.stat(place).st_dev == os.fstat(directory).st_dev and trusted(place):
            for name in os.listdir(place):
                found[name.partition(" ")[0]].append(f"{place}/{name}")
    except OSError:
        pass
    return found


def _take(directory: int, intent: Made, spare: list[str]) -> bool:
    try:
        one = spare.pop()
        if intent.content:
            os.link(one, intent.name, dst_dir_fd=directory)
            os.unlink(one)
        else:
            # Over nothing, or over an empty directory: it replaces no other.
            os.rename(one, intent.name, dst_dir_fd=directory)
    except (IndexError, OSError):
        # None is left, it lies behind another mount (EXDEV), or somebody else took it.
        spare.clear()
        return False
    return True


def _give_back(directory: int, made: Made, pooled: str) -> bool:
    """Move what is still blank into the pool; False: it has to be deleted."""
    place = f"{pooled}/{made.content} {os.urandom(8).hex()}"
    try:
        os.rename(made.name, place, src_dir_fd=directory)
    except OSError:
        return False
    # No time tells: whoever writes into it may set them back (utimensat(2)).
    if not is_blank(place):
        # Somebody on the host has put something into it.
        os.rename(place, made.name, dst_dir_fd=directory)
    return True


def _remove_if_last(directory: int, register: int, area: Area) -> None:
    try:
        fcntl.flock(register, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    _remove_all(directory, register, area.pool)
    info = os.fstat(directory)
    os.unlink(f"{area.registers}/{info.st_dev:x}-{info.st_ino:x}")


def _remove_all(directory: int, register: int, place: str) -> None:
    room = 0
    with contextlib.suppress(OSError):
        room = POOLED - len(os.listdir(place))
    for number, one in enumerate(_read(register)):
        with contextlib.suppress(OSError):
            _remove(directory, one, place if number < room else None)


def _remove(directory: int, made: Made, pooled: str | None) -> None:
    """Take it away where it is still what we made; an empty directory of another inode is not.
    `pooled`: the pool, where that has room."""
    info = os.stat(made.name, dir_fd=directory, follow_symlinks=False)
    if made.inode not in (0, info.st_ino) or stat.S_ISDIR(info.st_mode) != (not made.content):
        return
    if made.inode and pooled is not None and _give_back(directory, made, pooled):
        return
    if not made.content:
        os.rmdir(made.name, dir_fd=directory)
    elif info.st_size == len(made.content):
        os.unlink(made.name, dir_fd=directory)


def _read(register: int) -> list[Made]:
    """What the register names; nothing where it was cut off (a full disk)."""
    try:
        document = json.loads(os.pread(register, READ_LIMIT_BYTES, 0))
        return [Made(*row) for row in document["made"]]
    except (ValueError, TypeError, KeyError):
        return []


def _write(register: int, parent: str, made: Sequence[Made]) -> None:
    data = json.dumps({"parent": parent, "made": made}).encode()
    os.pwrite(register, data, 0)
    os.ftruncate(register, len(data))


def forget_placeholders() -> None:
    """Remove the placeholders of drivers that were killed."""
    if not trusted(find_places().runtime) or not trusted(registers()):
        return
    with locked(registers(), fcntl.LOCK_EX):
        for name in os.listdir(registers()):
            with contextlib.suppress(OSError):
                _forget(f"{registers()}/{name}")


def _forget(path: str) -> None:
    register = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(register, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            parent = str(json.loads(os.pread(register, READ_LIMIT_BYTES, 0))["parent"])
            directory = _open_parent(parent)
            try:
                info = os.fstat(directory)
                if os.path.basename(path) == f"{info.st_dev:x}-{info.st_ino:x}":
                    _remove_all(directory, register, pool())
            finally:
                os.close(directory)
        os.unlink(path)
    finally:
        os.close(register)


def _after_fork() -> None:
    """A lock is its file's, and as good as the last descriptor of it: a child that outlives the
    holder would go on holding."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)
