"""SideExecution: a further command in a container that is there, by a channel of its own."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from ocisbx.backends.base import Step
from ocisbx.backends.driven import CLEANUP_S, Driven
from ocisbx.cgroup.stats import HITS, parse_counters, read_texts
from ocisbx.init import wire
from ocisbx.outcome import StartFailure

if TYPE_CHECKING:
    import socket

    from ocisbx.backends.ahead import Ahead
    from ocisbx.backends.base import Call
    from ocisbx.backends.stdio import PayloadStdio
    from ocisbx.errors import OcisbxError
    from ocisbx.outcome import Evidence
    from ocisbx.plan import Plan

# How long a container may take no orders before it counts as hung.
PATIENCE_S = 20.0


class SideExecution(Driven):
    """Implements `backends.base.Execution` for one of the commands of a container.

    Its end is not the container's: what it leaves running stays. When it is ended, or its driver
    ends before it does, its whole tree is killed, and nothing else.
    """

    def __init__(
        self, command_id: str, plan: Plan, call: Call, stdio: PayloadStdio, cgroup: str = ""
    ) -> None:
        """`cgroup`: the directory of the container's, where it has one."""
        super().__init__(command_id, plan, call, stdio)
        self._cgroup = cgroup
        self._before: list[bytes | None] = []

    def start(self, orders: socket.socket, ahead: Ahead | None = None) -> None:
        """Send it to the container that takes its orders there; `ahead`: with what was made for it.

        Raises:
            OSError: nobody takes any more; no descriptor is left.
            TimeoutError: it is there, and takes none.
        """
        theirs = self._init.connect(None if ahead is None else ahead.channel())
        stdio = self.stdio
        self._count()
        try:
            self._order(orders, theirs.fileno())
        finally:
            theirs.close()
        stdio.release()
        self._begin()
        self._set_off()

    def _set_off(self) -> None:
        """The command starts."""
        self._init.started()
        self._tell(Step.CREATED)

    def _count(self) -> None:
        """What was used so far is not this command's."""
        if self._cgroup:
            self._before = read_texts(self._cgroup, HITS)

    def _order(self, orders: socket.socket, channel: int) -> None:
        """Where many ask at once the queue is full at times: it is one for all, whoever asks."""
        command = self._command()
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                wire.send_run(
                    orders,
                    command,
                    stdin=self.stdio.stdin,
                    stdout=self.stdio.stdout,
                    stderr=self.stdio.stderr,
                    combine=self.stdio.combines,
                    channel=channel,
                    terminal=self.stdio.is_terminal,
                )
            except BlockingIOError:
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError from None
                poller = select.poll()
                poller.register(orders, select.POLLOUT)
                poller.poll(left_s * 1000)
            else:
                return

    # What was wrong with what the container's init sent.
    wrong: OcisbxError | None = None

    @property
    def refused_at(self) -> StartFailure | None:
        """Where it failed to start, by the init's report."""
        return self._report if isinstance(self._report, StartFailure) else None

    @property
    def was_cut_off(self) -> bool:
        """Whether it ended without a report, and not by our wish: with its container, or because
        who leads it was killed."""
        return self._report is None and self._ending.reason is None

    def _let_go(self) -> None:
        """Of a command that is ended nothing is to stay: its leader hangs up when that is so."""
        if self._ending.reason is None:
            super()._let_go()
        else:
            self._init.end_sending()
            self._cleanup_at = time.monotonic() + CLEANUP_S

    def close(self) -> None:
        """End what still runs of it and free every descriptor; idempotent."""
        self._init.hang_up()
        self.stdio.close()
        self._wishes.close()
        self._init.close()
        self.clock.cleaned = time.monotonic()

    def _evidence(self) -> Evidence:
        evidence = super()._evidence()
        if not self._before:
            return evidence
        texts = read_texts(self._cgroup, HITS)
        if texts == self._before:
            return evidence
        now, before = parse_counters(texts, HITS), parse_counters(self._before, HITS)
        return evidence._replace(
            oom_killed=(now.oom_kills or 0) > (before.oom_kills or 0),
            pids_limit_hit=(now.pids_limit_hits or 0) > (before.pids_limit_hits or 0),
        )
