"""Names that callers give to containers: one file each, holding the container's id.

Who claims, releases or collects names holds the directory's lock: a name has one holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from ocisbx.bundle.owner import read_owner
from ocisbx.bundle.record import read_record, recorded_holder
from ocisbx.errors import BundleError, InvalidState
from ocisbx.places import ensure, find_places, locked, trusted
from ocisbx.values import check_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


def names_directory() -> str:
    return f"{find_places().runtime}/names"


def claim_name(name: str, container_id: str, make: Callable[[], object] = lambda: None) -> None:
    """Bind `name` to the container, whose bundle is there already, unless a live one has it. `make`
    is done before anybody else can ask for it: it makes what keeps the name.

    Raises:
        ConfigError: it is not a name.
        InvalidState: a live container has it.
        OcisbxError: the directory of names cannot be made.
    """
    check_name(name)
    ensure(find_places().runtime)
    path = f"{ensure(names_directory())}/{name}"
    with _alone():
        holder = _holder(name)
        if holder is not None:
            raise InvalidState(
                f"the name {name} is in use by {holder}",
                remedy="choose another name, or wait for that container's end (ocisbx ps -a); "
                "one in the background has its name until `ocisbx rm`",
            )
        make()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, container_id.encode())
        finally:
            os.close(descriptor)


def lookup_name(name: str) -> str | None:
    """The id that `name` stands for."""
    if not trusted(find_places().runtime):
        return None
    try:
        with open(f"{names_directory()}/{name}", encoding="ascii") as file:
            return file.read() or None
    except (OSError, ValueError):
        return None


def release_name(name: str, container_id: str) -> None:
    """Let go of the name, where this container still has it."""
    with _alone():
        if lookup_name(name) == container_id:
            os.unlink(f"{names_directory()}/{name}")


def forget_names() -> None:
    """Remove the names of containers that have neither bundle nor record any more."""
    if not trusted(find_places().runtime) or not os.path.isdir(names_directory()):
        return
    with _alone():
        for name in os.listdir(names_directory()):
            holder = lookup_name(name)
            if holder is None or not _kept(holder):
                os.unlink(f"{names_directory()}/{name}")


def _kept(holder: str) -> bool:
    return os.path.isdir(f"{find_places().bundles}/{holder}") or read_record(holder) is not None


def _alone() -> AbstractContextManager[None]:
    return locked(names_directory(), fcntl.LOCK_EX)


def _holder(name: str) -> str | None:
    """The id of the container that has this name and may keep it."""
    holder = lookup_name(name)
    return holder if holder is not None and _alive(holder) else recorded_holder(name)


def _alive(container_id: str) -> bool:
    if read_record(container_id) is not None:
        return True
    try:
        return read_owner(f"{find_places().bundles}/{container_id}").alive()
    except BundleError:
        return False
