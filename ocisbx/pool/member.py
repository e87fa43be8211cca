"""Member: one container that was started ahead and waits for its only command."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.backends.base import START_TIMEOUT_S, Call
from ocisbx.backends.mounter import Mounter
from ocisbx.backends.oci import set_up
from ocisbx.backends.stdio import PayloadStdio, Taken
from ocisbx.cgroup.box import is_frozen
from ocisbx.errors import OcisbxError, RuntimeFailed
from ocisbx.outcome import Reason
from ocisbx.pool.warm import Ends, Greeting, Spent
from ocisbx.probe.processes import children, is_still
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.backends.ahead import Ahead
    from ocisbx.backends.execution import OciExecution
    from ocisbx.backends.late import Given
    from ocisbx.plan import Plan
    from ocisbx.pool.warm import Warm
    from ocisbx.pool.workspaces import Workspaces

LOOK_BYTES = 256
# More than `true` takes; as init.c has it.
SHORT_S = 0.003

_all: weakref.WeakSet[Member] = weakref.WeakSet()
# What was forked holds descriptors of its parent's members: they are kept, and nothing is done.
_forked: list[object] = []


class Look(NamedTuple):
    """An open file of the kernel's, and what its text tells."""

    descriptor: int
    tells: Callable[[bytes], bool]


class Order(NamedTuple):
    """What a member is to run. `letter`: what is told to what runs ahead; `workspace`: what it gets
    before; `ahead`: pipes that were made for it."""

    plan: Plan
    call: Call
    letter: bytes = b""
    workspace: Given | None = None
    ahead: Ahead | None = None


class NotStarted(RuntimeFailed):
    """The runtime failed before anything ran in the container."""


