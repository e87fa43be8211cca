"""The root that we make for a container: a skeleton of mount points, links and small files.

A read-only root is the same for every call of a plan, so it is made once for each user and kept
among the things that can be made again (measured: a rootfs of one's own costs 3 to 10 ms a call on
ext4, most of it for deleting directories that were mount points). Its name is the hash of its
content, and of the state of what it has copies of; it is put in place whole, and never written
again: containers see it read-only.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from functools import cache
from typing import TYPE_CHECKING

from ocisbx.errors import OcisbxError
from ocisbx.init import init_path
from ocisbx.places import ensure, find_places
from ocisbx.plan import digest, hash_of
from ocisbx.steady import copy, survey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.plan import RootNode

# config.json's process.args[0]; a file of the root itself wherever the root is ours.
INIT_NODE = "/.ocisbx/init"

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

KEPT_VIEWS = 64
# A view that was used within this time may be a live container's root.
IN_USE_S = 7 * 86400.0
TOUCH_S = 3600.0


def payload_argv(args: list[str]) -> list[str]:
    """The command behind the init's own words in process.args (ocisbx-init(7)); empty where they
    are not the init's."""
    words = args[1:]
    while words[:1] == ["-w"] and words[1:] and words[1].startswith("/"):
        words = words[2:]
    return words[1:] if args[:1] == [INIT_NODE] and words[:1] == ["--"] else []


@cache
def init_bytes() -> bytes:
    """The init for this machine, read once. Raises RuntimeMissing when it was not built."""
    with open(init_path(), "rb") as file:
        return file.read()


def make_nodes(root: str, nodes: Iterable[RootNode], owner: tuple[int, int] | None = None) -> None:
    """Make the entries in the existing directory `root`, parents first; `owner` (uid, gid) where
    the payload is somebody else outside.

    Raises:
        OSError: a full disk, a read-only file system, an entry that exists.
    """
    for node in nodes:
        path = root + node.path
        if node.kind == "directory":
            os.mkdir(path, node.mode)
            # Whatever the caller's umask; and mkdir(2) promises nothing about the sticky bit.
            os.chmod(path, node.mode)
        elif node.kind == "symlink":
            os.symlink(node.content, path)
        elif node.kind == "copy":
            copy(node.content, path)
        else:
            is_init = node.path == INIT_NODE
            write_file(path, init_bytes() if is_init else node.content.encode(), node.mode)
        if owner is not None:
            os.lchown(path, *owner)


def write_file(path: str, data: bytes, mode: int) -> None:
    """A new file with exactly this mode. Raises OSError."""
    descriptor = os.open(path, NEW, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def shared_view(nodes: tuple[RootNode, ...]) -> str | None:
    """The directory that holds these nodes, made if it is not there; None where none can be kept
    (a cache that is read-only, full, or on a file system from which nothing can be executed)."""
    path = f"{find_places().cache}/views/{_digest(nodes)}"
    try:
        info = os.lstat(path)
        if info.st_uid != os.geteuid() or not stat.S_ISDIR(info.st_mode):
            # In a cache that others can write (XDG_CACHE_HOME=/tmp), somebody else was first.
            return None
        if time.time() - info.st_mtime > TOUCH_S:
            os.utime(path)
    except FileNotFoundError:
        try:
            _publish(path, nodes)
        except (OSError, OcisbxError):
            return None
    except OSError:
        return None
    return path


@cache
def _digest(nodes: tuple[RootNode, ...]) -> str:
    texts = (text for n in nodes for text in (n.kind, n.path, n.content, f"{n.mode:o}", n.looked))
    return digest([init_bytes(), *(text.encode() for text in texts)])


def _publish(path: str, nodes: tuple[RootNode, ...]) -> None:
    parent = os.path.dirname(path)
    ensure(os.path.dirname(parent))
    ensure(parent)
    if os.statvfs(parent).f_flag & os.ST_NOEXEC:
        raise OcisbxError(f"{parent} lies on a file system mounted noexec")
    draft = f"{parent}/.{os.urandom(8).hex()}"
    os.mkdir(draft, 0o755)
    os.chmod(draft, 0o755)  # noqa: S103 -- a root; its parent is closed to others
    try:
        make_nodes(draft, nodes)
        _check_copies(nodes)
        os.rename(draft, path)
    except (OSError, OcisbxError):
        _remove(draft)
        # Somebody else was first: theirs has the same content.
        if not os.path.isdir(path):
            raise
    # Another process may publish, or prune, at this moment.
    with contextlib.suppress(OSError):
        prune_views(parent)


def _check_copies(nodes: Iterable[RootNode]) -> None:
    """Its name says of what state of the host's files a view has copies."""
    for node in nodes:
        if node.kind == "copy" and hash_of(survey(node.content) or ()) != node.looked:
            raise OcisbxError(f"{node.content} changed while it was copied")


def prune_views(parent: str) -> None:
    """Forget views that nobody has used for long; never one that a container may have as root."""
    with os.scandir(parent) as entries:
        views = sorted(entries, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
    limit = time.time() - IN_USE_S
    for entry in views[:-KEPT_VIEWS]:
        if entry.stat(follow_symlinks=False).st_mtime < limit:
            _remove(entry.path)


def _remove(path: str) -> None:
    import shutil  # noqa: PLC0415 -- 2 ms of every start, for what is rare

    shutil.rmtree(path, ignore_errors=True)
