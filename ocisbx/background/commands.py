"""Further commands in a container that runs: each is driven by who asks for it."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import select
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ocisbx.audit import begin_line
from ocisbx.backends.ahead import Ahead
from ocisbx.backends.beside import SideExecution
from ocisbx.backends.endings import SETTLE_S
from ocisbx.backends.oci import new_id
from ocisbx.backends.stdio import PayloadStdio
from ocisbx.background.packets import ask_orders
from ocisbx.background.used import Use
from ocisbx.bundle.record import directory_of
from ocisbx.calls import Told, conclude
from ocisbx.errors import (
    ConfigError,
    InvalidState,
    OcisbxError,
    RuntimeFailed,
    TerminalError,
    Unsupported,
)
from ocisbx.init.protocol import Stage
from ocisbx.outcome import STAGES, Reason
from ocisbx.plan import Plan
from ocisbx.quirks import find_quirks
from ocisbx.values import show, utc_text

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from ocisbx.backends.base import Call
    from ocisbx.outcome import StartFailure
    from ocisbx.result import RunResult
    from ocisbx.spawned import Spawned

# Stages at which a command fails to start though the container is sound.
REFUSALS: dict[int, tuple[type[OcisbxError], str]] = {
    1: (RuntimeFailed, "end what runs there, or allow more processes: limits.pids"),
    3: (ConfigError, "give a directory that is there, inside"),
    6: (ConfigError, "leave -u out, or start the container with --user {user}"),
    7: (TerminalError, "it needs /dev/ptmx in the container, and Linux 4.13"),
}
# Why a command cannot become another user.
USERS = {
    errno.EPERM: "the container has not the right to change ids: that takes other ids that are "
    "mapped, and the capabilities SETUID and SETGID",
    errno.EINVAL: "no such id is mapped into the container",
}


class Orders:
    """Where a container takes further commands, as long as it runs. Thread-safe."""

    def __init__(
        self,
        container_id: str,
        plan: Plan,
        orders: socket.socket,
        *,
        cgroup: str = "",
        ends_idle: bool = False,
    ) -> None:
        """`orders`: where they go to. `ends_idle`: it ends when it was not used for some time."""
        self.id = container_id
        self.plan = plan
        self._orders = orders
        self._cgroup = cgroup
        self._ends_idle = ends_idle
        self._directory = directory_of(container_id)
        self._ahead = Ahead()

    @classmethod
    def of(cls, container_id: str) -> Self:
        """Those of the container with this id.

        Raises:
            InvalidState: it does not run.
            OcisbxError: what its supervisor says is wrong.
        """
        found = ask_orders(container_id)
        if found is None:
            raise _ended(container_id)
        told, orders = found
        plan = Plan.from_json(told["plan"])
        return cls(container_id, plan, orders, cgroup=told["cgroup"], ends_idle=told["ends_idle"])

    def under(self, **changes: Any) -> Self:  # noqa: ANN401 -- fields of Plan
        """The same place, for commands that another plan applies to; closed with this one."""
        other = copy.copy(self)
        other.plan = self.plan._replace(**changes)
        return other

    def close(self) -> None:
        """Take no further ones; those that run go on."""
        self._orders.close()
        self._ahead.close()

    def run(
        self,
        call: Call,
        *,
        timeout_s: float | None = None,
        audit: bool = True,
        hold: Callable[[SideExecution], None] | None = None,
    ) -> RunResult:
        """Run one command beside the others; `hold` is shown the execution once it has started.

        Raises:
            PolicyDenied: `[commands]` does not let it run.
            InvalidState: the container has ended.
            ConfigError: the container has no such directory, or may not become that user.
            OcisbxError: ocisbx or the runtime failed.
        """
        plan = self.plan if timeout_s is None else self.plan._replace(timeout_s=timeout_s)
        plan.commands.check(call.argv)
        use, execution = self._begin(plan, call)
        started_at = utc_text()
        try:
            if hold is not None:
                hold(execution)
            # While it runs.
            line = begin_line(execution.id, started_at, call.argv, plan) if audit else None
            self._ahead.make()
            verdict = execution.wait()
            assert verdict is not None
            self._explain(execution, call)
            captured = execution.stdio.finish(keep=False)
        finally:
            try:
                execution.close()
            finally:
                if use is not None:
                    use.end()
        told = Told(plan, call, execution, verdict, captured)
        return conclude(told, started_at, resolve_s=0.0, audit=audit, line=line)

    def spawn(self, call: Call, *, timeout_s: float | None = None, audit: bool = True) -> Spawned:
        """Start one command on a terminal that the caller holds; as `run`, with its errors.

        Raises:
            Unsupported: no terminal comes out of the container's kernel.
        """
        from ocisbx.spawned import Spawned, Started  # noqa: PLC0415 -- for terminals only

        plan = self.plan._replace(terminal=True)
        if timeout_s is not None:
            plan = plan._replace(timeout_s=timeout_s)
        plan.commands.check(call.argv)
        if _relays(plan):
            raise Unsupported(
                f"a further command has no terminal to be held on {plan.runtime.name}",
                why="its kernel lets none out that is made inside",
                remedy="use crun, runc or youki, or Sandbox.spawn",
            )
        started_at = utc_text()
        execution: Any
        use, execution = self._begin(plan, call._replace(holds_terminal=True))
        with contextlib.ExitStack() as stack:
            if use is not None:
                stack.callback(use.end)
            stack.callback(execution.close)
            execution.wait_started()
            if execution.verdict is not None:
                self._explain(execution, call)
            started = Started(
                plan, execution, stack.pop_all(), partial(self._explain, execution, call)
            )
        return Spawned(started, call, started_at, resolve_s=0.0, audit=audit)

    def _begin(self, plan: Plan, call: Call) -> tuple[Use | None, SideExecution]:
        """Start it; both are the caller's to end, the use last."""
        try:
            use = Use(self._directory) if self._ends_idle else None
            try:
                return use, self._start(plan, call)
            except BaseException:
                if use is not None:
                    use.end()
                raise
        except (BrokenPipeError, ConnectionResetError, FileNotFoundError) as error:
            raise _ended(self.id) from error
        except TimeoutError as error:
            raise InvalidState(
                f"{self.id} takes no commands",
                why="its process 1 is stopped, or hangs",
                remedy=f"ocisbx rm -f {self.id} ends it",
            ) from error

    def _explain(self, execution: SideExecution, call: Call) -> None:
        """Raise what was no end of the command's."""
        if execution.wrong is not None:
            raise execution.wrong
        refused = execution.refused_at
        if refused is not None and refused.stage in REFUSALS:
            raise _refusal(refused, call)
        if not execution.was_cut_off:
            return
        if self._has_ended():
            raise _ended(self.id, "while the command ran")

    def _has_ended(self) -> bool:
        if self._orders.fileno() < 0:
            return True
        poller = select.poll()
        poller.register(self._orders, 0)
        # Process 1 and its leaders hold the other end, and end with the container.
        return bool(poller.poll(SETTLE_S * 1000))

    def _start(self, plan: Plan, call: Call) -> SideExecution:
        execution: SideExecution
        command_id = new_id()
        began = time.monotonic()
        stdio_type, execution_type = _types_for(plan)
        stdio = stdio_type(
            plan,
            call,
            self._directory,
            lambda: execution.end_now(Reason.OUTPUT),
            prefix=f"{command_id}.",
            ahead=self._ahead,
        )
        execution = execution_type(command_id, plan, call, stdio, self._cgroup)
        execution.clock.started = began
        execution.clock.bundle_made = time.monotonic()
        try:
            execution.start(self._orders, self._ahead)
        except BaseException:
            execution.close()
            raise
        return execution


