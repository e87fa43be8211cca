"""One call of a plan: launched, driven to its end, told as a result."""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ocisbx.backends.base import Call
from ocisbx.backends.oci import OciBackend
from ocisbx.bundle.directory import is_ours
from ocisbx.capture import check_input
from ocisbx.cgroup.box import limit_name
from ocisbx.errors import BundleError, CgroupError, InvalidState, OcisbxError
from ocisbx.outcome import Failure
from ocisbx.places import bundle_names, find_places
from ocisbx.probe.cgroups import doubted
from ocisbx.result import EnforcementState, RunResult, Termination, Timings
from ocisbx.values import check_command, check_env, utc_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ocisbx.audit import AuditLine
    from ocisbx.backends.driven import Driven
    from ocisbx.backends.execution import OciExecution
    from ocisbx.capture import Input
    from ocisbx.outcome import Verdict
    from ocisbx.plan import Plan
    from ocisbx.result import Captured, Enforced, Hint
    from ocisbx.slots import Slot

    OnData = Callable[[bytes], None] | None
    Hold = Callable[[OciExecution], None] | None
    Launched = tuple[OciExecution, Verdict | Failure, tuple[Captured, Captured]]

T = TypeVar("T")


class Renewal(NamedTuple):
    """What replaces a plan whose runtime failed: `compile` chooses anew, `keep` is for what is then
    used. What would hold less than the plan did is not."""

    compile: Callable[[], Plan]
    keep: Callable[[Plan], None]


class Waiting(NamedTuple):
    """How a call waits for its turn, where sandboxes are counted: `pause` sleeps, and raises to
    give up; `tell` is told once when it takes long."""

    pause: Callable[[float], None] = time.sleep
    tell: Callable[[str], None] | None = None


def run_plan(
    plan: Plan,
    call: Call,
    *,
    resolve_s: float = 0.0,
    audit: bool = True,
    hold: Hold = None,
    renewal: Renewal | None = None,
    waiting: Waiting | None = None,
) -> RunResult:
    """Run one call of a plan to its end; `hold` is shown the execution once it has started.

    `renewal` gives another plan where this one aged while it waited for its turn, and once where
    the runtime failed before the payload ran.

    Raises:
        PolicyDenied: `[commands]` does not let it run.
        InvalidState: as many sandboxes run as may, and no turn came in time.
        OcisbxError: ocisbx or the runtime failed; the payload's own end is never an exception.
    """
    if call.argv:
        plan.commands.check(call.argv)
    with turn(plan, waiting or Waiting()) as slot:
        if slot is not None and slot.waited:
            plan = still_true(plan, renewal)
        started_at = utc_text()
        launch = Launch(call, hold, slot, started_at if audit else "")
        try:
            execution, verdict, captured = launch(plan)
        except CgroupError as error:
            if renewal is None:
                raise
            plan, (execution, verdict, captured) = launch_with_less(plan, error, renewal, launch)
        failed = isinstance(verdict, Failure) and not execution.payload_ran
        if failed and (second := choose_again(plan, renewal)) is not None:
            plan = second
            execution, verdict, captured = launch(plan)
    told = Told(plan, call, execution, verdict, captured)
    return conclude(told, started_at, resolve_s=resolve_s, audit=audit, line=launch.line)


@contextlib.contextmanager
def recorded(plan: Plan, call: Call, transcript: str | None) -> Iterator[Call]:
    """The call, of whose terminal a transcript is written to a new file.

    Raises:
        ConfigError: it has no terminal, or the file cannot be made.
    """
    if transcript is None:
        yield call
        return
    from ocisbx.terminal.device import DEFAULT_SIZE  # noqa: PLC0415 -- for terminals only
    from ocisbx.terminal.transcript import (  # noqa: PLC0415 -- for who wants one
        Transcript,
        check_terminal,
    )

    check_terminal(has_one=plan.terminal)
    with Transcript.into(transcript, DEFAULT_SIZE, call.term) as told:
        yield call._replace(recorder=told)


