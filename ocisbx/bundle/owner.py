"""owner.json: whose a bundle is, so that others can tell a live one from a leftover.

A pid alone is reused; with its start time and the boot's id it names one process for good.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, NamedTuple

from ocisbx.errors import BundleError
from ocisbx.probe.processes import boot_id, pid_namespace, start_time

OWNER_FILE = "owner.json"
# config.json of a container with thousands of mounts has a few megabytes.
READ_LIMIT_BYTES = 16 << 20

_encode = json.JSONEncoder(ensure_ascii=False).encode


class Owner(NamedTuple):
    """The driver of one call, and what somebody else needs to end its container."""

    id: str
    name: str | None
    pid: int
    start_time: int
    pid_namespace: int
    boot_id: str
    created_at: str
    command: list[str]
    workdir: str
    runtime_name: str
    runtime_path: str
    runtime_version: str
    runtime_args: list[str]
    cell: str
    # The directory of its cgroup; empty: it has none of its own.
    cgroup: str
    # Plan.policy().
    policy: dict[str, Any]

    def alive(self) -> bool:
        """True while the driver itself runs, and where that cannot be seen from here."""
        if self.boot_id != boot_id():
            return False
        return runs(self.pid, self.start_time, self.pid_namespace)

    def to_json(self) -> str:
        return _encode(self._asdict())


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


def read_regular(path: str) -> str:
    """The text of a file of a bundle, which a payload may have written: this
    never waits for a pipe, and never reads without end.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large.
        ValueError: it is not UTF-8.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        data = file.read(READ_LIMIT_BYTES + 1)
    if len(data) > READ_LIMIT_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data.decode()


def _check_types(owner: Owner) -> None:
    fields: dict[str, Any] = owner._asdict()
    numbers = {"pid", "start_time", "pid_namespace"}
    lists = fields["command"], fields["runtime_args"]
    texts = fields.keys() - numbers - {"command", "name", "policy", "runtime_args"}
    sound = all(type(fields[name]) is int for name in numbers)
    sound = sound and all(isinstance(fields[name], str) for name in texts)
    sound = sound and isinstance(fields["name"], str | None)
    sound = sound and isinstance(fields["policy"], dict)
    sound = sound and all(isinstance(words, list) for words in lists)
    if not (sound and all(isinstance(word, str) for words in lists for word in words)):
        raise TypeError("a field is of the wrong type")


def draft_name(pid: int, started: int, namespace: int, name: str) -> str:
    """What a directory is called while it has no record of its owner yet."""
    return f".{pid}.{started}.{namespace}.{name}"


def draft_alive(name: str) -> bool | None:
    """Whether the maker of this draft lives; None: it is not a draft's name."""
    parts = name.split(".")
    if len(parts) != 5 or parts[0] or not all(part.isdecimal() for part in parts[1:4]):
        return None
    return runs(*map(int, parts[1:4]))


def runs(pid: int, started: int, namespace: int) -> bool:
    """Whether that process runs; one of another pid namespace is not ours to judge, so it does."""
    return namespace != pid_namespace() or start_time(pid) == started