def _refusal(refused: StartFailure, call: Call) -> OcisbxError:
    kind, remedy = REFUSALS[refused.stage]
    what, why = STAGES[refused.stage], os.strerror(refused.errno)
    if call.workdir and "directory" in what:
        what = what.replace("directory", f"directory {show(call.workdir)}")
    if call.user and refused.stage == Stage.USER:
        user = "{}:{}".format(*call.user)
        what, remedy = f"the command cannot become user {user}", remedy.format(user=user)
        why = USERS.get(refused.errno, why)
    return kind(what, why=why, remedy=remedy)


def _relays(plan: Plan) -> bool:
    """Whether a terminal that is made inside stays there."""
    return find_quirks(plan.runtime.name, plan.runtime.version).user_kernel


def _types_for(plan: Plan) -> tuple[type[PayloadStdio], type[SideExecution]]:
    if not plan.terminal:
        return PayloadStdio, SideExecution
    if _relays(plan):
        from ocisbx.backends.beside_relayed import (  # noqa: PLC0415 -- for these terminals
            RelayedStdio,
            SideRelayedExecution,
        )

        return RelayedStdio, SideRelayedExecution
    from ocisbx.backends.beside_terminal import SideTerminalExecution  # noqa: PLC0415 -- for terminals
    from ocisbx.backends.terminal import TerminalStdio  # noqa: PLC0415 -- as above

    return TerminalStdio, SideTerminalExecution


def _ended(container_id: str, when: str = "") -> InvalidState:
    return InvalidState(
        f"{container_id} has ended {when}".rstrip(),
        remedy="ocisbx ps -a tells the state of each container",
    )
