"""OciExecution: one container from its bundle to its end, driven by one poll loop.

The loop watches the init's socket, the runtime's end, the payload's streams and the caller's
wishes, in one thread and without a thread of its own: `wait()` is the loop. Who wants to do
something else meanwhile runs it in a thread.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

from ocisbx.backends.base import Clock, Step
from ocisbx.backends.channel import InitChannel
from ocisbx.backends.endings import SETTLE_S, Escalation, Patience, Ways, measured
from ocisbx.backends.wishes import Wishes
from ocisbx.cgroup.box import INNER
from ocisbx.init import protocol
from ocisbx.outcome import End, Evidence, Failure, Reason, StartFailure, Verdict, classify
from ocisbx.runtime.log import error_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ocisbx.backends.base import Call
    from ocisbx.backends.stdio import PayloadStdio
    from ocisbx.bundle.directory import BundleDirectory
    from ocisbx.cgroup.box import Box
    from ocisbx.command import Child
    from ocisbx.plan import Plan
    from ocisbx.result import ResourceUsage
    from ocisbx.runtime.client import RuntimeClient

# From the init's report to the runtime's own end (deleting its state): bounded, then by force.
CLEANUP_S = 10.0


class OciExecution:
    """Implements `backends.base.Execution` for a runc-shaped runtime."""

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
        self.id = container_id
        self.box = box
        self._checks = checks
        self.clock = Clock(started=time.monotonic())
        self.bundle_path = bundle.path
        self.stdio = stdio
        self._plan = plan
        self._call = call
        self._bundle = bundle
        self._client = client
        self._ending = Escalation(
            Ways(self._terminate, self._kill_inside, self._kill_all, self._give_up)
        )
        # What the runtime prints: in memory, since it is nearly always nothing.
        self._printed = os.memfd_create("runtime", os.MFD_CLOEXEC)
        self._wishes = Wishes()
        # What else the loop waits for: descriptors, and what is done when one can be read.
        self.attended: dict[int, Callable[[], object]] = {}
        self._init = InitChannel()
        self._child: Child | None = None
        self._ready = False
        self._started = False
        self._report: End | StartFailure | None = None
        self._exited: protocol.Exited | None = None
        self._patience = Patience(call.start_timeout_s)
        self._timeout_at: float | None = None
        self._cleanup_at: float | None = None
        # Why it was given up before the payload ran.
        self._given_up = ""
        # Files of the cgroup whose limits did not hold to the end, and why.
        self.lost_limits: tuple[str, ...] = ()
        self.loss = ""
        self.verdict: Verdict | Failure | None = None

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
            )
        finally:
            theirs.close()
            os.close(null)
        self._timeout_at = time.monotonic() + self._patience.limit_s
        self._tell(Step.RUNTIME_STARTED)

    def wait(self, timeout_s: float | None = None) -> Verdict | Failure | None:
        """Drive it to its end; None when `timeout_s` passed first."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self.verdict is None:
            if until is not None and time.monotonic() >= until:
                return None
            self._turn(until)
        return self.verdict

    def kill(self, number: int) -> None:
        """Signal the payload's process; from any thread."""
        self._wishes.add(lambda: self._send(number, protocol.Target.PAYLOAD))

    def cancel(self, grace_s: float | None = None) -> None:
        """End it: SIGTERM, a grace, SIGKILL; asked again, SIGKILL. From any thread."""
        begin = self._ending.begin
        self._wishes.add(lambda: begin(Reason.CANCEL, time.monotonic(), self._grace(grace_s)))

    @property
    def init_pid(self) -> int:
        """Process 1 of the container, as we number it; 0 where none is told (yet)."""
        return self._init.pid

    @property
    def _entered(self) -> str | None:
        """The cgroup that the runtime itself is started in."""
        enters = self.box is not None and self._client.quirks.enters_cgroup
        return f"{self.box.path}/{INNER}" if self.box is not None and enters else None

    @property
    def payload_ran(self) -> bool:
        """Whether the init was given the payload: then it must not be run a second time."""
        return self._ready

    def _grace(self, given_s: float | None) -> float:
        # Before the payload runs there is nobody to be graceful to.
        return (self._plan.grace_s if given_s is None else given_s) if self._ready else 0.0

    def end_now(self, reason: Reason) -> None:
        """SIGKILL inside, at once; for the loop's own thread."""
        # Of two streams beyond their limits the second is no reason to hurry.
        if self._ending.reason is not reason:
            self._ending.begin(reason, time.monotonic(), 0.0)

    def capture_path(self, stream: str) -> str:
        """Where this stream's capture lies while the payload runs."""
        return f"{self._bundle.path}/{stream}"

    def usage(self) -> ResourceUsage:
        """What the payload and all that it started used, as far as it was measured."""
        runtime = None if self._child is None else self._child.status
        # Until the payload starts there is nothing but the runtime in it.
        used = self.box.used() if self.box is not None and self.clock.payload_started else None
        inside = self._entered is not None
        return measured(self._exited, runtime, used, self.clock.payload_s(), runtime_inside=inside)

    def close(self) -> None:
        """End what still runs, take the container away, free every descriptor; idempotent."""
        if self.verdict is None:
            # Callbacks and sinks of the caller's have no say any more.
            self.stdio.close()
        if self.verdict is None and self._child is not None:
            self._ending.begin(Reason.CANCEL, time.monotonic(), 0.0)
            self.wait()
        self._hang_up()
        self.stdio.close()
        if self._child is not None:
            self._child.close()
        self._wishes.close()
        self._init.close()
        if self._printed >= 0:
            os.close(self._printed)
            self._printed = -1

    # ------------------------------------------------------------------------------- the loop
    def _turn(self, until: float | None) -> None:
        """Wait for one event and deal with everything that is there."""
        assert self._child is not None
        watched = {self._wishes.descriptor: self._wishes.take, **self.attended}
        poller = select.poll()
        for descriptor in watched:
            poller.register(descriptor, select.POLLIN)
        if self._init.is_open:
            watched[self._init.fileno()] = self._take_packet
            poller.register(self._init, select.POLLIN)
        if self._child.status is None:
            watched[self._child.pidfd] = self._child.poll
            poller.register(self._child.pidfd, select.POLLIN)
        # What was read of the caller's input before the payload is there would be lost to a second
        # attempt on another runtime.
        feeder = self.stdio.feeder if self._ready else None
        for pump in (feeder, *self.stdio.streams):
            wanted = None if pump is None else pump.watch()
            if pump is not None and wanted is not None:
                watched[wanted[0]] = pump.pump
                poller.register(*wanted)
        for descriptor, _ in poller.poll(self._patience_ms(until)):
            watched[descriptor]()
        self._advance(time.monotonic())

    def _patience_ms(self, until: float | None) -> float | None:
        times = [moment for moment in (until, *self._moments()) if moment is not None]
        return max(0.0, min(times) - time.monotonic()) * 1000 if times else None

    def _moments(self) -> list[float | None]:
        """When something falls due."""
        return [self._timeout_at, self._cleanup_at, self._ending.next_at]

    def _advance(self, now: float) -> None:
        """Let time pass, and see whether all is over."""
        assert self._child is not None
        if self._timeout_at is not None and now >= self._timeout_at:
            self._timeout_at = None
            self._on_timeout(now)
        self._ending.advance(now)
        if self._child.status is not None and not self._ready:
            # What a dead runtime left half made holds the socket, and will never be ready.
            self._cleanup_at = self._cleanup_at or now + SETTLE_S
        if self._cleanup_at is not None and now >= self._cleanup_at:
            self._cleanup_at = None
            self._give_up()
        if self._child.status is not None and not self._init.is_open:
            self._conclude()

    def _on_timeout(self, now: float) -> None:
        if self._ready:
            self._ending.begin(Reason.TIMEOUT, now, self._plan.grace_s)
            return
        if (more_s := self._patience.renew()) > 0:
            self._timeout_at = now + more_s
            return
        self._given_up = f"it had not started the container after {self._patience.limit_s:.3g} s"
        self._give_up()

    # ------------------------------------------------------------------------------- the init
    def _take_packet(self) -> None:
        try:
            received = self._init.receive()
        except BlockingIOError:
            return
        if received is None:
            self._hang_up()
            return
        packet = received.packet
        if isinstance(packet, protocol.Ready):
            self._on_ready(received.pid)
        elif isinstance(packet, protocol.Started):
            self._started = True
            self._tell(Step.RUNNING)
        elif isinstance(packet, protocol.Failed):
            self._on_report(StartFailure(packet.stage, packet.errno))
        else:
            self._exited = packet
            own = packet.kind is protocol.Kind.EXITED
            self._on_report(
                End(
                    exit_code=packet.status if own else None,
                    signal=None if own else packet.status,
                    signals_delivered=packet.signals,
                )
            )

    def _on_ready(self, pid: int) -> None:
        self._init.meet(pid)
        if wrong := self._wrong(pid):
            self._given_up = wrong
            self._give_up()
            return
        if self.box is not None:
            self.box.mark()
        self._ready = True
        self.clock.payload_started = time.monotonic()
        self._tell(Step.CREATED)
        if self._ending.reason is not None:
            # Cancelled meanwhile: an init that hears a hang-up ends without a payload.
            self._hang_up()
            return
        now = time.monotonic()
        limit_s = self._plan.timeout_s
        self._timeout_at = None if limit_s is None else now + limit_s
        self._init.go(self.stdio, combine=self._plan.combine)
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
        self._report = report
        self._timeout_at = None
        self._ending.stop()
        self._cleanup_at = time.monotonic() + CLEANUP_S
        self._tell(Step.REPORTED)
        if self.box is not None:
            self.box.note()
        self._init.end()
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the socket: an init that still lives takes it as the driver's end, and ends."""
        if self._init.hang_up():
            self._cleanup_at = self._cleanup_at or time.monotonic() + CLEANUP_S
        self.stdio.release()

    # ------------------------------------------------------------------------------ the ending
    def _send(self, number: int, target: protocol.Target) -> None:
        self._init.send(number, target)

    def _terminate(self) -> None:
        self._send(signal.SIGTERM, protocol.Target.PAYLOAD)

    def _kill_inside(self) -> None:
        self._send(signal.SIGKILL, protocol.Target.ALL)

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

    def _conclude(self) -> None:
        """The runtime has ended and the socket is closed: say what happened.

        Everything inside is dead, so what the pipes hold now is all; only a reader of the
        caller's that is slow may still have to be fed.
        """
        assert self._child is not None
        self._ending.stop()
        for stream in self.stdio.streams:
            if not stream.closed:
                stream.drain()
        if self._ending.reason is not Reason.CANCEL and any(
            watched is not None and watched[1] == select.POLLOUT
            for watched in (stream.watch() for stream in self.stdio.streams)
        ):
            return
        self.clock.runtime_ended = time.monotonic()
        if self.box is not None:
            # Of a payload without a report.
            self.box.note()
            if lost := self.box.lost():
                self.lost_limits, self.loss = tuple(lost), self.box.loss()
        self.verdict = classify(self._evidence())

    def _evidence(self) -> Evidence:
        assert self._child is not None
        status = self._child.status
        assert status is not None
        ended = status.exit_code if status.signal is None else -status.signal
        words = ""
        if not isinstance(self._report, End):
            words = self._given_up or error_words(
                self._bundle.log,
                self._printed,
                cause_first=self._client.quirks.cause_first,
            )
        evidence = Evidence(
            ready=self._ready,
            started=self._started,
            report=self._report,
            reason=self._ending.reason,
            runtime_status=ended,
            runtime_error=words,
        )
        if self.box is None:
            return evidence
        used = self.box.used()
        return evidence._replace(
            oom_killed=used.grown("oom_kills"), pids_limit_hit=used.grown("pids_limit_hits")
        )

    def _tell(self, step: Step) -> None:
        if self._call.on_step is not None:
            self._call.on_step(step)
