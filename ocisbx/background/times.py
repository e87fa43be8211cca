"""When how much had been written: what `logs --since` looks up.

The file `times` has an entry for the first output of each second: seconds since boot, and the sizes
of both captures at that moment. Nothing else knows the age of a byte.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import NamedTuple

from ocisbx.bundle.record import boot_s
from ocisbx.capture import read_at
from ocisbx.errors import OcisbxError

TIMES_FILE = "times"
STREAMS = ("stdout", "stderr")
ENTRY = struct.Struct("<dQQ")
EVERY_S = 1.0
# Of entries: 24 bytes a second.
READ_LIMIT_BYTES = 1 << 28


class Moment(NamedTuple):
    """The captures' sizes when something came at `boot_s`, without that."""

    boot_s: float
    stdout_bytes: int
    stderr_bytes: int


class TimesWriter:
    """Notes when output comes; a full disk ends the notes, nothing else."""

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}/{TIMES_FILE}"
        self._sizes = dict.fromkeys(STREAMS, 0)
        self._due_s = 0.0

    def took(self, stream: str, size: int) -> None:
        """So many bytes of this stream are being captured now."""
        now = boot_s()
        if now >= self._due_s:
            self._due_s = now + EVERY_S
            with contextlib.suppress(OSError):
                self._append(ENTRY.pack(now, *self._sizes.values()))
        self._sizes[stream] += size

    def _append(self, entry: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.write(descriptor, entry)
        finally:
            os.close(descriptor)


def read_times(directory: str) -> list[Moment]:
    """The entries, in order."""
    try:
        data = read_at(f"{directory}/{TIMES_FILE}", 0, READ_LIMIT_BYTES)
    except OcisbxError:
        return []
    whole = len(data) - len(data) % ENTRY.size
    return [Moment(*fields) for fields in ENTRY.iter_unpack(data[:whole])]


def offsets_since(moments: list[Moment], since_boot_s: float) -> dict[str, int] | None:
    """From where on each capture holds what came at this time and later, up to a second more; None:
    nothing came since."""
    found: Moment | None = None
    for moment in moments:
        # What an entry begins came within a second: what is younger has an entry of its own.
        if moment.boot_s + EVERY_S > since_boot_s:
            found = moment
            break
    if found is None:
        return None
    return {"stdout": found.stdout_bytes, "stderr": found.stderr_bytes}