class Member:
    """A container that has run nothing. Whoever has it gives it a command once, or retires it."""

    def __init__(
        self,
        plan: Plan,
        start_timeout_s: float | None = None,
        warm: Warm | None = None,
        workspaces: Workspaces | None = None,
    ) -> None:
        """Start one, with what it runs ahead, and wait until it is ready. `workspaces`: what its
        plan takes, where each call has its own.

        Raises:
            OcisbxError: it cannot be started.
        """
        self.plan = plan
        self._workspaces = workspaces
        self._process = os.getpid()
        self._ends: Ends | None = None
        self._spent = Spent()
        self._names = contextlib.ExitStack()
        self._mounter: Mounter | None = None
        # Whether whoever keeps it ready knows that it was used.
        self.is_counted = False
        _all.add(self)
        with contextlib.ExitStack() as stack:
            # Names that are kept free stay so until nothing runs in it any more.
            stack.enter_context(self._names)
            call = Call(argv=(), environment=os.environ, start_timeout_s=start_timeout_s)
            self.execution: OciExecution = set_up(stack, plan, call)
            failure = self.execution.wait_ready()
            if failure is not None:
                raise NotStarted(
                    failure.what,
                    why=failure.why,
                    remedy=f"`ocisbx doctor` checks this host; the runtime was {plan.runtime.path}",
                )
            if warm is not None:
                stack.callback(self._close_ends)
                self._warm_up(warm, START_TIMEOUT_S if start_timeout_s is None else start_timeout_s)
            if workspaces is not None and self.execution.init_handle >= 0:
                self._mounter = Mounter(self.execution.init_handle)
                stack.callback(self._mounter.close)
            self._looks = self._open_looks(stack)
            self._stack = stack.pop_all()
        self.born_s = time.monotonic()

    @property
    def workspaces(self) -> Workspaces:
        """What its plan takes; for pools where each call has its own."""
        assert self._workspaces is not None
        return self._workspaces

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.born_s

    def _close_ends(self) -> None:
        if self._ends is not None:
            self._ends.close()
            self._ends = None

    def _warm_up(self, warm: Warm, patience_s: float) -> None:
        execution, plan = self.execution, self.plan
        call = Call(argv=warm.argv, environment=os.environ)
        stdio = PayloadStdio(plan, call._replace(argv=()), execution.bundle_path, lambda: None)
        stdio.stdin, stdin = os.pipe()
        stdout, stdio.stdout = os.pipe()
        stderr = None
        if not plan.combine:
            stderr, stdio.stderr = os.pipe()
        self._ends = Ends(stdin, stdout, stderr)
        until = time.monotonic() + patience_s
        execution.warm_up(plan, call, stdio)
        greeting = Greeting(stdout)
        while execution.verdict is None:
            greeting.listen(execution.speakers, until)
            execution.attend()
            if greeting.spent is not None and execution.is_started:
                self._spent = greeting.spent
                return
        why = b""
        if stderr is not None:
            os.set_blocking(stderr, False)
            with contextlib.suppress(BlockingIOError):
                why = os.read(stderr, 4096)
        raise RuntimeFailed(
            f"{show(warm.argv[0])} did not get ready in its container",
            why=(why.decode(errors="replace").strip().splitlines() or [_ended(execution)])[-1],
            remedy="the container must have it, and what it imports",
        )

    def _open_looks(self, stack: contextlib.ExitStack) -> list[Look]:
        """Where to see whether somebody has stopped or frozen it."""
        execution = self.execution
        looks: list[Look] = []
        paths: list[tuple[str, Callable[[bytes], bool]]] = [
            (f"/proc/{pid}/stat", is_still)
            for pid in {execution.runtime_pid, execution.init_pid, *self._warm_pids()} - {0}
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

    def _warm_pids(self) -> list[int]:
        """What runs in it ahead; nothing where its kernel is its own."""
        pid = self.execution.init_pid
        if self._ends is None or not pid:
            return []
        return children(pid)

    def is_sound(self) -> bool:
        """Whether it lives, waits, and would run: nobody has killed, stopped or frozen it."""
        if not self.execution.is_waiting:
            return False
        if self._mounter is not None and not self._mounter.is_waiting:
            return False
        try:
            return not any(tells(os.pread(fd, LOOK_BYTES, 0)) for fd, tells in self._looks)
        except ProcessLookupError:
            return False

    def mount(self, workspace: Given) -> bool:
        """Give it its workspace; False: it has ended meanwhile.

        Raises:
            OcisbxError: it cannot be given; the member is not to be used.
        """
        if self._mounter is None:
            return False
        self._mounter.begin(workspace, self._names)
        done = self._mounter.is_done()
        # Whoever runs a command in it may do so for hours.
        self._mounter.close()
        return done

    def leave_workspace(self) -> None:
        """Nothing runs in it any more: take away what kept names free."""
        self._names.close()

    def give(self, order: Order) -> bool:
        """Let it run this; False: it has ended meanwhile, and has run nothing.

        Raises:
            OcisbxError: a limit is not taken, the workspace cannot be given, a capture cannot be
                made; nothing has run.
        """
        execution, plan, call = self.execution, order.plan, order.call
        execution.clock.started = time.monotonic()
        if plan.cgroup not in (None, self.plan.cgroup) and execution.box is not None:
            assert plan.cgroup is not None
            execution.box.limit(plan.cgroup.files)
        is_warm = self._ends is not None
        stdio = self._prepare(order)
        if stdio is None:
            return False
        execution.clock.bundle_made = time.monotonic()
        there = is_warm or execution.give(plan, call, stdio)
        if is_warm:
            execution.hand_over(plan, call, stdio, self._spent)
        if self._mounter is not None:
            # Not while a short command starts, which has one of few processors.
            execution.set_alarm(time.monotonic() + SHORT_S, self._mounter.close)
        return there

    def _prepare(self, order: Order) -> PayloadStdio | None:
        """Its workspace is there, and what its payload has; None: it has ended meanwhile."""
        mounter = None
        if order.workspace is not None:
            mounter = self._mounter
            if mounter is None:
                return None
            mounter.begin(order.workspace, self._names)
        if self._ends is not None:
            # What was started ahead runs its code as soon as its stdio is made, which sends it.
            if mounter is not None and not mounter.is_done():
                return None
            if not self.execution.is_waiting:
                return None
            return self._make_stdio(order, self._take(self._ends, order.letter))
        with contextlib.ExitStack() as unused:
            # While the workspace is mounted.
            stdio = self._make_stdio(order)
            unused.callback(stdio.close)
            if mounter is not None and not mounter.is_done():
                return None
            unused.pop_all()
        return stdio

    def _take(self, ends: Ends, letter: bytes) -> Taken:
        """From here on they are the streams' to close."""
        self._ends = None
        named = {name: end for name, end in ends._asdict().items() if end is not None}
        return Taken(named, letter)

    def _make_stdio(self, order: Order, taken: Taken | None = None) -> PayloadStdio:
        return PayloadStdio(
            order.plan,
            order.call,
            self.execution.bundle_path,
            lambda: self.execution.end_now(Reason.OUTPUT),
            taken=taken,
            ahead=order.ahead,
        )

    def retire(self) -> None:
        """End it, whatever it does, and take away all that it leaves. Raises OcisbxError."""
        if os.getpid() == self._process:
            self._stack.close()

    def forget(self) -> None:
        """After a fork, in the child: it is the parent's."""
        _forked.append(self)

    def after_fork(self) -> None:
        """In the child: no end for writing, or the parent could not end a call's input."""
        self._close_ends()


def _ended(execution: OciExecution) -> str:
    return "" if execution.verdict is None else f"it ended: {execution.verdict}"


def retire_all(members: list[Member]) -> None:
    """End all of them at once; what cannot be removed is `gc`'s."""
    for member in members:
        member.execution.let_go()
    for member in members:
        with contextlib.suppress(OcisbxError):
            member.retire()


def _after_fork() -> None:
    for member in list(_all):
        member.after_fork()


os.register_at_fork(after_in_child=_after_fork)
