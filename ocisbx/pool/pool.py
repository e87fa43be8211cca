"""Pool: every call in a container that was started before it, and has run nothing."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ocisbx.backends.ahead import Ahead
from ocisbx.calls import (
    Told,
    Waiting,
    choose_again,
    conclude,
    given_call,
    is_counted,
    note,
    turn,
)
from ocisbx.errors import ConfigError, RuntimeFailed, Unsupported
from ocisbx.outcome import Failure
from ocisbx.pool.demand import Bounds
from ocisbx.pool.member import Member, NotStarted, Order
from ocisbx.pool.store import Store
from ocisbx.pool.terms import POOLS_OWN, LimitedPlans, Terms
from ocisbx.pool.warm import letter, warm_command
from ocisbx.pool.workspaces import PoolSandbox
from ocisbx.quantities import parse_seconds
from ocisbx.quirks import find_quirks
from ocisbx.values import check_text, utc_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ocisbx.backends.base import Call
    from ocisbx.backends.execution import OciExecution
    from ocisbx.capture import Input
    from ocisbx.config import SandboxConfig
    from ocisbx.plan import Plan
    from ocisbx.result import RunResult
    from ocisbx.running import Running

    OnData = Callable[[bytes], None] | None

MOST_MEMBERS = 1024
MAX_AGE_S = 600.0
IDLE_S = 300.0
# How many members a call may lose before it has run anything.
ATTEMPTS = 4

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class Counts(NamedTuple):
    """How many members wait, are being started, and run a command."""

    waiting: int
    starting: int
    busy: int


class Pool:
    """Keeps single-use containers of one configuration ready; `run` gives a command to one.

    Each container runs one command and is gone. Thread-safe; after a fork the child has a pool of
    its own. As a context it starts its members at once, else with the first call.
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        size: int | tuple[int, int] = 8,
        *,
        max_age_s: float = MAX_AGE_S,
        idle_s: float = IDLE_S,
        audit: bool = True,
        start_timeout_s: float | None = None,
        warm: str | Sequence[str] | None = None,
        warm_imports: Sequence[str] = (),
        **fields: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> None:
        """`size`: how many wait; as (least, most) as many between them as the calls of the last
        seconds need. After `idle_s` without a call one (or `least`) is kept. No member gets older
        than `max_age_s`. `warm`: an interpreter (python3, node) that is started ahead and has
        imported `warm_imports`, or a command that speaks the handshake of ocisbx-pool(1), for
        `run_code`. The others are Sandbox's; with `workspace="per-call"` (or "per-call:ro") each
        call names its own.

        Raises:
            ConfigError: a field is unknown or wrong, or the size is not between 1 and 1024.
        """
        bounds = check_size(size)
        times = {"max_age_s": parse_seconds(max_age_s), "idle_s": parse_seconds(idle_s)}
        self._sandbox = PoolSandbox(config, start_timeout_s=start_timeout_s, **fields)
        self._start_timeout_s = start_timeout_s
        self._audit = audit
        self._warm = None if warm is None else warm_command(warm, warm_imports)
        self._store = Store(self._make, bounds, **times)
        self._limited = LimitedPlans(self._sandbox)
        # An interpreter has its own.
        self._ahead = Ahead(channels=0) if warm is None else None
        _pools.add(self)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the members: the first one before this returns.

        Raises:
            OcisbxError: this host cannot run them; nothing is left.
        """
        self._store.open()

    def close(self) -> None:
        """End them; a command that runs goes on to its end. Idempotent."""
        self._store.close()
        if self._ahead is not None:
            self._ahead.close()

    @property
    def counts(self) -> Counts:
        return Counts(*self._store.counts())

    def run(  # noqa: PLR0913 -- each by its name
        self,
        command: Sequence[str] | str,
        *,
        input: Input = None,
        shell: bool = False,
        on_stdout: OnData = None,
        on_stderr: OnData = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        timeout_s: float | None = None,
        limits: Mapping[str, Any] | None = None,
        workspace: str | os.PathLike[str] | None = None,
    ) -> RunResult:
        """Run one command to its end in a container that has run nothing.

        `env` is added to the configuration's, `workdir` and `timeout_s` replace it, `limits` (as
        in SandboxConfig, but rlimits) are set on the container's cgroup before the command starts.
        `workspace` (DIR, or "DIR:ro") is shown at /mnt/workspace, where the pool was made for that.

        Raises:
            ConfigError: the command is no list of strings, or too long; a limit is wrong; the
                workspace is not for a sandbox to have, or does not fit the pool.
            PolicyDenied: `[commands]` does not let it run; nothing was started.
            Unsupported: limits that this host cannot set; a rule of [filesystem] that does not hold
                in the workspace.
            InvalidState: the pool was closed.
            OcisbxError: ocisbx or the runtime failed.
        """
        call = given_call(
            command,
            input=input,
            shell=shell,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            env=env,
            workdir=workdir,
        )
        return self.run_call(call, Terms(timeout_s, limits, workspace))

    def run_code(
        self,
        code: str,
        arguments: Sequence[str] = (),
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> RunResult:
        """Run code, once, in an interpreter that has started before, in a container of its own.

        Options and errors are those of `run`, but `shell`. What it used counts from the hand-over.
        """
        terms = Terms.take(options)
        return self.run_call(self._code_call(code, arguments, **options), terms, code=code)

    def _code_call(self, code: str, arguments: Sequence[str], **options: Any) -> Call:  # noqa: ANN401 -- as above
        if self._warm is None:
            what = "this pool keeps no interpreter ready"
            raise ConfigError(what, remedy="Pool(warm='python3'), or run([...])")
        check_text(code, "code")
        call = given_call([*self._warm.shown, *arguments], **options)
        # No argument of any process: it may be as long as it likes.
        shown = len(self._warm.shown)
        return call._replace(argv=(*call.argv[:shown], code, *call.argv[shown:]))

    def start(self, command: Sequence[str] | str, **options: Any) -> Running:  # noqa: ANN401 -- typed where they arrive
        """Start one command and return; options and errors are those of `run`. The context's exit
        ends it."""
        return self.begin(command, **options).started()

    def begin(self, command: Sequence[str] | str, **options: Any) -> Running:  # noqa: ANN401 -- typed where they arrive
        """`start` for asyncio: it does not wait for a container."""
        from ocisbx.running import Running  # noqa: PLC0415 -- for those who start only

        terms = Terms.take(options)
        call = given_call(command, **options)
        return Running(lambda hold, pause: self.run_call(call, terms, hold=hold, pause=pause))

    def begin_code(
        self,
        code: str,
        arguments: Sequence[str] = (),
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> Running:
        """`begin`, of `run_code`."""
        from ocisbx.running import Running  # noqa: PLC0415 -- as above

        terms = Terms.take(options)
        call = self._code_call(code, arguments, **options)
        return Running(
            lambda hold, pause: self.run_call(call, terms, hold=hold, pause=pause, code=code)
        )

    def run_call(
        self,
        call: Call,
        terms: Terms = POOLS_OWN,
        *,
        hold: Callable[[OciExecution], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
        code: str | None = None,
    ) -> RunResult:
        """`run`, of a call that is made up already; `hold` is shown the execution as it starts.
        `code`: it is `run_code`."""
        if (self._warm is None) is not (code is None):
            what = "the containers of this pool have an interpreter that waits for code"
            raise ConfigError(what, remedy="give it with run_code, or run commands in another pool")
        limited = self._limited.find(terms.limits)
        limit_s = None if terms.timeout_s is None else parse_seconds(terms.timeout_s)
        with self._sandbox.workspace(terms.workspace) as workspace:
            for _ in range(ATTEMPTS):
                member, line = self._store.take(), None
                try:
                    plan = member.plan if limited is None else limited
                    if limit_s is not None:
                        plan = plan._replace(timeout_s=limit_s)
                    given = None if workspace is None else workspace.fit(member.workspaces)
                    mine = call
                    if given is not None:
                        plan = given.late.on(plan)
                        mine = call._replace(workdir=call.workdir or plan.workdir)
                    plan.commands.check(call.argv)
                    order = Order(plan, mine, self._letter(plan, mine, code), given, self._ahead)
                    if is_counted(plan):
                        # Its turn may be long in coming.
                        self._store.note_use(member)
                    with turn(plan, Waiting(pause)):
                        told = run_in(member, order, hold, self._store.note_use)
                    if told is not None:
                        result = conclude(*told, resolve_s=0.0, audit=False)
                        line = partial(note, result, plan) if self._audit else None
                        return result
                finally:
                    self._store.put_back(member, line)
        raise _all_ended()

    @contextlib.contextmanager
    def lend(self, workspace: str | None = None) -> Iterator[tuple[Member, Plan]]:
        """A container that has run nothing, for whoever drives it, with the plan of its command;
        ended with the context.

        Raises:
            InvalidState: the pool was closed.
            OcisbxError: there is none, and none can be started, or not with this workspace.
        """
        with self._sandbox.workspace(workspace) as wanted:
            for _ in range(ATTEMPTS):
                member = self._store.take()
                self._store.note_use(member)
                try:
                    if wanted is None:
                        yield member, member.plan
                        return
                    given = wanted.fit(member.workspaces)
                    if member.mount(given):
                        yield member, given.late.on(member.plan)
                        # What keeps names free in the workspace goes before the borrower does.
                        member.retire()
                        return
                finally:
                    self._store.put_back(member)
        raise _all_ended()

    def after_fork(self) -> None:
        """In the child of a fork: none of the members is its own."""
        self._store.after_fork()

    def _make(self) -> Member:
        plan = self._sandbox.resolve()
        if plan.terminal:
            raise Unsupported(
                "a container of a pool has no terminal in this version",
                remedy="leave -t (`terminal`) out, or use ocisbx run -it, or Sandbox.spawn",
            )
        if find_quirks(plan.runtime.name, plan.runtime.version).socket_args is None:
            raise Unsupported(
                f"{plan.runtime.name} {plan.runtime.version} cannot keep containers ready",
                why="it cannot hand a socket to a container's process 1",
                remedy="use a newer one, or another runtime",
            )
        try:
            return self._member(plan)
        except NotStarted:
            second = choose_again(plan, self._sandbox.renewal())
            if second is None:
                raise
            return self._member(second)

    def _member(self, plan: Plan) -> Member:
        return Member(plan, self._start_timeout_s, self._warm, self._sandbox.made(plan))

    def _letter(self, plan: Plan, call: Call, code: str | None) -> bytes:
        if code is None or self._warm is None:
            return b""
        environment = plan.payload_environment(call.environment, call.extra_environment)
        arguments = call.argv[len(self._warm.shown) + 1 :]
        return letter(code, arguments, environment, call.workdir or "")


def check_size(size: int | tuple[int, int]) -> Bounds:
    """The bounds that a size means. Raises ConfigError."""
    bounds = size if isinstance(size, tuple) else (1, size)
    # A bool is no number of containers, though it is an int.
    if [type(bound) for bound in bounds] == [int, int]:
        least, most = bounds
        if 1 <= least <= most <= MOST_MEMBERS:
            return Bounds(least, most, by_demand=isinstance(size, tuple))
    raise ConfigError(
        f"a pool of {size!r} containers cannot be",
        why="each that waits is a few processes and about a megabyte",
        remedy=f"a size, or two (least, most), between 1 and {MOST_MEMBERS}",
    )


def _all_ended() -> RuntimeFailed:
    return RuntimeFailed(
        f"{ATTEMPTS} containers that were ready ended before they had run anything",
        why="something on this host ends them",
        remedy="`ocisbx doctor` checks this host",
    )


def run_in(
    member: Member,
    order: Order,
    hold: Callable[[OciExecution], None] | None = None,
    note_use: Callable[[Member], None] = lambda _: None,
) -> tuple[Told, str] | None:
    """What came of it; None: the member has ended meanwhile, and has run nothing. `note_use` is
    told of it while it runs."""
    execution = member.execution
    began_at = time.time()
    if not member.give(order):
        return None
    if hold is not None:
        hold(execution)
    note_use(member)
    # While it runs.
    started_at = utc_text(began_at)
    if order.ahead is not None:
        order.ahead.make()
    verdict = execution.wait()
    assert verdict is not None
    member.leave_workspace()
    if isinstance(verdict, Failure) and not execution.payload_ran:
        return None
    captured = execution.stdio.finish(keep=False)
    execution.clock.cleaned = time.monotonic()
    return Told(order.plan, order.call, execution, verdict, captured), started_at


def _after_fork() -> None:
    for pool in list(_pools):
        pool.after_fork()


def _close_all() -> None:
    """What was forgotten: the containers would end by themselves, their files would stay."""
    for pool in list(_pools):
        pool.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
