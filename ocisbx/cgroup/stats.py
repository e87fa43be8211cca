"""What a cgroup and all below it have used, from the files of cgroup v2 (cgroup-v2.rst).

`None` is what this kernel, or a cgroup without the controller, does not count; 0 is a measured 0.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Parser = Callable[[bytes], Mapping[bytes, int | None]]
    Source = tuple[str, Parser, tuple[tuple[bytes, str], ...]]

# One page holds each of these files, except io.stat on hosts with dozens of devices.
CHUNK_BYTES = 1 << 14
LIMIT_BYTES = 1 << 20
# The kernel's counters have 64 bits; int() of a longer text costs time without bound.
DIGITS = 20


class Counters(NamedTuple):
    """Totals since the cgroup was made; `*_current` as of now, `*_peak` the highest ever."""

    cpu_user_usec: int | None = None
    cpu_system_usec: int | None = None
    cpu_throttled_usec: int | None = None
    memory_current_bytes: int | None = None
    memory_peak_bytes: int | None = None
    pids_current: int | None = None
    pids_peak: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    oom_kills: int | None = None
    pids_limit_hits: int | None = None
    pressure_cpu_usec: int | None = None
    pressure_memory_usec: int | None = None
    pressure_io_usec: int | None = None


def read_counters(path: str, sources: Sequence[Source]) -> Counters:
    """Counters of the cgroup in directory `path`, all but `sources` (HITS, TOTALS or LIVE) None; so
    are all where it is not there (any more)."""
    return parse_counters(read_texts(path, sources), sources)


def read_texts(path: str, sources: Sequence[Source]) -> list[bytes | None]:
    """What `parse_counters` understands, as of now; of each file None where it cannot be read."""
    try:
        directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return [None] * len(sources)
    try:
        return [_read(directory, name) for name, _, _ in sources]
    finally:
        os.close(directory)


def parse_counters(texts: Sequence[bytes | None], sources: Sequence[Source]) -> Counters:
    """What the files of `sources` told when their texts were these."""
    found: dict[str, int | None] = {}
    for text, (_, parse, fields) in zip(texts, sources, strict=True):
        values = {} if text is None else parse(text)
        for key, field in fields:
            found[field] = values.get(key)
    return Counters(**found)


def read_pids_limit_hits(path: str) -> int | None:
    """How often a fork was refused for the limit; before Linux 6.11 the kernel counts it in the
    cgroup of the task that forked, wherever above the limit stands."""
    return _flat_keyed(_read(None, f"{path}/pids.events") or b"").get(b"max")


def read_limit(path: str, name: str) -> int | None:
    """The number in a file as memory.max or pids.max; None: `max`, or there is no such file."""
    return _single(_read(None, f"{path}/{name}") or b"").get(b"")


def _read(directory: int | None, name: str) -> bytes | None:
    """The file's text; None where there is none, or its cgroup vanished, or PSI is off.

    Those are ENOENT, ENODEV and EOPNOTSUPP; whatever else keeps us from reading is as good.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError:
        return None
    try:
        text = chunk = os.read(descriptor, CHUNK_BYTES)
        # kernfs shows a file that fits into the buffer at once, so a short read is its end.
        while len(chunk) == CHUNK_BYTES and len(text) < LIMIT_BYTES:
            chunk = os.read(descriptor, CHUNK_BYTES)
            text += chunk
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return text


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= DIGITS else None


def _single(text: bytes) -> Mapping[bytes, int | None]:
    return {b"": _number(text.strip())}


def _flat_keyed(text: bytes) -> Mapping[bytes, int | None]:
    """`KEY VALUE` a line."""
    words = (line.split(b" ") for line in text.split(b"\n"))
    return {pair[0]: _number(pair[1]) for pair in words if len(pair) == 2}


def _all_devices(text: bytes) -> Mapping[bytes, int | None]:
    """io.stat, `MAJOR:MINOR rbytes=N wbytes=N ...` a line: the sums over the devices.

    No device: nothing was read or written yet. One number that cannot be understood leaves the sum
    unknown.
    """
    sums: dict[bytes, int | None] = {b"rbytes": 0, b"wbytes": 0}
    for word in text.split():
        key, equals, value = word.partition(b"=")
        if equals and (total := sums.get(key)) is not None:
            number = _number(value)
            sums[key] = None if number is None else total + number
    return sums


def _stall(text: bytes) -> Mapping[bytes, int | None]:
    """A *.pressure file: of `some avg10=... total=N` the total in microseconds."""
    for line in text.split(b"\n"):
        kind, _, rest = line.partition(b" ")
        if kind == b"some":
            return {b"some": _number(rest.rpartition(b"total=")[2])}
    return {}


# File, how it is read, and which of its keys is which counter.
# What a verdict asks for. Not memory.events.local: what kills may happen below, the sum is what a
# caller asks for.
HITS: tuple[Source, ...] = (
    ("memory.events", _flat_keyed, ((b"oom_kill", "oom_kills"),)),
    ("pids.events", _flat_keyed, ((b"max", "pids_limit_hits"),)),
)
# What a result tells.
TOTALS: tuple[Source, ...] = (
    *HITS,
    (
        "cpu.stat",
        _flat_keyed,
        (
            (b"user_usec", "cpu_user_usec"),
            (b"system_usec", "cpu_system_usec"),
            (b"throttled_usec", "cpu_throttled_usec"),
        ),
    ),
    ("memory.peak", _single, ((b"", "memory_peak_bytes"),)),
    ("pids.peak", _single, ((b"", "pids_peak"),)),
    ("io.stat", _all_devices, ((b"rbytes", "io_read_bytes"), (b"wbytes", "io_write_bytes"))),
    ("cpu.pressure", _stall, ((b"some", "pressure_cpu_usec"),)),
    ("memory.pressure", _stall, ((b"some", "pressure_memory_usec"),)),
    ("io.pressure", _stall, ((b"some", "pressure_io_usec"),)),
)
# What is shown of one that runs.
LIVE: tuple[Source, ...] = (
    *TOTALS,
    ("memory.current", _single, ((b"", "memory_current_bytes"),)),
    ("pids.current", _single, ((b"", "pids_current"),)),
)
