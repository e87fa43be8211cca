"""What a run gives back: plain frozen values, importable without pydantic.

Facts that were not measured are `None`; `0` is a measured zero.
"""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from ocisbx.errors import CommandFailed


class Termination(StrEnum):
    """Why the payload ended."""

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    OOM_KILLED = "oom_killed"
    PIDS_LIMIT = "pids_limit"
    OUTPUT_LIMIT = "output_limit"
    NOT_FOUND = "not_found"
    NOT_EXECUTABLE = "not_executable"
    CANCELLED = "cancelled"


# interface.md, "Exit code of run": what a shell sees where the payload's own end does not stand.
SHELL_EXIT_CODES: dict[Termination, int] = {
    Termination.TIMED_OUT: 124,
    Termination.NOT_EXECUTABLE: 126,
    Termination.NOT_FOUND: 127,
    Termination.CANCELLED: 130,
    Termination.OOM_KILLED: 137,
    Termination.OUTPUT_LIMIT: 141,
}


class EnforcementState(StrEnum):
    """Whether a requested restriction holds on this host."""

    ENFORCED = "enforced"
    PARTIAL = "partial"
    UNSUPPORTED = "unsupported"


class Enforced(NamedTuple):
    """One line of `enforcement`: what was asked for, what holds, and by what means."""

    requested: Any
    actual: Any
    state: EnforcementState
    how: str


class RuntimeInfo(NamedTuple):
    """The runtime that was asked for (`requested`) and the one that ran."""

    requested: str
    name: str
    path: str
    version: str
    platform: str | None = None


class Pressure(NamedTuple):
    """Stall totals of the container's cgroup (cgroup-v2.rst, `*.pressure`), in seconds."""

    cpu_s: float | None = None
    memory_s: float | None = None
    io_s: float | None = None


class ResourceUsage(NamedTuple):
    """What the payload and all that it started used; `runtime_cpu_s` is the runtime's own."""

    wall_s: float | None = None
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    cpu_throttled_s: float | None = None
    memory_peak_bytes: int | None = None
    pids_peak: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    oom_kills: int | None = None
    pressure: Pressure = Pressure()
    runtime_cpu_s: float | None = None


class Timings(NamedTuple):
    """Where our own time went, in seconds; `runtime_s` is from the runtime's start to its end."""

    resolve_s: float
    bundle_s: float
    runtime_s: float
    cleanup_s: float


class Captured:
    """One captured stream: its bytes, read from disk only when somebody looks.

    A capture of up to EAGER_BYTES is held in memory; a larger one stays in its (already unlinked)
    file, so that a run with 1 GiB of output does not cost 1 GiB of the driver.
    """

    EAGER_BYTES = 1 << 20

    __slots__ = ("__weakref__", "_data", "_fd", "_size_bytes", "path", "total_bytes", "truncated")

    def __init__(
        self,
        *,
        fd: int | None = None,
        total_bytes: int = 0,
        truncated: bool = False,
        path: str | None = None,
    ) -> None:
        """Takes ownership of `fd`, open for reading; None means that nothing was captured."""
        self.path = path
        self.total_bytes = total_bytes
        self.truncated = truncated
        self._fd: int | None = None
        self._data: bytes | None = b""
        if fd is None:
            return
        self._size_bytes = os.fstat(fd).st_size
        if self._size_bytes <= self.EAGER_BYTES:
            try:
                self._data = os.pread(fd, self._size_bytes, 0)
            finally:
                os.close(fd)
        else:
            self._data = None
            self._fd = fd
            import weakref  # noqa: PLC0415 -- for large captures only

            weakref.finalize(self, os.close, fd)

    def __reduce__(self) -> tuple[object, ...]:
        return (_held, (self.read(), self.total_bytes, self.truncated, self.path))

    def read(self) -> bytes:
        """The captured bytes (up to the cap)."""
        if self._data is not None:
            return self._data
        assert self._fd is not None
        chunks: list[bytes] = []
        offset = 0
        while chunk := os.pread(self._fd, 1 << 24, offset):
            chunks.append(chunk)
            offset += len(chunk)
        return b"".join(chunks)


class Hint(NamedTuple):
    """Why a command never ran: `why` for a person, `remedy` to type; empty where unknown."""

    why: str
    remedy: str


def _held(data: bytes, total_bytes: int, truncated: bool, path: str | None) -> Captured:  # noqa: FBT001 -- called by pickle
    captured = Captured(total_bytes=total_bytes, truncated=truncated, path=path)
    captured._data = data  # noqa: SLF001 -- our own class
    return captured


