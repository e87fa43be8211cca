"""Driven: one command, from where it may start to its end, driven by one poll loop.

The loop watches the init's socket, the command's streams, the caller's wishes and what a subclass
adds (a runtime), in one thread and without a thread of its own: `wait()` is the loop. Who wants to
do something else meanwhile runs it in a thread.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

from ocisbx.backends.base import Clock, Step
from ocisbx.backends.channel import InitChannel
from ocisbx.backends.endings import Escalation, Ways, measured
from ocisbx.backends.wishes import Wishes
from ocisbx.command import LOOK_S
from ocisbx.errors import RuntimeFailed
from ocisbx.init import protocol
from ocisbx.init.wire import Command
from ocisbx.outcome import End, Evidence, Failure, Reason, StartFailure, Verdict, classify

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.backends.base import Call
    from ocisbx.backends.stdio import PayloadStdio
    from ocisbx.errors import OcisbxError
    from ocisbx.plan import Plan
    from ocisbx.result import ResourceUsage

    # Descriptors that the loop waits for: the events (poll(2)), and what is done then.
    Watched = dict[int, tuple[int, Callable[[], object]]]

# From the init's report to the runtime's own end (deleting its state): bounded, then by force.
CLEANUP_S = 10.0


class Driven:
    """Implements what all of `backends.base.Execution` have in common."""

    def __init__(self, container_id: str, plan: Plan, call: Call, stdio: PayloadStdio) -> None:
        self.id = container_id
        self.clock = Clock(started=time.monotonic())
        self.stdio = stdio
        # Files of the cgroup whose limits did not hold to the end, and why.
        self.lost_limits: tuple[str, ...] = ()
        self.loss = ""
        self.verdict: Verdict | Failure | None = None
        self._plan = plan
        self._call = call
        self._ending = Escalation(
            Ways(self._terminate, self._kill_inside, self._kill_all, self._give_up)
        )
        self._wishes = Wishes()
        self._meanwhile: Callable[[], object] | None = None
        # What else the loop waits for: descriptors, and what is done when one can be read.
        self.attended: dict[int, Callable[[], object]] = {}
        self._alarms: list[tuple[float, Callable[[], object]]] = []
        self._init = InitChannel()
        self._ready = False
        self._started = False
        self._report: End | StartFailure | None = None
        self._exited: protocol.Exited | None = None
        self._timeout_at: float | None = None
        self._cleanup_at: float | None = None
        # What a failure of it is raised as.
        self.failure: type[OcisbxError] = RuntimeFailed
        # The payload's pid in the container.
        self.payload_pid = 0
        # Why it was given up before the payload ran.
        self._given_up = ""

    def wait(self, timeout_s: float | None = None) -> Verdict | Failure | None:
        """Drive it to its end; None when `timeout_s` passed first."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self.verdict is None:
            if until is not None and time.monotonic() >= until:
                return None
            self._turn(until)
        return self.verdict

    @property
    def speakers(self) -> list[int]:
        """What is readable as soon as there is something to be heard."""
        return [*self._watched()]

    def attend(self) -> None:
        """Deal with what is there now, without waiting."""
        self._turn(time.monotonic())

    def kill(self, number: int) -> None:
        """Signal the payload's process; from any thread."""
        self._wishes.add(lambda: self._send(number, protocol.Target.PAYLOAD))

    def cancel(self, grace_s: float | None = None) -> None:
        """End it: SIGTERM, a grace, SIGKILL; asked again, SIGKILL. From any thread."""
        begin = self._ending.begin
        self._wishes.add(lambda: begin(Reason.CANCEL, time.monotonic(), self._grace(grace_s)))

    def set_alarm(self, at: float, action: Callable[[], object]) -> None:
        """Have the loop do this once, at that moment of time.monotonic(); for its own thread."""
        self._alarms.append((at, action))

    def usage(self) -> ResourceUsage:
        """What the payload and all that it waited for used (getrusage(2)), once it has ended."""
        return measured(self._exited, None, None, self.clock.payload_s())

    def capture_path(self, stream: str) -> str:
        """Where this stream's capture lies while the payload runs."""
        return self.stdio.capture_path(stream)

    def meanwhile(self, action: Callable[[], object]) -> None:
        """Have this done, by the loop's own thread, once the payload runs (where an init tells)."""
        if self._started:
            action()
        else:
            self._meanwhile = action

    def end_now(self, reason: Reason) -> None:
        """SIGKILL inside, at once; for the loop's own thread."""
        # Of two streams beyond their limits the second is no reason to hurry.
        if self._ending.reason is not reason:
            self._ending.begin(reason, time.monotonic(), 0.0)

    @property
    def payload_ran(self) -> bool:
        """Whether the init was given the payload: then it must not be run a second time."""
        return self._ready

    def _grace(self, given_s: float | None) -> float:
        # Before the payload runs there is nobody to be graceful to.
        return (self._plan.grace_s if given_s is None else given_s) if self._ready else 0.0

    # ------------------------------------------------------------------------------- the loop
    def _turn(self, until: float | None) -> None:
        """Wait for one event and deal with everything that is there."""
        watched = self._watched()
        poller = select.poll()
        for descriptor, (events, _) in watched.items():
            poller.register(descriptor, events)
        for descriptor, _ in poller.poll(self._patience_ms(until)):
            watched[descriptor][1]()
        self._advance(time.monotonic())

    def _watched(self) -> Watched:
        """All that the loop waits for at this moment."""
        found: Watched = {self._wishes.descriptor: (select.POLLIN, self._wishes.take)}
        for descriptor, action in self.attended.items():
            found[descriptor] = select.POLLIN, action
        if self._init.is_open:
            found[self._init.fileno()] = select.POLLIN, self._take_packet
        # What was read of the caller's input before the payload is there would be lost to a second
        # attempt on another runtime.
        feeder = self.stdio.feeder if self._ready else None
        for pump in (feeder, *self.stdio.streams):
            wanted = None if pump is None else pump.watch()
            if pump is not None and wanted is not None:
                found[wanted[0]] = wanted[1], pump.pump
        return found

    def _patience_ms(self, until: float | None) -> float:
        now = time.monotonic()
        soonest = now + LOOK_S
        for moment in (until, *self._moments()):
            if moment is not None and moment < soonest:
                soonest = moment
        return max(0.0, soonest - now) * 1000

    def _moments(self) -> list[float | None]:
        """When something falls due."""
        alarms_at = [at for at, _ in self._alarms]
        return [self._timeout_at, self._cleanup_at, self._ending.next_at, *alarms_at]

    def _advance(self, now: float) -> None:
        """Let time pass, and see whether all is over."""
        if self._timeout_at is not None and now >= self._timeout_at:
            self._timeout_at = None
            self._on_timeout(now)
        if self._alarms:
            self._ring(now)
        self._ending.advance(now)
        if self._cleanup_at is not None and now >= self._cleanup_at:
            self._cleanup_at = None
            self._give_up()
        if self._is_over():
            self._conclude()

    def _ring(self, now: float) -> None:
        for alarm in [one for one in self._alarms if now >= one[0]]:
            self._alarms.remove(alarm)
            alarm[1]()

    def _on_timeout(self, now: float) -> None:
        self._ending.begin(Reason.TIMEOUT, now, self._plan.grace_s)

    def _is_over(self) -> bool:
        """Whether nothing more can come but what the pipes hold."""
        return not self._init.is_open

    def _conclude(self) -> None:
        """Say what happened: everything inside is dead, so what the pipes hold now is all; only a
        reader of the caller's that is slow may still have to be fed."""
        self._ending.stop()
        if not self._drain() and self._ending.reason is not Reason.CANCEL:
            return
        self.clock.runtime_ended = time.monotonic()
        self._settle()
        self.verdict = classify(self._evidence())

    def _drain(self) -> bool:
        """Take what the pipes hold; whether nobody has to be waited for that takes it from us."""
        drained = True
        for stream in self.stdio.streams:
            if not stream.closed:
                stream.drain()
                watched = stream.watch()
                drained = drained and (watched is None or watched[1] != select.POLLOUT)
        return drained

    def _settle(self) -> None:
        """It has ended: the last look at what it leaves."""

    def _evidence(self) -> Evidence:
        return Evidence(
            ready=self._ready,
            started=self._started,
            report=self._report,
            reason=self._ending.reason,
            runtime_error=self._given_up,
        )

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
            self._init.features = packet.features
            self._on_ready(received.pid)
        elif isinstance(packet, protocol.Started):
            self._started = True
            self.payload_pid = packet.pid
            self._tell(Step.RUNNING)
            action, self._meanwhile = self._meanwhile, None
            if action is not None:
                action()
        elif isinstance(packet, protocol.Terminal):
            self._on_terminal(received.descriptors)
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
        """A container is there."""

    def _on_terminal(self, descriptors: tuple[int, ...]) -> None:
        """A command has a terminal; these are ours from now on. Nobody asked for one."""
        for descriptor in descriptors:
            os.close(descriptor)

    def _begin(self) -> None:
        """The payload may start: its time counts from here."""
        self._ready = True
        self.clock.payload_started = time.monotonic()
        limit_s = self._plan.timeout_s
        self._timeout_at = None if limit_s is None else time.monotonic() + limit_s

    def _command(self) -> Command:
        """The call, for an init that was started without one."""
        call = self._call
        environment = self._plan.payload_environment(
            call.environment, call.extra_environment, call.term
        )
        return Command(call.argv, environment, call.workdir or "", *(call.user or ()))

    def _on_report(self, report: End | StartFailure) -> None:
        self._report = report
        self._timeout_at = None
        self._ending.stop()
        self._tell(Step.REPORTED)
        self._let_go()

    def _let_go(self) -> None:
        """The report has been used."""
        self._init.end()
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the socket: an init that still lives takes it as the driver's end, and ends."""
        self._init.hang_up()
        self.stdio.release()

    # ------------------------------------------------------------------------------ the ending
    def _send(self, number: int, target: protocol.Target) -> None:
        self._init.send(number, target)

    def _terminate(self) -> None:
        self._send(signal.SIGTERM, protocol.Target.PAYLOAD)

    def _kill_inside(self) -> None:
        self._send(signal.SIGKILL, protocol.Target.ALL)

    def _kill_all(self) -> None:
        """From outside, where there is a way."""

    def _give_up(self) -> None:
        """The last way of all."""
        self._hang_up()

    def _tell(self, step: Step) -> None:
        if self._call.on_step is not None:
            self._call.on_step(step)
