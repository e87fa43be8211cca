"""SideExecution: a further command in a container that is there, by a channel of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ocisbx.backends.base import Step
from ocisbx.backends.driven import Driven
from ocisbx.cgroup.stats import Counters, read_counters
from ocisbx.init import wire

if TYPE_CHECKING:
    import socket

    from ocisbx.backends.base import Call
    from ocisbx.backends.stdio import PayloadStdio
    from ocisbx.outcome import Evidence
    from ocisbx.plan import Plan


class SideExecution(Driven):
    """Implements `backends.base.Execution` for one of the commands of a container.

    Its end is not the container's: what it leaves running stays. When its driver ends before it
    does, its whole tree is killed, and nothing else.
    """

    def __init__(
        self, command_id: str, plan: Plan, call: Call, stdio: PayloadStdio, cgroup: str = ""
    ) -> None:
        """`cgroup`: the directory of the container's, where it has one."""
        super().__init__(command_id, plan, call, stdio)
        self._cgroup = cgroup
        self._before = Counters()

    def start(self, orders: socket.socket) -> None:
        """Send it to the container that takes its orders there.

        Raises:
            OSError: nobody takes any more; no descriptor is left.
        """
        theirs = self._init.connect()
        stdio = self.stdio
        self._count()
        try:
            wire.send_run(
                orders,
                self._command(),
                stdin=stdio.stdin,
                stdout=stdio.stdout,
                stderr=stdio.stderr,
                combine=self._plan.combine,
                channel=theirs.fileno(),
            )
        finally:
            theirs.close()
        stdio.release()
        self._init.started()
        self._begin()
        self._tell(Step.CREATED)

    def _count(self) -> None:
        """What was used so far is not this command's."""
        if self._cgroup:
            self._before = read_counters(self._cgroup)

    def close(self) -> None:
        """End what still runs of it and free every descriptor; idempotent."""
        self._hang_up()
        self.stdio.close()
        self._wishes.close()
        self._init.close()
        self.clock.cleaned = time.monotonic()

    def _evidence(self) -> Evidence:
        evidence = super()._evidence()
        if not self._cgroup:
            return evidence
        now, before = read_counters(self._cgroup), self._before
        return evidence._replace(
            oom_killed=(now.oom_kills or 0) > (before.oom_kills or 0),
            pids_limit_hit=(now.pids_limit_hits or 0) > (before.pids_limit_hits or 0),
        )
