"""The seam between what a caller wants and what carries it out."""

from __future__ import annotations

import time
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ocisbx.outcome import Verdict
    from ocisbx.plan import Plan
    from ocisbx.result import ResourceUsage
    from ocisbx.terminal.transcript import Recorder

# A runtime that has not started the container by then has hung, on an ordinary machine; on a slow
# one it gets as many times more (probe.speed).
START_TIMEOUT_S = 20.0


class Tier(StrEnum):
    """How strongly a backend holds, strongest first."""

    VM = "vm"
    USER_KERNEL = "user_kernel"
    NAMESPACE = "namespace"
    POLICY = "policy"


class Step(StrEnum):
    """The points of a call that an observer is told about, in order."""

    BUNDLE_MADE = "bundle made"
    RUNTIME_STARTED = "runtime started"
    CREATED = "container created"
    RUNNING = "payload running"
    REPORTED = "report received"
    DELETING = "deleting"


class Call(NamedTuple):
    """One call: what differs between two runs of one plan.

    `stdin`: bytes, a descriptor to relay, or nothing (/dev/null). `stdout`, `stderr`: a descriptor
    to forward to; None captures. Callbacks get the bytes within the cap, as they come.
    `environment` is the caller's, of which the plan takes what it names; `extra_environment` is for
    this payload alone, and wins. Without `argv` the container waits for a command, or for many.
    Only a command that comes so may have a `workdir` of its own, and a `user` (uid, gid).
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    extra_environment: Mapping[str, str] = MappingProxyType({})
    name: str | None = None
    # Who gives the id has claimed the name, too, and holds it for longer than the call takes.
    id: str | None = None
    # The directory in which the captures stay; None: they end with the result.
    keep_in: str | None = None
    stdin: bytes | int | None = None
    stdout: int | None = None
    stderr: int | None = None
    on_stdout: Callable[[bytes], None] | None = None
    on_stderr: Callable[[bytes], None] | None = None
    on_step: Callable[[Step], None] | None = None
    # None: START_TIMEOUT_S, by the machine's speed.
    start_timeout_s: float | None = None
    workdir: str | None = None
    user: tuple[int, int] | None = None
    # On a terminal: rows and columns; None: 24 and 80.
    size: tuple[int, int] | None = None
    # The kind of terminal that it is (terminfo(5)), unless the payload is told otherwise.
    term: str = "xterm"
    # The caller reads and types by itself.
    holds_terminal: bool = False
    # Told what is shown and typed.
    recorder: Recorder | None = None


class Clock:
    """Seconds of time.monotonic() at the turns of a call."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.bundle_made = 0.0
        self.payload_started = 0.0
        self.runtime_ended = 0.0
        self.cleaned = 0.0

    def payload_s(self) -> float | None:
        """From the payload's start to the container's end, or to now; None: it has not started."""
        if not self.payload_started:
            return None
        return (self.runtime_ended or time.monotonic()) - self.payload_started


class Execution(Protocol):
    """A payload that was started and is driven to its end."""

    id: str

    def wait(self, timeout_s: float | None = None) -> Verdict | None:
        """The verdict, or None when `timeout_s` passed first."""

    def kill(self, signal: int) -> None:
        """Signal the payload's process, never the runtime."""

    def cancel(self) -> None:
        """End it: SIGTERM, the grace, SIGKILL."""

    def usage(self) -> ResourceUsage:
        """What it used; read before the context exits and its cgroup goes."""


class Backend(Protocol):
    """One way to run a plan."""

    name: str
    tier: Tier

    def launch(self, plan: Plan, call: Call) -> AbstractContextManager[Execution]:
        """Start the payload; leaving the context ends and removes what is left of it."""
