"""Placeholders on the host: made before a container starts, shared by those that run at the same
time, removed by the last of them.

Each directory that has some has a register, named by its device and inode. Whoever uses one holds
a shared lock on the register while its container runs, so that the kernel lets go of it when a
driver is killed; who gets the exclusive lock is alone, and removes what the register names. Only
who holds the lock of the directory of registers changes any of this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.backends.spares import Spares, home_of
from ocisbx.errors import OcisbxError
from ocisbx.places import ensure, find_places, locked, trusted
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ocisbx.placeholder import Placeholder

READ_LIMIT_BYTES = 1 << 20
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# The directories and registers that this process holds.
_held: set[int] = set()


class Made(NamedTuple):
    """A line of a register; `inode` 0: it was about to be made."""

    name: str
    content: str
    inode: int


class Area(NamedTuple):
    """What all directories of one `hold` have in common."""

    registers: str
    spares: Spares
    note: Callable[[str], None]


class Register(NamedTuple):
    """Of the directory `parent`: `known` was in it before."""

    descriptor: int
    parent: str
    known: list[Made]

    def write(self, new: Sequence[Made]) -> None:
        data = json.dumps({"parent": self.parent, "made": [*self.known, *new]}).encode()
        # In one write: what is read in between is whole. Blanks behind JSON mean nothing.
        os.pwrite(self.descriptor, data.ljust(os.fstat(self.descriptor).st_size), 0)


def registers() -> str:
    return f"{find_places().runtime}/placeholders"


@contextlib.contextmanager
def hold(
    wanted: Sequence[Placeholder], note: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Have these placeholders on the host until the context ends, whoever else has them too.
    `note` is told the path of each that is there.

    Raises:
        OcisbxError: one cannot be made, or something else came to be there.
    """
    if not wanted:
        yield
        return
    by_parent: dict[str, list[Placeholder]] = {}
    for one in wanted:
        by_parent.setdefault(os.path.dirname(one.path), []).append(one)
    area = Area(registers(), Spares(), note)
    for path in (os.path.dirname(area.registers), area.registers):
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
        path = f"{area.registers}/{home_of(directory)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        register = os.open(path, flags, 0o600)
        fcntl.flock(register, fcntl.LOCK_SH)
        known = _read(register)
        new = []
        for one in wanted:
            if _is_new(directory, one, known):
                new.append(one)
            else:
                area.note(one.path)
        if new:
            _make_all(directory, Register(register, parent, known), new, area)
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


def _make_all(
    directory: int, register: Register, wanted: Sequence[Placeholder], area: Area
) -> None:
    """The register always names them first."""
    home, spares = home_of(directory), area.spares
    made = [
        Made(os.path.basename(one.path), one.content, spares.choose(home, one.content))
        for one in wanted
    ]
    register.write(made)
    for number, (one, intent) in enumerate(zip(wanted, made, strict=True)):
        if intent.inode and spares.put(home, intent.inode, intent.content, directory, intent.name):
            area.note(one.path)
        else:
            made[number] = intent._replace(inode=0)
    missing = [number for number, one in enumerate(made) if not one.inode]
    if not missing:
        return
    register.write(made)
    for number in missing:
        made[number] = _make(directory, made[number])
        area.note(wanted[number].path)
    register.write(made)


def _make(directory: int, intent: Made) -> Made:
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


def _remove_if_last(directory: int, register: int, area: Area) -> None:
    try:
        fcntl.flock(register, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    _remove_all(directory, register, area.spares)
    os.unlink(f"{area.registers}/{home_of(directory)}")


def _remove_all(directory: int, register: int, spares: Spares) -> None:
    home = home_of(directory)
    for one in _read(register):
        with contextlib.suppress(OSError):
            _remove(directory, one, spares, home)


def _remove(directory: int, made: Made, spares: Spares, home: str) -> None:
    """Take it away where it is still what we made; an empty directory of another inode is not."""
    info = os.stat(made.name, dir_fd=directory, follow_symlinks=False)
    if made.inode not in (0, info.st_ino) or stat.S_ISDIR(info.st_mode) != (not made.content):
        return
    if made.inode and spares.give_back(home, made.inode, made.content, directory, made.name):
        return
    if not made.content:
        os.rmdir(made.name, dir_fd=directory)
    elif info.st_size == len(made.content):
        os.unlink(made.name, dir_fd=directory)


def _read(register: int) -> list[Made]:
    """What the register names; nothing where it was cut off (a full disk)."""
    data = os.pread(register, READ_LIMIT_BYTES, 0)
    try:
        return [Made(*row) for row in json.loads(data)["made"]] if data else []
    except (ValueError, TypeError, KeyError):
        return []


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
                if os.path.basename(path) == home_of(directory):
                    _remove_all(directory, register, Spares())
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
