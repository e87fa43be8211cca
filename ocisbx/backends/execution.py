"""OciExecution: one container from its bundle to its end."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

from ocisbx.backends.base import Step
from ocisbx.backends.driven import CLEANUP_S, Driven
from ocisbx.backends.endings import SETTLE_S, Patience, measured, since_hand_over
from ocisbx.cgroup.box import INNER
from ocisbx.outcome import End, Evidence, Failure, Reason
from ocisbx.runtime.log import error_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Spent = tuple[int, int]

    from ocisbx.backends.base import Call
    from ocisbx.backends.driven import Watched
    from ocisbx.backends.stdio import PayloadStdio
    from ocisbx.bundle.directory import BundleDirectory
    from ocisbx.cgroup.box import Box, Used
    from ocisbx.command import Child
    from ocisbx.outcome import StartFailure
    from ocisbx.plan import Plan
    from ocisbx.result import ResourceUsage
    from ocisbx.runtime.client import RuntimeClient

# A runtime's exit status for a process 1 that SIGKILL ended.
KILLED = 137
# How often a runtime whose container has ended is told so. One that had not begun to listen for
# SIGCHLD when it came waits for ever (youki to 0.7.0; runc from 1.3.0 on, its issue 5208).
NUDGE_S = 0.1


class OciExecution(Driven):
    """Implements `backends.base.Execution` for a runc-shaped runtime.

    With a call that names no command the container is started and waits (`wait_ready`), until it
    is given one (`give`), or for ever: a session.
    """

    def __init__(
        self,
        container_id: str,
        plan: Plan,
        call: Call,
        *,
        bundle: BundleDirectory,
        client: RuntimeClient,
        stdio: PayloadStdio,
        box: Box | None = None,
        checks: Sequence[Callable[[int], str]] = (),
    ) -> None:
        """`box`: the container's cgroup, where it has one. `checks`: each says what is wrong with
        the container of this init, before the payload runs; empty: nothing."""
        super().__init__(container_id, plan, call, stdio)
        self.box = box
        self.bundle_path = bundle.path
        self._checks = checks
        # What is done when nothing runs in the container any more, but the runtime does.
        self.on_emptied: Callable[[], None] | None = None
        self._bundle = bundle
        self._client = client
        # What the runtime prints: in memory, since it is nearly always nothing.
        self._printed = os.memfd_create("runtime", os.MFD_CLOEXEC)
        self._child: Child | None = None
        self._patience = Patience(call.start_timeout_s)
        # It has no command of its own (yet).
        self._waits = not call.argv
        # What a payload used that ran before its call: user and system time in microseconds.
        self._spent: Spent | None = None
        self._is_there = False
        self._nudge_at: float | None = None
        # What its cgroup counted to the end.
        self._used: Used | None = None

    def start(self) -> None:
        """Start the runtime; what it prints goes to the bundle, never into the payload's streams.

        Raises:
            RuntimeMissing: its binary cannot be started.
        """
        theirs = self._init.connect()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._child = self._client.spawn_run(
                self.id,
                self._bundle.path,
                stdio={0: null, 1: self._printed, 2: self._printed},
                socket=theirs.fileno(),
                cgroup=self._entered,
                console=self._console_address,
            )
        finally:
            theirs.close()
            os.close(null)
        self._timeout_at = time.monotonic() + self._patience.limit_s
        self._tell(Step.RUNTIME_STARTED)

    @property
    def _console_address(self) -> str | None:
        """Where the runtime sends the container's terminal; None: it has none."""
        return None

    def wait_ready(self) -> Failure | None:
        """Drive it until it waits for a command; what failed, where it never will."""
        while self.verdict is None and not self._is_there:
            self._turn(None)
        assert self.verdict is None or isinstance(self.verdict, Failure)
        return self.verdict

    def give(self, plan: Plan, call: Call, stdio: PayloadStdio) -> bool:
        """Let the waiting container run this, and end with it; False: it is gone, and has run
        nothing. `wait` then returns with the report: the runtime's own end is `close`'s."""
        self._plan, self._call, self.stdio = plan, call, stdio
        self._go()
        return self._ready

    def warm_up(self, plan: Plan, call: Call, stdio: PayloadStdio) -> None:
        """Let the waiting container run this, which then waits for its part of a call
        (`hand_over`); until then no time is counted."""
        self._plan, self._call, self.stdio = plan, call, stdio
        self._ready = self._init.go(stdio, self._command())
        stdio.release()

    def hand_over(self, plan: Plan, call: Call, stdio: PayloadStdio, spent: Spent) -> None:
        """What runs in the container gets its call by `stdio`; from here on it is driven, and
        counted, as the call's. `spent`: what it has used until now."""
        self._plan, self._call, self.stdio, self._spent = plan, call, stdio, spent
        if self.box is not None:
            self.box.mark()
        self._begin()
        if self._ending.reason is not None:
            self._hang_up()

    @property
    def is_waiting(self) -> bool:
        """Whether it could be given a command: nothing has ended, and nothing was heard."""
        assert self._child is not None
        if not self._waits or self.verdict is not None or not self._init.is_open:
            return False
        poller = select.poll()
        poller.register(self._init.fileno(), select.POLLIN)
        poller.register(self._child.pidfd, select.POLLIN)
        return not poller.poll(0)

    @property
    def is_started(self) -> bool:
        """Whether what it was given runs."""
        return self._started

    @property
    def init_socket(self) -> int:
        """Where the container takes orders, to be given away with it."""
        return self._init.fileno()

    def share_init(self) -> int:
        """Where the container takes orders, for others. Raises OSError: it has ended."""
        return self._init.share()

    @property
    def runtime_pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def init_pid(self) -> int:
        """Process 1 of the container, as we number it; 0 where none is told (yet)."""
        return self._init.pid

    @property
    def init_handle(self) -> int:
        """A pidfd of process 1; negative where there is none."""
        return self._init.handle

    @property
    def _entered(self) -> str | None:
        """The cgroup that the runtime itself is started in."""
        enters = self.box is not None and self._client.quirks.enters_cgroup
        return f"{self.box.path}/{INNER}" if self.box is not None and enters else None

    def usage(self) -> ResourceUsage:
        """What the payload and all that it started used, as far as it was measured."""
        runtime = None if self._child is None else self._child.status
        used = self._used
        # Until the payload starts there is nothing but the runtime in it.
        if used is None and self.box is not None and self.clock.payload_started:
            used = self.box.used()
        exited, wall_s = self._exited, self.clock.payload_s()
        if exited is not None and self._spent is not None:
            exited = since_hand_over(exited, self._spent, wall_s or 0.0)
        return measured(exited, runtime, used, wall_s, runtime_inside=self._entered is not None)

    def let_go(self) -> None:
        """Let a container that waits end, without waiting for that."""
        if not self._ready:
            self._hang_up()

    def close(self) -> None:
        """End what still runs, take the container away, free every descriptor; idempotent."""
        if self.verdict is None:
            # Callbacks and sinks of the caller's have no say any more.
            self.stdio.close()
            if self._waits:
                # Where nothing runs a hang-up is enough.
                self.let_go()
            if self._child is not None:
                self._ending.begin(Reason.CANCEL, time.monotonic(), 0.0)
                self.wait()
        super()._let_go()
        self._see_off()
        self.stdio.close()
        if self._child is not None:
            self._child.close()
        self._wishes.close()
        self._init.close()
        if self._printed >= 0:
            os.close(self._printed)
            self._printed = -1

    def _see_off(self) -> None:
        """Wait for the end of a runtime whose payload was reported before: bounded, then by
        force."""
        if self._child is None:
            return
        for patience_s in (CLEANUP_S, SETTLE_S):
            give_up_at = time.monotonic() + patience_s
            while self._child.wait(NUDGE_S) is None and time.monotonic() < give_up_at:
                self._child.kill(signal.SIGCHLD)
            if self._child.status is None:
                self._give_up()

    # ------------------------------------------------------------------------------- the loop
    def _watched(self) -> Watched:
        assert self._child is not None
        found = super()._watched()
        if self._child.status is None:
            found[self._child.pidfd] = select.POLLIN, self._child.poll
            if self.on_emptied is not None and self._report is not None and self._init.handle >= 0:
                found[self._init.handle] = select.POLLIN, self._empty
        return found

    def _empty(self) -> None:
        # Process 1 ends when all others of its namespace are dead (pid_namespaces(7)), and with
        # gVisor's kernel, which speaks for it, all that it runs.
        on_emptied, self.on_emptied = self.on_emptied, None
        assert on_emptied is not None
        on_emptied()

    def _advance(self, now: float) -> None:
        assert self._child is not None
        if self._runtime_is_gone and not self._ready:
            # What a dead runtime left half made holds the socket, and will never be ready.
            self._cleanup_at = self._cleanup_at or now + SETTLE_S
        if self._nudge_at is not None and now >= self._nudge_at:
            self._nudge_at = now + NUDGE_S
            self._child.kill(signal.SIGCHLD)
        super()._advance(now)

    @property
    def _runtime_is_gone(self) -> bool:
        assert self._child is not None
        return self._child.status is not None

    def _moments(self) -> list[float | None]:
        return [*super()._moments(), self._nudge_at]

    def _is_over(self) -> bool:
        ended = self._child is not None and self._child.status is not None
        return (self._waits and self._report is not None) or (ended and not self._init.is_open)

    def _on_timeout(self, now: float) -> None:
        if self._ready:
            super()._on_timeout(now)
            return
        if (more_s := self._patience.renew()) > 0:
            self._timeout_at = now + more_s
            return
        self._given_up = f"it had not started the container after {self._patience.limit_s:.3g} s"
        self._give_up()

    # ------------------------------------------------------------------------------- the init
    def _on_ready(self, pid: int) -> None:
        self._init.meet(pid)
        if wrong := self._wrong(pid):
            self._given_up = wrong
            self._give_up()
            return
        if self.box is not None:
            self.box.mark()
        self._timeout_at = None
        self._is_there = True
        self._tell(Step.CREATED)
        if not self._waits:
            self._go()

    def _go(self) -> None:
        if self._waits and self.box is not None and self._entered is not None:
            # A kernel in user space has used some since.
            self.box.mark()
        self._begin()
        if self._ending.reason is not None:
            # Cancelled meanwhile: an init that hears a hang-up ends without a payload.
            self._hang_up()
            return
        command = self._command() if self._waits else None
        # Of a container without a cgroup there is nothing to be read.
        ends = self.box is None and not self._waits
        self._ready = self._init.go(self.stdio, command, ends=ends)
        self.stdio.release()

    def _wrong(self, pid: int) -> str:
        """What is not as it has to be before the payload may run; empty: nothing."""
        assert self._child is not None
        wrong = next((wrong for check in self._checks if (wrong := check(pid))), "")
        if wrong or self.box is None:
            return wrong
        # A kernel in user space has no process 1 of ours: the runtime's own processes are inside.
        return self.box.check(self._child.pid if self._client.quirks.enters_cgroup else pid)

    def _on_report(self, report: End | StartFailure) -> None:
        if self.box is not None:
            self.box.note()
        if not self._waits:
            self._cleanup_at = time.monotonic() + CLEANUP_S
        super()._on_report(report)
        if self.box is not None and not self._client.quirks.user_kernel:
            # All but the init has ended, and the runtime takes its time to.
            self._used = self.box.used()

    def _let_go(self) -> None:
        # What waited for its command is let go when the caller has its result.
        if not self._waits:
            super()._let_go()

    def _hang_up(self) -> None:
        if self._init.hang_up() and not (self._waits and self._report):
            self._cleanup_at = self._cleanup_at or time.monotonic() + CLEANUP_S
        self._nudge_at = self._nudge_at or time.monotonic() + NUDGE_S
        self.stdio.release()

    # ------------------------------------------------------------------------------ the ending
    def _kill_inside(self) -> None:
        if self._waits and not self._ready:
            # Its init hears a hang-up, and ends with all that runs beside it.
            self._hang_up()
        else:
            super()._kill_inside()

    def _kill_all(self) -> None:
        """From outside: the whole cgroup, and process 1."""
        if self.box is not None:
            self.box.kill()
        self._init.kill()

    def _give_up(self) -> None:
        """Last: the init hears a hang-up, then the runtime is killed; `_conclude` deletes."""
        assert self._child is not None
        self._kill_all()
        self._hang_up()
        self._child.kill()

    def _settle(self) -> None:
        if self.box is not None:
            if self._report is None:
                self.box.note()
            if self._used is None:
                self._used = self.box.used()
            if lost := self.box.lost():
                self.lost_limits, self.loss = tuple(lost), self.box.loss()

    def _evidence(self) -> Evidence:
        assert self._child is not None
        status = self._child.status
        evidence = super()._evidence()
        if status is not None:
            ended = status.exit_code if status.signal is None else -status.signal
            evidence = evidence._replace(runtime_status=ended)
            if ended == KILLED and self._client.quirks.user_kernel:
                # There a payload may kill process 1, and before that has said STARTED.
                evidence = evidence._replace(started=self._ready)
        if not isinstance(self._report, End):
            words = self._given_up or error_words(
                self._bundle.log,
                self._printed,
                cause_first=self._client.quirks.cause_first,
            )
            evidence = evidence._replace(runtime_error=words)
        if self._used is None:
            return evidence
        return evidence._replace(
            oom_killed=self._used.grown("oom_kills"),
            pids_limit_hit=self._used.grown("pids_limit_hits"),
        )
