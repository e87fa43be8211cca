"""What runtimes said of themselves and how they did when tried: remembered in the process and on
disk.

A row is about one binary (path, device, inode, size, mtime, ctime); the file is about one boot of
one kernel and one version of ocisbx. Whatever is damaged, somebody else's or open to others counts
as empty: it is only ever a matter of looking again.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.errors import OcisbxError
from ocisbx.places import ensure, find_places
from ocisbx.probe.processes import boot_id
from ocisbx.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

CACHE_FILE = "runtimes.json"
READ_LIMIT_BYTES = 1 << 20
# A runtime that failed may have been helped meanwhile (a sysctl, a package): it is tried again.
FAILURE_KEPT_S = 600.0


class TrialRecord(NamedTuple):
    """How a runtime did: `words` are empty when it ran a container, else who refused, and why.

    `inside` is what the init's self-test saw, `at` when (seconds since the epoch).
    """

    words: str
    remedy: str
    wall_s: float
    at: float
    inside: Mapping[str, Any]

    def stands(self) -> bool:
        """Whether it can still be relied on."""
        return not self.words or 0 <= time.time() - self.at < FAILURE_KEPT_S


class RuntimeMemory:
    """Rows by binary; `save` writes what is new."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._changed = False
        self._rows: dict[str, dict[str, Any]] = _load(path)

    def version(self, path: str) -> tuple[str, str] | None:
        """Name and version, as `--version` told them."""
        row = self._rows.get(identity(path), {})
        said = row.get("said")
        if isinstance(said, list) and len(said) == 2 and all(isinstance(x, str) for x in said):
            return said[0], said[1]
        return None

    def put_version(self, path: str, name: str, version: str) -> None:
        self._put(path, "said", [name, version])

    def trial(self, path: str, platform: str | None) -> TrialRecord | None:
        """How the runtime did on this platform, as far as that stands."""
        row = self._rows.get(identity(path), {}).get(f"trial {platform or ''}")
        try:
            record = TrialRecord(**row) if row else None
            return record if record is not None and record.stands() else None
        except TypeError:
            return None

    def put_trial(self, path: str, platform: str | None, record: TrialRecord) -> None:
        self._put(path, f"trial {platform or ''}", record._asdict())

    def forget(self, path: str) -> None:
        """Its trials are not to be relied on any more."""
        with self._lock:
            row = self._rows.get(identity(path), {})
            for key in [key for key in row if key.startswith("trial ")]:
                del row[key]
                self._changed = True
        self.save()

    def save(self) -> None:
        """Write it whole or not at all; a memory that cannot be written is no error."""
        with self._lock:
            if not self._changed:
                return
            self._changed = False
            text = json.dumps({"of": _circumstances(), "rows": self._rows})
        temporary = f"{self._path}.{os.urandom(8).hex()}"
        try:
            ensure(os.path.dirname(self._path))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self._path)
        except (OSError, OcisbxError):
            return

    def _put(self, path: str, key: str, value: object) -> None:
        with self._lock:
            self._rows.setdefault(identity(path), {})[key] = value
            self._changed = True


_memories: dict[str, RuntimeMemory] = {}


def runtime_memory() -> RuntimeMemory:
    """This process's memory of the caller's cache directory."""
    path = f"{find_places().cache}/{CACHE_FILE}"
    if path not in _memories:
        _memories[path] = RuntimeMemory(path)
    return _memories[path]


def identity(path: str) -> str:
    """A name for the binary at `path`, which another one there does not have."""
    try:
        info = os.stat(path)
    except OSError:
        return path
    parts = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    return f"{path} {' '.join(map(str, parts))}"


def _circumstances() -> list[str]:
    return [VERSION, os.uname().release, boot_id()]


def _load(path: str) -> dict[str, dict[str, Any]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        info = os.fstat(descriptor)
        ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
        if not ours or info.st_mode & 0o077:
            return {}
        data = os.read(descriptor, READ_LIMIT_BYTES)
    except OSError:
        return {}
    finally:
        os.close(descriptor)
    try:
        document = json.loads(data)
        rows = document["rows"] if document["of"] == _circumstances() else {}
        return {
            key: {name: value for name, value in dict(row).items() if isinstance(name, str)}
            for key, row in rows.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