def given_call(
    command: Sequence[str] | str,
    *,
    input: Input = None,
    shell: bool = False,
    on_stdout: OnData = None,
    on_stderr: OnData = None,
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    user: tuple[int, int] | None = None,
) -> Call:
    """The call of a command that a container is given which was there before it.

    Raises:
        ConfigError: the command is no list of strings, or too long; the input is a text.
    """
    return Call(
        argv=check_command(command, shell=shell),
        environment=os.environ,
        extra_environment=check_env(env),
        stdin=check_input(input),
        on_stdout=on_stdout,
        on_stderr=on_stderr,
        workdir=workdir,
        user=user,
    )


class Told(NamedTuple):
    """All that there is to tell of a call that has ended."""

    plan: Plan
    call: Call
    execution: Driven
    verdict: Verdict | Failure
    captured: tuple[Captured, Captured]


def conclude(
    told: Told,
    started_at: str,
    *,
    resolve_s: float,
    audit: bool = False,
    line: AuditLine | None = None,
) -> RunResult:
    """The result of a call that has ended, with its line in the audit log: `line`, if it was begun
    before.

    Raises:
        RuntimeFailed, TerminalError: it was not the payload that ended.
    """
    if isinstance(told.verdict, Failure):
        raise told.execution.failure(
            told.verdict.what,
            why=told.verdict.why,
            remedy=f"`ocisbx doctor` checks this host; the runtime was {told.plan.runtime.path}",
        )
    result = _result(told, told.verdict, started_at, resolve_s)
    if line is not None:
        line.write(result)
    elif audit:
        note(result, told.plan)
    return result


def note(result: RunResult, plan: Plan) -> None:
    """Write the call's line into the audit log."""
    from ocisbx.audit import AuditLine  # noqa: PLC0415 -- for the end: a supervisor waits without

    AuditLine(result.id, result.started_at, result.command, plan).write(result)


def is_counted(plan: Plan) -> bool:
    """Whether there may be a cap."""
    return plan.max_sandboxes is not None or bool(os.environ.get("OCISBX_MAX_SANDBOXES"))


def turn(plan: Plan, waiting: Waiting) -> AbstractContextManager[Slot | None]:
    """A slot, where a cap says that one is needed."""
    if not is_counted(plan):
        return contextlib.nullcontext()
    from ocisbx.slots import find_cap, hold_slot  # noqa: PLC0415 -- for those who have a cap

    cap = find_cap(plan.max_sandboxes, plan.wait_s)
    return contextlib.nullcontext() if cap is None else hold_slot(cap, *waiting)


def still_true(plan: Plan, renewal: Renewal | None) -> Plan:
    """The plan after a wait, or a new one: what has to be protected may have come meanwhile."""
    if plan.holds():
        return plan
    if renewal is None:
        raise InvalidState("the host changed while this waited for its turn", remedy="run it again")
    second = renewal.compile()
    renewal.keep(second)
    return second


class Launch:
    """Launches a call, by whatever plan, and drives it to its end."""

    def __init__(self, call: Call, hold: Hold, slot: Slot | None, audited_at: str) -> None:
        """`audited_at`: when the call began, where it has a line in the audit log."""
        self._call = call
        self._hold = hold
        self._slot = slot
        self._audited_at = audited_at
        # Begun while the call runs: a supervisor's is made at the end, which saves it memory.
        self.line: AuditLine | None = None
        self._has_begun = False

    def __call__(self, plan: Plan) -> Launched:
        try:
            return self._once(plan)
        except BundleError:
            # A supervisor's caller has swept; and what has begun is not begun again.
            if self._call.id is not None or self._has_begun:
                raise
        # The disk may be full of what drivers that were killed have left.
        _sweep()
        return self._once(plan)

    def _once(self, plan: Plan) -> Launched:
        call = self._call
        with OciBackend().launch(plan, call) as execution:
            self._has_begun = True
            if self._slot is not None:
                self._slot.note(execution.id)
            if self._hold is not None:
                self._hold(execution)
            if call.id is None:
                # Else a supervisor, which waits without what this takes.
                if self._audited_at:
                    execution.meanwhile(partial(self._begin_line, execution.id, plan))
                # While the runtime starts: a payload might have to wait for it.
                sweep_in_passing()
            verdict = execution.wait()
            assert verdict is not None
            captured = execution.stdio.finish(keep=call.keep_in is not None)
        execution.clock.cleaned = time.monotonic()
        return execution, verdict, captured

    def _begin_line(self, container_id: str, plan: Plan) -> None:
        """While the payload runs: beside a runtime that starts it would take its processor."""
        from ocisbx.audit import begin_line  # noqa: PLC0415 -- as said above

        self.line = begin_line(container_id, self._audited_at, self._call.argv, plan)


