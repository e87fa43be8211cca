"""Files into and out of a container that runs: as a tar stream, through `tar` inside.

What comes out was made by whatever runs inside, so it is taken for hostile: nothing of it is
created but below the target, each directory is entered by a descriptor and no link is followed,
and what is neither a file, a directory nor a link that stays inside the tree is refused.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import stat
import tarfile
import threading
from typing import IO, TYPE_CHECKING, TypeVar

from ocisbx.backends.base import Call
from ocisbx.commands import CommandPolicy
from ocisbx.errors import ConfigError, OcisbxError
from ocisbx.result import Termination
from ocisbx.values import check_text, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.background.commands import Orders
    from ocisbx.result import RunResult

T = TypeVar("T")

ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
IS_DIRECTORY = '[ -d "$1" ]'
# Of what a member may be; without setuid, setgid and sticky.
MODE = 0o777
NO_CAP = 1 << 62


def put(orders: Orders, source: str, target: str) -> None:
    """Copy a file or a tree of the host's to `target` in the container, as cp -r does; links as
    they are.

    Raises:
        ConfigError: there is no such file.
        OcisbxError: it cannot be read, or not be written there.
    """
    check_text(source, "a path")
    if not os.path.lexists(source):
        raise ConfigError(f"{show(source)} is not there")
    directory, name = _place(orders, target, os.path.basename(os.path.abspath(source)))
    reader, writer = os.pipe()

    def pack() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as stream:
            _pack(stream, source, name)

    def unpack() -> RunResult:
        # Closed when nobody reads any more: who packs ends by that.
        with os.fdopen(reader, "rb"):
            return _run(orders, ("tar", "-x", "-o", "-f", "-", "-C", directory), stdin=reader)

    _checked(_beside(pack, unpack), target)


def get(orders: Orders, source: str, target: str) -> None:
    """Copy a file or a tree of the container's to `target` on the host, as cp -r does; what is
    there already is not overwritten.

    Raises:
        OcisbxError: it cannot be read, or not be written there, or is not taken: see above.
    """
    path = posixpath.normpath(posixpath.join("/", check_text(source, "a path")))
    parent, base = posixpath.split(path)
    if not base:
        raise ConfigError("a whole root is not copied", remedy="name a directory in it")
    into, name = os.path.split(os.path.abspath(target))
    if os.path.isdir(target):
        into, name = os.path.abspath(target), base
    reader, writer = os.pipe()
    results: list[RunResult] = []

    def pack() -> None:
        with os.fdopen(writer, "wb"):
            command = ("tar", "-c", "-f", "-", "-C", parent, "--", base)
            results.append(_run(orders, command, stdout=writer))

    def unpack() -> None:
        with os.fdopen(reader, "rb") as stream:
            _unpack(stream, into, base, name)

    try:
        _beside(pack, unpack)
    except (OSError, tarfile.TarError) as error:
        if results:
            _checked(results[0], source)
        raise OcisbxError(f"{show(source)} cannot be copied", why=str(error)) from error
    _checked(results[0], source)


def _beside(other: Callable[[], object], act: Callable[[], T]) -> T:
    """Do one thing while another thread does the other; what that raises is raised, too."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            other()
        except BaseException as error:  # noqa: BLE001 -- raised below
            raised.append(error)

    thread = threading.Thread(target=run, name="ocisbx-copying", daemon=True)
    thread.start()
    try:
        result = act()
    finally:
        thread.join()
    if raised:
        raise raised[0]
    return result


def _run(
    orders: Orders, command: tuple[str, ...], stdin: int | None = None, stdout: int | None = None
) -> RunResult:
    # Ours, not the caller's: neither his limits nor his policy are about it.
    free = orders.under(timeout_s=None, max_output_bytes=NO_CAP, commands=CommandPolicy())
    return free.run(Call(command, os.environ, stdin=stdin, stdout=stdout), audit=False)


def _place(orders: Orders, target: str, base: str) -> tuple[str, str]:
    """In which directory of the container it goes, and under which name."""
    path = posixpath.normpath(posixpath.join("/", check_text(target, "a path")))
    if path == "/" or _run(orders, ("sh", "-c", IS_DIRECTORY, "sh", path)).exit_code == 0:
        return path, base
    return posixpath.split(path)