class RunResult(NamedTuple):
    """One call, after its end. `to_json()` has the same keys as the command line's `--json`."""

    id: str
    command: tuple[str, ...]
    termination: Termination
    exit_code: int | None
    signal: int | None
    captured_stdout: Captured
    captured_stderr: Captured
    runtime: RuntimeInfo
    usage: ResourceUsage
    enforcement: dict[str, Enforced]
    bundle: str | None
    started_at: str
    timings: Timings
    hint: Hint | None = None

    @property
    def stdout(self) -> bytes:
        """Standard output, up to the cap; a large one is read from its file at each access."""
        return self.captured_stdout.read()

    @property
    def stderr(self) -> bytes:
        """Standard error, up to the cap; empty when both streams were combined."""
        return self.captured_stderr.read()

    @property
    def stdout_path(self) -> str | None:
        return self.captured_stdout.path

    @property
    def stderr_path(self) -> str | None:
        return self.captured_stderr.path

    @property
    def stdout_bytes(self) -> int:
        """Everything that was written, also what the cap cut off."""
        return self.captured_stdout.total_bytes

    @property
    def stderr_bytes(self) -> int:
        """Everything that was written, also what the cap cut off."""
        return self.captured_stderr.total_bytes

    @property
    def stdout_truncated(self) -> bool:
        return self.captured_stdout.truncated

    @property
    def stderr_truncated(self) -> bool:
        return self.captured_stderr.truncated

    @property
    def shell_exit_code(self) -> int:
        """What the command line ends with for this result."""
        if (fixed := SHELL_EXIT_CODES.get(self.termination)) is not None:
            return fixed
        if self.exit_code is not None:
            return self.exit_code
        return 128 + (self.signal or 0)

    def check(self) -> RunResult:
        """Return self when the payload exited with 0; raise CommandFailed otherwise."""
        if self.termination is Termination.EXITED and self.exit_code == 0:
            return self
        hint = self.hint or Hint(self.stderr[-2000:].decode(errors="replace").strip(), "")
        raise CommandFailed(
            f"{self.command[0]!r} {describe_end(self)}",
            why=hint.why,
            remedy=hint.remedy,
            exit_code=self.shell_exit_code,
        )

    def to_dict(self, *, output: bool = True) -> dict[str, Any]:
        """The keys of interface.md, ready for JSON; without what was printed where `output` is
        False."""
        document: dict[str, Any] = {
            "id": self.id,
            "command": list(self.command),
            "termination": self.termination.value,
            "exit_code": self.exit_code,
            "signal": self.signal,
        }
        for name, captured in (("stdout", self.captured_stdout), ("stderr", self.captured_stderr)):
            raw = captured.read() if output else b""
            document[name] = raw.decode(errors="replace")
            if document[name].encode() != raw:
                import base64  # noqa: PLC0415 -- for output that is no text

                document[f"{name}_base64"] = base64.b64encode(raw).decode()
            document[f"{name}_path"] = captured.path
            document[f"{name}_bytes"] = captured.total_bytes
            document[f"{name}_truncated"] = captured.truncated
        document |= {
            "runtime": self.runtime._asdict(),
            "usage": self.usage._asdict() | {"pressure": self.usage.pressure._asdict()},
            "enforcement": {name: entry._asdict() for name, entry in self.enforcement.items()},
            "bundle": self.bundle,
            "started_at": self.started_at,
            "timings": self.timings._asdict(),
        }
        return document

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, document: dict[str, Any], stdout: Captured, stderr: Captured) -> RunResult:
        """What to_dict() wrote, with what was printed.

        Raises:
            ValueError, KeyError, TypeError: it is not one.
        """
        usage = document["usage"]
        enforcement = {
            name: Enforced(**(entry | {"state": EnforcementState(entry["state"])}))
            for name, entry in document["enforcement"].items()
        }
        hint = document.get("hint")
        plain = ("id", "exit_code", "signal", "bundle", "started_at")
        return cls(
            **{name: document[name] for name in plain},
            command=tuple(document["command"]),
            termination=Termination(document["termination"]),
            captured_stdout=stdout,
            captured_stderr=stderr,
            runtime=RuntimeInfo(**document["runtime"]),
            usage=ResourceUsage(**(usage | {"pressure": Pressure(**usage["pressure"])})),
            enforcement=enforcement,
            timings=Timings(**document["timings"]),
            hint=None if hint is None else Hint(*hint),
        )


class Ended(Protocol):
    """What is told of an end: a result, or a verdict."""

    @property
    def termination(self) -> Termination: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def signal(self) -> int | None: ...


def describe_end(result: Ended) -> str:
    """A few words for a person: `exited with code 3`, `was killed by signal 9`, `timed out`."""
    if result.termination is Termination.EXITED:
        return f"exited with code {result.exit_code}"
    if result.termination is Termination.SIGNALED:
        return f"was killed by signal {result.signal}"
    return ENDS[result.termination]


ENDS: dict[Termination, str] = {
    Termination.TIMED_OUT: "timed out",
    Termination.OOM_KILLED: "was killed for memory",
    Termination.PIDS_LIMIT: "hit the limit of processes",
    Termination.OUTPUT_LIMIT: "was ended at the output limit",
    Termination.NOT_FOUND: "was not found",
    Termination.NOT_EXECUTABLE: "cannot be executed",
    Termination.CANCELLED: "was cancelled",
}
