"""Member: one container that was started ahead and waits for its only command."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.backends.base import Call
from ocisbx.backends.oci import set_up
from ocisbx.backends.stdio import PayloadStdio
from ocisbx.cgroup.box import is_frozen
from ocisbx.errors import OcisbxError, RuntimeFailed
from ocisbx.outcome import Reason
from ocisbx.probe.processes import is_stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.backends.execution import OciExecution
    from ocisbx.plan import Plan

LOOK_BYTES = 256

# What was forked holds descriptors of its parent's members: they are kept, and nothing is done.
_forked: list[object] = []


class Look(NamedTuple):
    """An open file of the kernel's, and what its text tells."""

    descriptor: int
    tells: Callable[[bytes], bool]


class Member:
    """A container that has run nothing. Whoever has it gives it a command once, or retires it."""

    def __init__(self, plan: Plan, start_timeout_s: float | None = None) -> None:
        """Start one and wait until it is ready.

        Raises:
            OcisbxError: it cannot be started.
        """
        self.plan = plan
        self._process = os.getpid()
        with contextlib.ExitStack() as stack:
            call = Call(argv=(), environment=os.environ, start_timeout_s=start_timeout_s)
            self.execution: OciExecution = set_up(stack, plan, call)
            failure = self.execution.wait_ready()
            if failure is not None:
                raise RuntimeFailed(
                    failure.what,
                    why=failure.why,
                    remedy=f"`ocisbx doctor` checks this host; the runtime was {plan.runtime.path}",
                )
            self._looks = self._open_looks(stack)
            self._stack = stack.pop_all()
        self.born_s = time.monotonic()

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.born_s

    def _open_looks(self, stack: contextlib.ExitStack) -> list[Look]:
        """Where to see whether somebody has stopped or frozen it."""
        execution = self.execution
        looks: list[Look] = []
        paths: list[tuple[str, Callable[[bytes], bool]]] = [
            (f"/proc/{pid}/stat", is_stopped)
            for pid in {execution.runtime_pid, execution.init_pid} - {0}
        ]
        if execution.box is not None:
            paths.append((f"{execution.box.path}/cgroup.events", is_frozen))
        for path, tells in paths:
            # What is gone by now is noticed by its socket.
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                looks.append(Look(descriptor, tells))
        return looks

    def is_sound(self) -> bool:
        """Whether it lives, waits, and would run: nobody has killed, stopped or frozen it."""
        if not self.execution.is_waiting:
            return False
        try:
            return not any(tells(os.pread(fd, LOOK_BYTES, 0)) for fd, tells in self._looks)
        except ProcessLookupError:
            return False

    def give(self, plan: Plan, call: Call) -> bool:
        """Let it run this; False: it has ended meanwhile, and has run nothing.

        Raises:
            OcisbxError: a limit is not taken, a capture cannot be made; nothing has run.
        """
        execution = self.execution
        execution.clock.started = time.monotonic()
        if plan.cgroup is not None and execution.box is not None and plan is not self.plan:
            execution.box.limit(plan.cgroup.files)
        stdio = PayloadStdio(
            plan, call, execution.bundle_path, lambda: execution.end_now(Reason.OUTPUT)
        )
        execution.clock.bundle_made = time.monotonic()
        return execution.give(plan, call, stdio)

    def retire(self) -> None:
        """End it, whatever it does, and take away all that it leaves. Raises OcisbxError."""
        if os.getpid() == self._process:
            self._stack.close()

    def forget(self) -> None:
        """After a fork, in the child: it is the parent's."""
        _forked.append(self)


def retire_all(members: list[Member]) -> None:
    """End all of them at once; what cannot be removed is `gc`'s."""
    for member in members:
        member.execution.let_go()
    for member in members:
        with contextlib.suppress(OcisbxError):
            member.retire()
