"""What killed supervisors leave besides what `backends.gc` knows: sockets, and half a directory.

The record and the captures of a container are not among it: they stay until it is removed.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ocisbx.backends import gc
from ocisbx.background.packets import connect
from ocisbx.bundle.directory import remove_tree
from ocisbx.bundle.owner import draft_alive
from ocisbx.errors import InvalidState
from ocisbx.places import find_places, trusted

if TYPE_CHECKING:
    from ocisbx.backends.gc import Leftover


def collect() -> list[Leftover]:
    """Remove every leftover of this user; returns the bundles that were removed.

    Raises:
        BundleError: something cannot be deleted.
    """
    removed = gc.collect()
    places = find_places()
    for directory in (places.containers, places.controls):
        for name in os.listdir(directory) if trusted(directory) else ():
            if directory == places.containers:
                if draft_alive(name) is False:
                    remove_tree(f"{directory}/{name}")
            elif draft_alive(name) is False or (name[0] != "." and not _listens(name)):
                forget_control(name)
    return removed


def _listens(container_id: str) -> bool:
    try:
        connection = connect(container_id)
    except InvalidState:
        # It is there, and does not answer: stopped, or busy.
        return True
    if connection is None:
        return False
    connection.close()
    return True


def forget_control(container_id: str) -> None:
    """Remove the socket of a supervisor that has ended."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{find_places().controls}/{container_id}")
