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
from ocisbx.placeholder import absent
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


class Ground(NamedTuple):
    """A directory that has placeholders, and its register, both open; what is done there."""

    directory: int
    register: int
    path: str
    spares: Spares

    def write(self, parent: str, made: Sequence[Made]) -> None:
        """Have the register name these, in the directory `parent`."""
        data = json.dumps({"parent": parent, "made": made}).encode()
        # In one write: what is read in between is whole. Blanks behind JSON mean nothing.
        os.pwrite(self.register, data.ljust(os.fstat(self.register).st_size), 0)

    def close(self) -> None:
        os.close(self.directory)
        os.close(self.register)


def registers() -> str:
    return f"{find_places().runtime}/placeholders"


class Hold:
    """Placeholders on the host, from `take` until `release`, whoever else has them too."""

    def __init__(
        self, wanted: Sequence[Placeholder], note: Callable[[str], None] = lambda _: None
    ) -> None:
        """`note` is told the path of each that is there."""
        self._wanted = wanted
        self._note = note
        self._grounds: list[Ground] = []
        self._place = ""
        self._holder = 0

    def take(self) -> None:
        """Have them there; once.

        Raises:
            OcisbxError: one cannot be made, or something else came to be there.
        """
        if not self._wanted:
            return
        by_parent: dict[str, list[tuple[str, Placeholder]]] = {}
        for one in self._wanted:
            parent, _, name = one.path.rpartition("/")
            by_parent.setdefault(parent or "/", []).append((name, one))
        place = registers()
        for path in (os.path.dirname(place), place):
            ensure(path)
        self._holder, self._place = os.getpid(), place
        with locked(place, fcntl.LOCK_EX):
            for parent, some in by_parent.items():
                self._grounds.append(_enter(place, parent, some, self._note))
        _held.update(*(one[:2] for one in self._grounds))

    def release(self, *, waits: bool = True) -> None:
        """Take away those that nobody else has; idempotent. Raises OSError; where it does not wait
        for its turn, BlockingIOError: it can be asked again."""
        # What a fork of the holder has of it is the holder's.
        if not self._grounds or os.getpid() != self._holder:
            return
        with locked(self._place, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB)):
            try:
                while self._grounds:
                    _remove_if_last(self._grounds[-1])
                    self._close_last()
            finally:
                while waits and self._grounds:
                    self._close_last()

    def _close_last(self) -> None:
        ground = self._grounds.pop()
        # As in `locked`.
        fcntl.flock(ground.register, fcntl.LOCK_UN)
        _held.difference_update(ground[:2])
        ground.close()


@contextlib.contextmanager
def hold(
    wanted: Sequence[Placeholder], note: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Have these placeholders until the context ends. Parameters and errors as those of Hold."""
    held = Hold(wanted, note)
    try:
        held.take()
        yield
    finally:
        held.release()


def _enter(
    place: str, parent: str, wanted: Sequence[tuple[str, Placeholder]], note: Callable[[str], None]
) -> Ground:
    """Have them in the directory `parent`; the register's lock is shared from here on."""
    ground = None
    try:
        ground = _open_ground(place, parent)
        fcntl.flock(ground.register, fcntl.LOCK_SH)
        known = _read(ground.register)
        missing = absent(ground.directory, [name for name, _ in wanted])
        new = []
        for name, one in wanted:
            if name in missing or _is_new(ground.directory, name, one, known):
                new.append((name, one))
            else:
                note(one.path)
        if new:
            _make_all(ground, parent, known, new, note)
    except OSError as error:
        if ground is not None:
            _remove_if_last(ground)
            ground.close()
        raise OcisbxError(
            f"cannot keep names free in {show(parent)}",
            why=f"{error.filename or parent}: {error.strerror}",
            remedy="run it again if it has just changed; else see [filesystem] in ocisbx-config(5)",
        ) from error
    return ground


def _open_ground(place: str, parent: str) -> Ground:
    directory = _open_parent(parent)
    try:
        path = f"{place}/{home_of(directory)}"
        spares = Spares(directory)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return Ground(directory, os.open(path, flags, 0o600), path, spares)
    except BaseException:
        os.close(directory)
        raise


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


def _is_new(directory: int, name: str, wanted: Placeholder, known: Sequence[Made]) -> bool:
    """Whether it has to be made. Raises OSError: something else is there."""
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
    ground: Ground,
    parent: str,
    known: list[Made],
    wanted: Sequence[tuple[str, Placeholder]],
    note: Callable[[str], None],
) -> None:
    """The register always names them first."""
    spares = ground.spares
    made = [Made(name, one.content, spares.choose(one.content)) for name, one in wanted]
    ground.write(parent, [*known, *made])
    missing = []
    for number, intent in enumerate(made):
        name, content, inode = intent
        if inode and spares.put(inode, content, name):
            note(wanted[number][1].path)
        else:
            made[number] = intent._replace(inode=0)
            missing.append(number)
    if not missing:
        return
    ground.write(parent, [*known, *made])
    for number in missing:
        made[number] = _make(ground.directory, made[number])
        note(wanted[number][1].path)
    ground.write(parent, [*known, *made])


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


def _remove_if_last(ground: Ground) -> None:
    try:
        fcntl.flock(ground.register, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    _remove_all(ground)
    os.unlink(ground.path)


def _remove_all(ground: Ground) -> None:
    for one in _read(ground.register):
        try:
            _remove(ground.directory, one, ground.spares)
        except OSError:
            continue


def _remove(directory: int, made: Made, spares: Spares) -> None:
    """Take it away where it is still what we made; an empty directory of another inode is not."""
    name, content, inode = made
    info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if inode not in (0, info.st_ino) or stat.S_ISDIR(info.st_mode) != (not content):
        return
    if inode and spares.give_back(content, name, info):
        return
    if not content:
        os.rmdir(name, dir_fd=directory)
    elif info.st_size == len(content):
        os.unlink(name, dir_fd=directory)


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
                    _remove_all(Ground(directory, register, path, Spares(directory)))
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
