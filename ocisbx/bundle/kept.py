"""A bundle that is kept: a directory of the caller's that works without ocisbx.

config.json     what the runtime is told; root.path and the init's source are relative to it
rootfs/         the container's root, where it is ours to make; the init lies in it
init            the init, where the root is a writable directory of the caller's
sandbox.toml    what was asked for
owner.json      who made it, for which runtime, and the command
covers/         what the path policy mounts over names
state/          the runtime's own directory, while `bundle rerun`'s command runs
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ocisbx.bundle.covers import COVERS, make_covers
from ocisbx.bundle.directory import (
    CONFIG_FILE,
    INIT_FILE,
    ROOT_DIRECTORY,
    BundleDirectory,
    remove_tree,
)
from ocisbx.bundle.owner import OWNER_FILE, Owner, read_regular
from ocisbx.bundle.view import init_bytes, write_file
from ocisbx.errors import BundleError, ConfigError
from ocisbx.values import check_text, show

if TYPE_CHECKING:
    from ocisbx.plan import Plan

SANDBOX_FILE = "sandbox.toml"
STATE_DIRECTORY = "state"


def new_directory(given: str, mode: int) -> tuple[str, bool]:
    """Make the directory for a kept bundle; its absolute path, and whether it was made now.

    Raises:
        ConfigError: it is a file, or a directory that is not empty.
        BundleError: it cannot be made.
    """
    path = os.path.abspath(check_text(given, "a directory"))
    try:
        os.mkdir(path, mode)
        os.chmod(path, mode)
    except FileExistsError:
        if not os.path.isdir(path) or os.listdir(path):
            state = "is not empty" if os.path.isdir(path) else "is not a directory"
            raise ConfigError(
                f"{show(path)} {state}", remedy="give a directory that does not exist yet"
            ) from None
        return path, False
    except OSError as error:
        raise BundleError(
            f"cannot make {show(path)}",
            why=error.strerror or "",
            remedy="make its parent first, or choose another place",
        ) from error
    return path, True


def write_kept(
    given: str, plan: Plan, *, config: dict[str, Any], owner: Owner, sandbox: str
) -> str:
    """Write a whole kept bundle, or nothing; returns its absolute path.

    Raises:
        ConfigError: the directory is in use.
        BundleError: it cannot be written.
    """
    # A mapped user has to cross it to its root; its files are the owner's alone.
    path, made = new_directory(given, 0o711 if plan.owner is not None else 0o700)
    try:
        if plan.root_directory is not None:
            write_file(f"{path}/{INIT_FILE}", init_bytes(), 0o755)
        else:
            BundleDirectory(path).make_own_root(plan)
        if plan.covers:
            os.mkdir(f"{path}/{COVERS}", 0o755)
            make_covers(f"{path}/{COVERS}")
        pretty = json.dumps(config, ensure_ascii=False, indent=2) + "\n"
        for name, text in (
            (CONFIG_FILE, pretty),
            (SANDBOX_FILE, sandbox),
            (OWNER_FILE, owner.to_json() + "\n"),
        ):
            write_file(f"{path}/{name}", text.encode(), 0o600)
    except (OSError, BundleError) as error:
        for name in (CONFIG_FILE, SANDBOX_FILE, OWNER_FILE, INIT_FILE):
            if os.path.lexists(f"{path}/{name}"):
                os.unlink(f"{path}/{name}")
        for tree in [path] if made else [f"{path}/{ROOT_DIRECTORY}", f"{path}/{COVERS}"]:
            remove_tree(tree)
        raise BundleError(
            f"cannot write the bundle {show(path)}",
            why=error.why if isinstance(error, BundleError) else error.strerror or "",
            remedy="free some space there, or choose another place",
        ) from error
    return path


def read_config(path: str) -> Any:  # noqa: ANN401 -- whatever JSON the file holds
    """The parsed config.json of the bundle at `path`.

    Raises:
        BundleError: there is none, or it is not JSON.
    """
    file_path = f"{path}/{CONFIG_FILE}"
    try:
        return json.loads(read_regular(file_path))
    except OSError as error:
        raise BundleError(
            f"{show(file_path)} cannot be read",
            why=error.strerror or "",
            remedy="give the directory of a bundle, as `ocisbx bundle make -o DIR` makes one",
        ) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{show(file_path)} is not JSON", why=str(error)) from error
