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
import shutil
import stat
from typing import TYPE_CHECKING

from ocisbx.bundle.owner import OWNER_FILE, Owner
from ocisbx.bundle.view import init_bytes, make_nodes, shared_view, write_file
from ocisbx.errors import BundleError
from ocisbx.places import ensure

if TYPE_CHECKING:
    from ocisbx.plan import Plan, RootNode

CONFIG_FILE = "config.json"
INIT_FILE = "init"
ROOT_DIRECTORY = "rootfs"
LOG_FILE = "runtime.log"


class BundleDirectory:
    """One bundle on disk; `remove()` takes away all of it, whatever a payload left there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._own: list[str] = []

    @property
    def log(self) -> str:
        return f"{self.path}/{LOG_FILE}"

    def create(self, mode: int) -> None:
        """Make the directory itself; its parent is made and checked first.

        Raises:
            BundleError: it exists already, or cannot be made.
        """
        parent = os.path.dirname(self.path)
        ensure(os.path.dirname(parent))
        ensure(parent)
        try:
            os.mkdir(self.path, mode)
            os.chmod(self.path, mode)
        except OSError as error:
            raise _cannot("make", self.path, error) from error

    def own(self, owner: Owner) -> None:
        """Say whose it is, before anything else is in it: a driver that dies from here on leaves
        something that `gc` understands. Raises BundleError."""
        self._write(OWNER_FILE, owner.to_json().encode(), 0o600)

    def make_root(self, plan: Plan) -> str:
        """Provide the container's root; returns config.json's `root.path`. Raises BundleError."""
        if plan.root_directory is not None:
            self._write(INIT_FILE, init_bytes(), 0o755)
            return plan.root_directory
        if plan.share_root and (shared := shared_view(plan.nodes)) is not None:
            return shared
        self.make_own_root(plan.nodes)
        return ROOT_DIRECTORY

    def make_own_root(self, nodes: tuple[RootNode, ...]) -> None:
        """A root of this bundle's own. Raises BundleError."""
        path = f"{self.path}/{ROOT_DIRECTORY}"
        try:
            os.mkdir(path, 0o755)
            os.chmod(path, 0o755)  # noqa: S103 -- a root; its parent is closed to others
            make_nodes(path, nodes)
        except OSError as error:
            raise _cannot("write", self.path, error) from error

    def configure(self, config: str) -> None:
        """Write config.json. Raises BundleError."""
        self._write(CONFIG_FILE, config.encode(), 0o600)

    def remove(self) -> None:
        """Delete the bundle; silent when it is gone.

        The usual few files are deleted by name; only where more is left (a runtime's state, a root
        of its own) is the tree walked.

        Raises:
            BundleError: something in it cannot be deleted.
        """
        try:
            for path in (*self._own, self.log):
                os.unlink(path)
            os.rmdir(self.path)
        except OSError:
            remove_tree(self.path)
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
    try:
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


def _cannot(verb: str, path: str, error: OSError) -> BundleError:
    return BundleError(
        f"cannot {verb} the bundle {path}",
        why=f"{error.filename or path}: {error.strerror}",
        remedy="free some space there, or set XDG_RUNTIME_DIR to a directory of your own",
    )
