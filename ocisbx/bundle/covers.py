"""What the path policy mounts over a name (container/policy.py): four things that hold nothing.

They never change and nobody can write them, so the containers of a user share them; a kept bundle
has its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from ocisbx.bundle.view import write_file
from ocisbx.places import ensure, find_places, locked

COVERS = "covers"

# Name: content (None: a directory), mode. Nobody but who has capabilities lists or reads the
# hidden ones, and would find nothing.
ENTRIES: dict[str, tuple[str | None, int]] = {
    "empty": (None, 0o755),
    "dot": (".", 0o644),
    "hidden": (None, 0o000),
    "hidden-file": ("", 0o000),
}


def make_covers(directory: str) -> None:
    """Fill a directory of ours, where somebody else has not. Raises OSError."""
    for name, (content, mode) in ENTRIES.items():
        path = f"{directory}/{name}"
        with contextlib.suppress(FileExistsError):
            if content is None:
                os.mkdir(path, mode)
                os.chmod(path, mode)
            else:
                write_file(path, content.encode(), mode)


def shared_covers() -> dict[str, str]:
    """{name in the bundle: the directory that it is a link to}; the bundle is there already, so
    that nobody takes them away (kept_state.forget_kept_state).

    Raises:
        OcisbxError, OSError: they cannot be made.
    """
    places = find_places()
    path = f"{places.kept}/{COVERS}"
    if len(_names(path)) < len(ENTRIES):
        with locked(places.bundles, fcntl.LOCK_SH):
            ensure(places.kept)
            make_covers(ensure(path))
    return {COVERS: path}


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []
