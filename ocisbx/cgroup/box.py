"""Box: the cgroup of one sandbox, from mkdir to rmdir.

P = PARENT/ocisbx-ID holds the limits and is ours; the runtime puts the container into P/c and
takes that away in the end, while P keeps the counters of all that ran below it
(cgroup-v2.rst: what a controller counts, it counts for the whole subtree).
"""

from __future__ import annotations

import contextlib
import errno
import os
from _thread import allocate_lock
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.cgroup.files import holds
from ocisbx.cgroup.kill import kill_cgroup, remove_cgroup
from ocisbx.cgroup.stats import TOTALS, Counters, parse_counters, read_pids_limit_hits, read_texts
from ocisbx.errors import CgroupError
from ocisbx.probe.cgroups import cgroup_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.probe.cgroups import Site

INNER = "c"
WITHDRAWN = (
    "somebody took the controller away while it ran: `systemctl --user daemon-reload` does so to "
    "what is not in a delegated unit"
)
VANISHED = "somebody removed its cgroup while it ran"

# Why the kernel makes no further cgroup (cgroups(7)).
REFUSALS: dict[int, str] = {
    errno.EAGAIN: "there are as many as cgroup.max.descendants, or as deep as cgroup.max.depth, "
    "of a cgroup above allows",
    errno.ENOENT: "it was removed meanwhile",
}

# The name in `enforcement` of what a file of cgroup v2 limits, by its controller.
LIMIT_NAMES: dict[str, str] = {
    "memory": "memory",
    "cpu": "cpus",
    "cpuset": "cpus",
    "pids": "pids",
    "io": "io",
}
SWAP_FILE = "memory.swap.max"
PIDS_FILE = "pids.max"


def limit_name(file: str) -> str:
    """What `enforcement` calls the limit of this file."""
    controller = file.partition(".")[0]
    # A bundle's `unified` may name any.
    return "swap" if file == SWAP_FILE else LIMIT_NAMES.get(controller, controller)


def cgroup_name(container_id: str) -> str:
    return f"ocisbx-{container_id}"


def box_path(site: Site, container_id: str) -> str:
    """The directory of P."""
    return f"{site.mount}{site.parent}".rstrip("/") + f"/{cgroup_name(container_id)}"


class Used(NamedTuple):
    """What a sandbox used: `before` its payload started, and by now."""

    before: Counters
    now: Counters

    def grown(self, name: str) -> bool:
        """Whether this counter counted anything since the payload's start."""
        return (getattr(self.now, name) or 0) > (getattr(self.before, name) or 0)

    def since(self, name: str) -> int | None:
        """What was added to this counter since the payload's start; None: not counted here."""
        now: int | None = getattr(self.now, name)
        return None if now is None else max(0, now - (getattr(self.before, name) or 0))


class Box:
    """P, with the limits `files` ({name: lines}) written into it."""

    def __init__(self, site: Site, container_id: str, files: Mapping[str, tuple[str, ...]]) -> None:
        self.path = box_path(site, container_id)
        # As the runtime is told it (config-linux.md, "Cgroups Path"): from the mount on.
        self.inner = f"{site.parent.rstrip('/')}/{cgroup_name(container_id)}/{INNER}"
        self._site = site
        self._files = files
        # Of what was used before the payload: understood when there is time for it.
        self._at_start: list[bytes | None] | None = None
        self._before = Counters()
        self._last = Counters()
        # A caller may ask for what was used while the loop does.
        self._reading = allocate_lock()
        self._inner_pids_hits = 0
        self._peak = -1

    def make(self, *, with_inner: bool) -> None:
        """Create it and set the limits; `with_inner` where no runtime makes P/c.

        Raises:
            CgroupError: it cannot be made, or a limit is not taken.
        """
        self._make_directory(self.path)
        self._limit()
        if with_inner:
            self._make_directory(f"{self.path}/{INNER}")

    def limit(self, files: Mapping[str, tuple[str, ...]]) -> None:
        """Set these limits, now that it is there.

        Raises:
            CgroupError: a limit is not taken.
        """
        self._files = files
        self._limit()

    def _limit(self) -> None:
        for name, lines in self._files.items():
            for line in lines:
                self._write(name, line)
        if wrong := self.lost():
            raise self._refused(wrong[0], "it was written, and is not there")

    def _make_directory(self, path: str) -> None:
        try:
            os.mkdir(path)
        except OSError as error:
            raise CgroupError(
                f"no cgroup can be made in {self._site.parent}",
                why=REFUSALS.get(error.errno or 0, (error.strerror or "").lower()),
                remedy="`ocisbx doctor` tells what holds limits here",
            ) from error

    def _write(self, name: str, line: str) -> None:
        try:
            descriptor = os.open(f"{self.path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            why = f"writing {line!r}: {error.strerror}"
            if isinstance(error, FileNotFoundError):
                why = f"{name} is not there: its controller is not enabled in {self._site.parent}"
            raise self._refused(name, why) from error

    def _refused(self, name: str, why: str) -> CgroupError:
        return CgroupError(
            f"the limit {name} cannot be set",
            why=why,
            remedy="`ocisbx doctor` tells what holds limits here; to go on without it: "
            "--allow-degraded NAME",
        )

    def lost(self) -> list[str]:
        """The files whose limits do not hold (any more)."""
        return [
            name
            for name, lines in self._files.items()
            if not holds(name, lines, _read(f"{self.path}/{name}"))
        ]

    def loss(self) -> str:
        """Why they do not hold any more."""
        return WITHDRAWN if os.path.isdir(self.path) else VANISHED

    def check(self, pid: int) -> str:
        """What is wrong with the container of this init; empty: it is inside, and limited."""
        if cgroup_of(pid) != self.inner:
            return f"the runtime did not put it into its cgroup {self.inner}"
        if lost := self.lost():
            return f"the limit {lost[0]} is gone: {self.loss()}"
        return ""

    def mark(self) -> None:
        """The payload is about to start: what was used so far is the runtime's."""
        # Since Linux 6.12 a write through this descriptor starts a peak of its own.
        with contextlib.suppress(OSError):
            self._close_peak()
            self._peak = os.open(f"{self.path}/memory.peak", os.O_RDWR | os.O_CLOEXEC)
            os.write(self._peak, b"reset")
        self._at_start = read_texts(self.path, TOTALS)

    def note(self) -> None:
        """The payload has ended and P/c may still be there: before Linux 6.11 a fork that was
        refused is counted where it was tried, not where the limit is."""
        if PIDS_FILE not in self._files:
            return
        hits = read_pids_limit_hits(f"{self.path}/{INNER}") or 0
        self._inner_pids_hits = max(hits, self._inner_pids_hits)

    def used(self) -> Used:
        """Before the start and now; what cannot be read any more is as it was last read."""
        with self._reading:
            now = self._read()
            if self._at_start is not None:
                before = parse_counters(self._at_start, TOTALS)
                # That of the file goes back to the runtime's own.
                own_peak = {"memory_peak_bytes": None} if self._peak >= 0 else {}
                self._before = self._last = before._replace(**own_peak)
                self._at_start = None
            self._last = Counters(
                *(old if new is None else new for old, new in zip(self._last, now, strict=True))
            )
            return Used(self._before, self._last)

    def _read(self) -> Counters:
        counters = parse_counters(read_texts(self.path, TOTALS), TOTALS)
        if self._peak >= 0:
            with contextlib.suppress(OSError, ValueError):
                peak = int(os.pread(self._peak, 64, 0))
                counters = counters._replace(memory_peak_bytes=peak)
        if self._inner_pids_hits and counters.pids_limit_hits is not None:
            hits = max(counters.pids_limit_hits, self._inner_pids_hits)
            counters = counters._replace(pids_limit_hits=hits)
        return counters

    def kill(self) -> None:
        """SIGKILL to everything in it."""
        kill_cgroup(self.path)

    def remove(self) -> bool:
        """Kill what is left in it and take it away; True: it is gone."""
        self._close_peak()
        return remove_cgroup(self.path)

    def _close_peak(self) -> None:
        if self._peak >= 0:
            os.close(self._peak)
            self._peak = -1


def is_frozen(events: bytes) -> bool:
    """Whether a cgroup, or one above it, is frozen, by its cgroup.events (cgroup-v2.rst)."""
    return b"frozen 1" in events


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
