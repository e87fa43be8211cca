"""The ephemeral bundle: everything of one call lies in one directory, and goes with it.

config.json     what the runtime is told
owner.json      whose it is
rootfs/         the container's root, where it is ours and not shared (see view.py)
init            PID 1, where the root is the caller's own directory
ID/             the runtime's state: the bundle is its --root
runtime.log     the runtime's JSON log
stdout, stderr  captures, while they are written
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from ocisbx.bundle.owner import OWNER_FILE, Owner, draft_name
from ocisbx.bundle.view import init_bytes, make_nodes, shared_view, write_file
from ocisbx.errors import BundleError
from ocisbx.places import ensure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.plan import Plan

CONFIG_FILE = "config.json"
INIT_FILE = "init"
ROOT_DIRECTORY = "rootfs"
LOG_FILE = "runtime.log"

# The names of those that this process has: 80 random bits each.
_ours: set[str] = set()


def is_ours(name: str) -> bool:
    """Whether this process has the bundle of this name: then its owner lives."""
    return name in _ours


class BundleDirectory:
    """One bundle on disk; `remove()` takes away all of it, whatever a payload left there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._own: list[str] = []

    @property
    def log(self) -> str:
        return f"{self.path}/{LOG_FILE}"

    def create(self, mode: int, owner: Owner | None = None) -> None:
        """Make the directory with the record of whose it is; its parent is checked first.

        It gets its name when the record is in it: until then the name says who is making it, so
        that `gc` understands whatever a driver leaves that dies in between.

        Raises:
            BundleError: it exists already, or cannot be made.
        """
        parent, name = os.path.split(self.path)
        ensure(os.path.dirname(parent))
        ensure(parent)
        draft = self.path if owner is None else _draft(parent, owner, name)
        try:
            os.mkdir(draft, mode)
            os.chmod(draft, mode)
        except OSError as error:
            raise _cannot("make", draft, error) from error
        if owner is None:
            return
        try:
            write_file(f"{draft}/{OWNER_FILE}", owner.to_json().encode(), 0o600)
            os.rename(draft, self.path)
        except OSError as error:
            remove_tree(draft)
            raise _cannot("write", self.path, error) from error
        _ours.add(name)
        self._own.append(f"{self.path}/{OWNER_FILE}")

    def make_root(self, plan: Plan) -> str:
        """Provide the container's root; returns config.json's `root.path`. Raises BundleError."""
        if plan.root_directory is not None:
            self._write(INIT_FILE, init_bytes(), 0o755)
            return plan.root_directory
        if plan.share_root and (shared := shared_view(plan.nodes)) is not None:
            return shared
        self.make_own_root(plan)
        return ROOT_DIRECTORY

    def make_own_root(self, plan: Plan) -> None:
        """A root of this bundle's own. Raises BundleError."""
        path = f"{self.path}/{ROOT_DIRECTORY}"
        try:
            os.mkdir(path, 0o755)
            os.chmod(path, 0o755)  # noqa: S103 -- a root; its parent is closed to others
            if plan.owner is not None:
                os.chown(path, *plan.owner)
            make_nodes(path, plan.nodes, plan.owner)
        except OSError as error:
            raise _cannot("write", self.path, error) from error

    def configure(self, config: str) -> None:
        """Write config.json. Raises BundleError."""
        self._write(CONFIG_FILE, config.encode(), 0o600)

    def link(self, links: Mapping[str, str]) -> None:
        """Make symbolic links, {name in the bundle: target}. Raises BundleError."""
        try:
            for name, target in links.items():
                os.symlink(target, f"{self.path}/{name}")
                self._own.append(f"{self.path}/{name}")
        except OSError as error:
            raise _cannot("write", self.path, error) from error

    def remove(self) -> None:
        """Delete the bundle; silent when it is gone.

        The usual few files are deleted by name; only where more is left (a runtime's state, a root
        of its own) is the tree walked.

        Raises:
            BundleError: something in it cannot be deleted.
        """
        try:
            os.unlink(self.log)
            # The record last: without it nobody knows whose the rest is.
            for path in reversed(self._own):
                os.unlink(path)
            os.rmdir(self.path)
        except OSError:
            remove_tree(self.path)
        finally:
            _ours.discard(os.path.basename(self.path))
        self._own.clear()

    def _write(self, name: str, data: bytes, mode: int) -> None:
        path = f"{self.path}/{name}"
        try:
            write_file(path, data, mode)
        except OSError as error:
            raise _cannot("write", self.path, error) from error
        self._own.append(path)


def remove_tree(path: str) -> None:
    """Delete a directory of ours with all that is in it; never follows a symlink out of it.

    Raises:
        BundleError: something in it cannot be deleted.
    """
    import shutil  # noqa: PLC0415 -- 2 ms of every start, for what is rare

    try:
        if os.path.islink(path):
            os.unlink(path)
        else:
            shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError:
        _open_up(path)
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise _cannot("delete", path, error) from error


def _open_up(path: str) -> None:
    """A payload may have left directories without write or search permission: they are ours."""
    for parent, directories, _ in os.walk(path):
        for name in [".", *directories]:
            child = os.path.join(parent, name)
            if stat.S_ISDIR(os.lstat(child).st_mode):
                os.chmod(child, 0o700)


def _draft(parent: str, owner: Owner, name: str) -> str:
    return f"{parent}/{draft_name(owner.pid, owner.start_time, owner.pid_namespace, name)}"


def _cannot(verb: str, path: str, error: OSError) -> BundleError:
    return BundleError(
        f"cannot {verb} the bundle {path}",
        why=f"{error.filename or path}: {error.strerror}",
        remedy="free some space there, or set XDG_RUNTIME_DIR to a directory of your own",
    )


# What was forked from the owner is not.
os.register_at_fork(after_in_child=_ours.clear)