# When somebody looked for leftovers last, by the place of the bundles.
_swept_at: dict[str, float] = {}
SWEPT_S = 1.0


def sweep_in_passing() -> None:
    """What drivers that were killed have left, at most once a second."""
    now, place = time.monotonic(), find_places().bundles
    if now < _swept_at.get(place, -SWEPT_S) + SWEPT_S:
        return
    _swept_at[place] = now
    with contextlib.suppress(OSError):
        if not all(map(is_ours, bundle_names())):
            _sweep()


def _sweep() -> None:
    from ocisbx.backends.gc import sweep  # noqa: PLC0415 -- for those who have something to look at

    sweep()


def launch_with_less(
    plan: Plan, error: CgroupError, renewal: Renewal, launch: Callable[[Plan], T]
) -> tuple[Plan, T]:
    """With what this host has by now (a controller may be gone), else without any cgroup: what a
    preset wishes is declared as not held. It is for this call only: why it failed may have passed
    by the next.

    Raises:
        Unsupported: the caller demands a limit that cannot be had.
    """
    fresh = renewal.compile()
    if fresh.cgroup != plan.cgroup:
        try:
            return fresh, launch(fresh)
        except CgroupError as again:
            error = again
    with doubted(f"{error.what}: {error.why}"):
        fresh = renewal.compile()
    return fresh, launch(fresh)


def choose_again(plan: Plan, renewal: Renewal | None) -> Plan | None:
    """A plan on what proves sound now; None: nothing does, or only what holds less."""
    if renewal is None:
        return None
    from ocisbx.backends.compile import forget  # noqa: PLC0415 -- the models, for a failure only

    forget(plan)
    try:
        second = renewal.compile()
    except OcisbxError:
        return None
    if _holds_less(second.enforcement, plan.enforcement):
        return None
    renewal.keep(second)
    return second


def _holds_less(one: Mapping[str, Enforced], other: Mapping[str, Enforced]) -> bool:
    """Whether something of `other` is held less well by `one`."""
    order = list(EnforcementState)
    kernels = [entries["kernel"].actual for entries in (other, one)]
    return kernels == ["own", "shared"] or any(
        name not in one or order.index(one[name].state) > order.index(entry.state)
        for name, entry in other.items()
    )


def _result(told: Told, verdict: Verdict, started_at: str, resolve_s: float) -> RunResult:
    plan, call, execution, _, captured = told
    clock = execution.clock
    never_ran = verdict.termination in (Termination.NOT_FOUND, Termination.NOT_EXECUTABLE)
    return RunResult(
        id=execution.id,
        command=call.argv,
        termination=verdict.termination,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        captured_stdout=captured[0],
        captured_stderr=captured[1],
        runtime=plan.runtime,
        usage=execution.usage(),
        enforcement=_enforcement(plan, execution),
        bundle=None,
        started_at=started_at,
        timings=Timings(
            resolve_s=resolve_s,
            bundle_s=clock.bundle_made - clock.started,
            runtime_s=clock.runtime_ended - clock.bundle_made,
            cleanup_s=clock.cleaned - clock.runtime_ended,
        ),
        hint=_explain(plan, call, verdict) if never_ran else None,
    )


def _enforcement(plan: Plan, execution: Driven) -> dict[str, Enforced]:
    """What held, to the end."""
    entries = dict(plan.enforcement)
    if not execution.lost_limits:
        return entries
    for name in {limit_name(file) for file in execution.lost_limits} & entries.keys():
        entries[name] = entries[name]._replace(state=EnforcementState.PARTIAL, how=execution.loss)
    return entries


def _explain(plan: Plan, call: Call, verdict: Verdict) -> Hint:
    from ocisbx.hints import explain  # noqa: PLC0415 -- for a payload that never ran only

    return explain(plan, call.argv, verdict.termination)