def _checked(result: RunResult, path: str) -> None:
    """Raises OcisbxError: tar did not copy it."""
    if result.exit_code == 0:
        return
    if result.termination in (Termination.NOT_FOUND, Termination.NOT_EXECUTABLE):
        raise OcisbxError(
            "the container has no tar", remedy="-v shows it a directory of the host instead"
        )
    words = result.stderr.decode(errors="replace").strip()
    raise OcisbxError(f"{show(path)} cannot be copied", why=words[-500:] or "tar failed")


def _pack(stream: IO[bytes], source: str, name: str) -> None:
    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        if member.isdir():
            # A tar that is uid 0 without its capabilities could not write into what is closed.
            member.mode |= 0o700
        return member

    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        archive.add(source, name, filter=owned)


def _unpack(stream: IO[bytes], directory: str, base: str, name: str) -> None:
    """Create what the stream holds below `directory`, its first name replaced by `name`."""
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    modes: list[tuple[list[str], int]] = []
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                first, *rest = _parts(member.name) or [""]
                if first != base:
                    raise _refused(member, "it is not what was asked for")
                _create(root, [name, *rest], archive, member)
                if member.isdir():
                    modes.append(([name, *rest], member.mode & MODE))
        # Last, and from below: a directory may be one that cannot be written.
        for parts, mode in reversed(modes):
            with _entered(root, parts) as inside:
                os.fchmod(inside, mode | 0o700)
    finally:
        os.close(root)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _refused(member: tarfile.TarInfo, why: str) -> OcisbxError:
    return OcisbxError(f"{show(member.name)} is not taken out of the container", why=why)


def _create(root: int, parts: list[str], archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    if ".." in parts or member.name.startswith("/"):
        raise _refused(member, "its path leads out of the tree")
    with _entered(root, parts[:-1]) as parent:
        if member.isdir():
            with contextlib.suppress(FileExistsError):
                os.mkdir(parts[-1], 0o700, dir_fd=parent)
            os.close(os.open(parts[-1], ENTER, dir_fd=parent))
        elif member.isreg():
            data = archive.extractfile(member)
            assert data is not None
            _write(parent, parts[-1], data, member.mode & MODE)
        elif member.issym():
            _check_link(parts, member)
            os.symlink(member.linkname, parts[-1], dir_fd=parent)
        elif member.islnk():
            _copy(root, parts[:1] + _parts(member.linkname)[1:], parent, parts[-1], member)
        else:
            raise _refused(member, "it is a device, a pipe or a socket")


@contextlib.contextmanager
def _entered(root: int, parts: list[str]) -> Iterator[int]:
    """A descriptor of the directory, entered step by step through no link."""
    inside = os.dup(root)
    try:
        for part in parts:
            below = os.open(part, ENTER, dir_fd=inside)
            os.close(inside)
            inside = below
        yield inside
    finally:
        os.close(inside)


def _write(parent: int, name: str, data: IO[bytes], mode: int) -> None:
    with os.fdopen(os.open(name, NEW, 0o600, dir_fd=parent), "wb") as file:
        shutil.copyfileobj(data, file)
        os.fchmod(file.fileno(), mode | stat.S_IRUSR)


def _copy(root: int, source: list[str], parent: int, name: str, member: tarfile.TarInfo) -> None:
    """A second name of a file that came before is a copy of it."""
    if ".." in source:
        raise _refused(member, "its path leads out of the tree")
    with _entered(root, source[:-1]) as inside:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(source[-1], flags, dir_fd=inside), "rb") as data:
            if not stat.S_ISREG(os.fstat(data.fileno()).st_mode):
                raise _refused(member, "it is a name of what is no file")
            _write(parent, name, data, member.mode & MODE)


def _check_link(parts: list[str], member: tarfile.TarInfo) -> None:
    """A link may point anywhere within the tree, whose top is the first of the parts."""
    if member.linkname.startswith("/"):
        raise _refused(member, f"it is a link to {show(member.linkname)}")
    depth = len(parts) - 2
    for part in member.linkname.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            raise _refused(member, f"it is a link to {show(member.linkname)}")
