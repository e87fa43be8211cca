"""Names that callers give to containers: one file each, holding the container's id."""

from __future__ import annotations

import contextlib
import os

from ocisbx.bundle.owner import read_owner
from ocisbx.errors import BundleError, InvalidState
from ocisbx.places import ensure, find_places
from ocisbx.values import check_name


def names_directory() -> str:
    return f"{find_places().runtime}/names"


def claim_name(name: str, container_id: str) -> None:
    """Bind `name` to the container, unless a live one has it.

    Raises:
        ConfigError: it is not a name.
        InvalidState: a live container has it.
    """
    check_name(name)
    ensure(find_places().runtime)
    path = f"{ensure(names_directory())}/{name}"
    for _ in range(2):
        try:
            descriptor = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except FileExistsError:
            holder = lookup_name(name)
            if holder is not None and _alive(holder):
                raise InvalidState(
                    f"the name {name} is in use by {holder}",
                    remedy="choose another name, or wait for that container's end (ocisbx ps)",
                ) from None
            release_name(name)
            continue
        os.write(descriptor, container_id.encode())
        os.close(descriptor)
        return
    raise InvalidState(f"the name {name} is in use")


def lookup_name(name: str) -> str | None:
    """The id that `name` stands for."""
    try:
        with open(f"{names_directory()}/{name}", encoding="ascii") as file:
            return file.read() or None
    except (OSError, ValueError):
        return None


def release_name(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{names_directory()}/{name}")


def _alive(container_id: str) -> bool:
    try:
        return read_owner(f"{find_places().bundles}/{container_id}").alive()
    except BundleError:
        return False
