"""owner.json: whose a bundle is, so that others can tell a live one from a leftover.

A pid alone is reused; with its start time and the boot's id it names one process for good.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from ocisbx.bundle.reading import read_regular
from ocisbx.errors import BundleError
from ocisbx.probe.processes import boot_id, start_time

OWNER_FILE = "owner.json"


class Owner(NamedTuple):
    """The driver of one call, and what somebody else needs to end its container."""

    id: str
    name: str | None
    pid: int
    start_time: int
    boot_id: str
    created_at: str
    command: list[str]
    workdir: str
    runtime_name: str
    runtime_path: str
    runtime_version: str
    cell: str
    cgroup: bool

    def alive(self) -> bool:
        """True while the driver itself runs."""
        return self.boot_id == boot_id() and start_time(self.pid) == self.start_time

    def to_json(self) -> str:
        return json.dumps(self._asdict(), ensure_ascii=False)


def read_owner(bundle: str) -> Owner:
    """The record of the bundle at this path.

    Raises:
        BundleError: there is none (yet), it is not readable, or it is somebody else's.
    """
    path = f"{bundle}/{OWNER_FILE}"
    try:
        if os.stat(path).st_uid != os.geteuid():
            raise BundleError(f"{path} belongs to somebody else")
        owner = Owner(**json.loads(read_regular(path)))
        _check_types(owner)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BundleError(f"{path} is not an owner's record", why=str(error)) from error
    return owner


def _check_types(owner: Owner) -> None:
    fields = owner._asdict()
    numbers, flags = {"pid", "start_time"}, {"cgroup"}
    texts = fields.keys() - numbers - flags - {"command", "name"}
    sound = (
        all(type(fields[name]) is int for name in numbers)
        and all(isinstance(fields[name], str) for name in texts)
        and isinstance(owner.name, str | None)
        and isinstance(owner.command, list)
        and all(isinstance(word, str) for word in owner.command)
    )
    if not sound:
        raise TypeError("a field is of the wrong type")


def draft_name(owner: Owner, name: str) -> str:
    """What a bundle is called while it has no record yet."""
    return f".{owner.pid}.{owner.start_time}.{name}"


def draft_alive(name: str) -> bool | None:
    """Whether the maker of this draft lives; None: it is not a draft's name."""
    parts = name.split(".")
    if len(parts) != 4 or parts[0] or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return start_time(int(parts[1])) == int(parts[2])
