"""Session: one container, many commands."""

from __future__ import annotations

import contextlib
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ocisbx.backends.base import Call
from ocisbx.background.commands import Orders
from ocisbx.background.container import Container
from ocisbx.background.launch import NeverRan, Options, launch
from ocisbx.bundle.record import State, read_records
from ocisbx.calls import given_call
from ocisbx.errors import ConfigError, InvalidState, PolicyDenied, Unsupported
from ocisbx.probe.processes import handle_of
from ocisbx.quantities import parse_seconds
from ocisbx.quirks import find_quirks
from ocisbx.sandbox.sandbox import Sandbox
from ocisbx.session.bounds import limits_within, seconds_within
from ocisbx.session.worktree import Worktree
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ocisbx.capture import Input
    from ocisbx.config import SandboxConfig
    from ocisbx.expect.terminal import Terminal
    from ocisbx.plan import Plan
    from ocisbx.result import RunResult
    from ocisbx.running import Running
    from ocisbx.terminal.terminal import ContainerTerminal

    OnData = Callable[[bytes], None] | None


class Session:
    """A container that lives until it is closed, and runs the commands that it is given.

    Each command has its own streams, time limit, environment, directory, usage and verdict; they
    may run side by side, from any thread. What one leaves running stays, and so do its files. The
    session ends with this process, however that ends, unless `keep` says otherwise.
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        name: str | None = None,
        keep: bool = False,
        idle_s: float | None = None,
        lifetime_s: float | None = None,
        worktree: str | None = None,
        audit: bool = True,
        start_timeout_s: float | None = None,
        **fields: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> None:
        """`name`: by which `find` finds it. `keep`: it outlives this process, until `end`, or one
        of its limits: `idle_s` without a command, `lifetime_s` after its start. `worktree`: a git
        repository, of which it gets a worktree of its own as its workspace. The others are
        Sandbox's; `timeout_s` is each command's, and `start_timeout_s` that of each terminal too.

        Raises:
            ConfigError: a field is unknown or wrong.
        """
        self._sandbox = Sandbox(config, start_timeout_s=start_timeout_s, **fields)
        self._worktree = None if worktree is None else Worktree.of(worktree)
        if self._worktree is not None:
            self._sandbox = Sandbox(self._worktree.within(self._sandbox.config))
        self._name = name
        self._keep = keep
        self._idle_s = None if idle_s is None else parse_seconds(idle_s)
        self._lifetime_s = None if lifetime_s is None else parse_seconds(lifetime_s)
        self._audit = audit
        self._start_timeout_s = None if start_timeout_s is None else parse_seconds(start_timeout_s)
        self._parent: Session | None = None
        self._container: Container | None = None
        self._orders: Orders | None = None
        self._opening = threading.Lock()

    @classmethod
    def find(cls, given: str) -> Self:
        """The session with this id or name that runs, whoever started it.

        Raises:
            ConfigError: there is none.
        """
        container = Container.find(given)
        if not container.record.is_session or container.state is not State.RUNNING:
            raise ConfigError(
                f"{show(given)} is not a session that runs", remedy="ocisbx session ls lists them"
            )
        from ocisbx.config import SandboxConfig as Config  # noqa: PLC0415 -- for those who configure

        orders = Orders.of(container.id)
        found = cls(Config.from_toml(orders.plan.sandbox_toml), name=container.name, keep=True)
        found._container = container
        found._worktree = Worktree.noted(container.record.path)
        found._orders = orders
        return found

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self._name or (self._container.id if self._container else 'not open')}>"

    @property
    def id(self) -> str:
        return self._opened().id

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def is_running(self) -> bool:
        return self._container is not None and self._container.state is State.RUNNING

    @property
    def workspace(self) -> str | None:
        """The directory of its worktree on the host, where it has one."""
        return None if self._worktree is None else self._worktree.path

    @property
    def plan(self) -> Plan:
        """What its commands run under, with what could not be enforced."""
        return self._orders_of().plan

    def open(self) -> None:
        """Start it; the first command does so too.

        Raises:
            InvalidState: the name is taken.
            OcisbxError: this host cannot run it; nothing is left.
        """
        with self._opening:
            if self._container is None:
                self._open()

    def _open(self) -> None:
        with contextlib.ExitStack() as stack:
            if self._worktree is not None:
                self._worktree.add()
                stack.callback(self._worktree.remove)
            self._container = Container.find(self._launch())
            stack.callback(self.end)
            if self._worktree is not None:
                self._worktree.note(self._container.record.path)
            self._orders = Orders.of(self._container.id)
            stack.pop_all()

    def _launch(self) -> str:
        plan = self._sandbox.resolve()
        if find_quirks(plan.runtime.name, plan.runtime.version).socket_args is None:
            raise Unsupported(
                f"{plan.runtime.name} {plan.runtime.version} cannot hold a session",
                why="it cannot hand a socket to a container's process 1",
                remedy="use a newer one, or another runtime",
            )
        call = Call(
            argv=(),
            environment=os.environ,
            name=self._name,
            start_timeout_s=self._start_timeout_s,
        )
        tied_to = None if self._keep else os.getpid()
        if self._parent is not None:
            tied_to = self._parent._opened().record.supervisor.pid  # noqa: SLF001 -- another of us
        with handle_of(tied_to) as parent:
            options = Options(
                start=True,
                audit=self._audit,
                parent=parent,
                idle_s=self._idle_s,
                lifetime_s=self._lifetime_s,
                parent_id="" if self._parent is None else self._parent.id,
            )
            made = launch(plan, call, self._sandbox.renewal(), options)
        assert not isinstance(made, NeverRan)
        return made

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
        user: tuple[int, int] | None = None,
    ) -> RunResult:
        """Run one command to its end, beside whatever else runs in the session.

        `env` is added to the configuration's, `workdir` and `timeout_s` replace it; `user` (uid,
        gid) is for containers that may change ids.

        Raises:
            ConfigError: the command is no list of strings, or too long.
            PolicyDenied: `[commands]` does not let it run.
            InvalidState: the session has ended.
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
            user=user,
        )
        return self._orders_of().run(call, timeout_s=timeout_s, audit=self._audit)

    def start(self, command: Sequence[str] | str, **options: Any) -> Running:  # noqa: ANN401 -- typed where they arrive
        """Start one command and return; the context's exit ends it, with all that it started.
        Options and errors are those of `run`."""
        return self.begin(command, **options).started()

    def begin(
        self,
        command: Sequence[str] | str,
        *,
        timeout_s: float | None = None,
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> Running:
        """`start` for asyncio: it does not wait for the start."""
        from ocisbx.running import Running  # noqa: PLC0415 -- threads, for those who start only

        call = given_call(command, **options)
        orders = self._orders_of()
        orders.plan.commands.check(call.argv)
        return Running(
            lambda hold, _: orders.run(call, timeout_s=timeout_s, audit=self._audit, hold=hold)
        )

    def spawn(
        self,
        command: Sequence[str] | str,
        *,
        encoding: str | None = "utf-8",
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> Terminal:
        """Start one command on a terminal of its own, which the caller reads and types on; the
        context's exit ends it. `size` is rows and columns, `transcript` a file to be made,
        asciicast v2; the other options, and errors, are those of `run`, but for `input` and
        callbacks.

        Raises:
            TerminalError: the session is stopped, or hangs.
            Unsupported: on gVisor, which lets no terminal out that is made inside.
        """
        from ocisbx.expect.terminal import Terminal  # noqa: PLC0415 -- pexpect, for terminals only

        return Terminal(partial(self.hold, command, **options), encoding=encoding)

    def hold(
        self,
        command: Sequence[str] | str,
        *,
        size: tuple[int, int] = (24, 80),
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        timeout_s: float | None = None,
        user: tuple[int, int] | None = None,
        transcript: str | None = None,
    ) -> ContainerTerminal:
        """`spawn` for asyncio: what a thread does of it. Errors as there."""
        from ocisbx.terminal.device import check_size  # noqa: PLC0415 -- as above
        from ocisbx.terminal.terminal import ContainerTerminal  # noqa: PLC0415 -- as above

        call = given_call(command, shell=shell, env=env, workdir=workdir, user=user)
        checked = check_size(*size)
        call = call._replace(size=checked, start_timeout_s=self._start_timeout_s)
        begin = partial(self._orders_of().spawn, call, timeout_s=timeout_s, audit=self._audit)
        return ContainerTerminal.begun(begin, transcript, checked, call.term)

    def put(self, source: str | os.PathLike[str], target: str) -> None:
        """Copy a file or tree of the host's into it, as `cp -r`; links as they are.

        Raises:
            ConfigError: there is no such file.
            OcisbxError: it cannot be read, or not be written there; there is no tar inside.
        """
        from ocisbx.background.copying import put  # noqa: PLC0415 -- 10 ms, for who copies only

        put(self._orders_of(), os.fspath(source), target)

    def get(self, source: str, target: str | os.PathLike[str]) -> None:
        """Copy a file or tree out of it, as `cp -r`: nothing is overwritten, no link is followed.

        Raises:
            OcisbxError: as `put`; or what comes would leave the tree, or is no plain file.
        """
        from ocisbx.background.copying import get  # noqa: PLC0415 -- as above

        get(self._orders_of(), source, os.fspath(target))

    def child(self, config: SandboxConfig | None = None, **options: Any) -> Session:  # noqa: ANN401 -- typed where they arrive
        """A session of this one's: it ends with it at the latest, and its limits lie within. The
        arguments are those of Session.

        Raises:
            PolicyDenied: it asks for more than this one has.
        """
        made = Session(config, **options)
        mine, theirs = self._sandbox.config, made._sandbox.config
        limits = limits_within(mine.limits, theirs.limits)
        made._sandbox = Sandbox(theirs.updated({"limits": limits}))
        made._lifetime_s = seconds_within(self._lifetime_s, made._lifetime_s)
        made._parent = self
        return made

    def children(self) -> list[Container]:
        """The sessions of this one that have not been removed, the oldest first."""
        return [Container(record) for record in read_records() if record.parent == self.id]

    def end_child(self, given: str) -> None:
        """End one of them, by its id or name.

        Raises:
            PolicyDenied: it is none of this session's.
        """
        for container in self.children():
            if given in (container.id, container.name):
                remove(container)
                return
        raise PolicyDenied(
            f"{show(given)} is not a session of this one's",
            remedy="a session ends those that it has started",
        )

    def close(self) -> None:
        """End it, or where it is to be kept let go of it. Idempotent."""
        orders, self._orders = self._orders, None
        if orders is not None:
            orders.close()
        if not self._keep:
            self.end()

    def end(self) -> None:
        """End it with all that runs in it and its children, and take away what is left.

        Raises:
            OcisbxError: something cannot be ended or removed.
        """
        orders, self._orders = self._orders, None
        if orders is not None:
            orders.close()
        container, self._container = self._container, None
        if container is None:
            return
        remove(container)

    def _opened(self) -> Container:
        if self._container is None:
            raise InvalidState("the session is not open", remedy="use it as a context, or open()")
        return self._container

    def _orders_of(self) -> Orders:
        if self._container is None:
            self.open()
        orders = self._orders
        if orders is None:
            raise InvalidState("the session was closed", remedy="make another one")
        return orders


def remove(container: Container) -> None:
    """End a session with its children, and take away what is left, its worktree too.

    Raises:
        OcisbxError: something cannot be ended or removed.
    """
    for record in read_records():
        if record.parent == container.id:
            remove(Container(record))
    worktree = Worktree.noted(container.record.path)
    container.remove(force=True)
    if worktree is not None:
        worktree.remove()


def sessions() -> list[Container]:
    """Those of this user, ended ones that were not removed too, the oldest first."""
    return [Container(record) for record in read_records() if record.is_session]
