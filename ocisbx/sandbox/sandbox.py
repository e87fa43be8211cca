"""Sandbox: the front door. Resolves once, then runs commands, each in a fresh container."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from ocisbx.backends.base import Call
from ocisbx.calls import Renewal, Waiting, recorded, run_plan
from ocisbx.capture import check_input
from ocisbx.probe.processes import handle_of
from ocisbx.quantities import parse_seconds
from ocisbx.values import check_command, check_env

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ocisbx.backends.driven import Driven
    from ocisbx.background.container import Container
    from ocisbx.capture import Input
    from ocisbx.config import SandboxConfig
    from ocisbx.expect.terminal import Terminal
    from ocisbx.plan import Plan
    from ocisbx.result import RunResult
    from ocisbx.running import Running
    from ocisbx.terminal.terminal import ContainerTerminal

    OnData = Callable[[bytes], None] | None


class Sandbox:
    """A configuration that is resolved once; each `run` is a fresh container.

    Thread-safe: calls share nothing but the plan. Works with and without `with`.
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        audit: bool = True,
        start_timeout_s: float | None = None,
        **fields: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> None:
        """`fields` are those of SandboxConfig, over `config` where both are given.
        `start_timeout_s`: after this time a runtime has hung that has not started the container;
        None: 20 s, and on a slow machine as many times more.

        Raises:
            ConfigError: a field, or the time, is unknown or wrong.
        """
        self.config = _configure(config, fields)
        self._audit = audit
        self._start_timeout_s = None if start_timeout_s is None else parse_seconds(start_timeout_s)
        self._plan: Plan | None = None
        # How long the last of it took.
        self.resolve_s = 0.0
        # The same with a terminal, for `spawn`.
        self._terminals: Sandbox | None = None

    def __enter__(self) -> Self:
        self.resolve()
        return self

    def __exit__(self, *_: object) -> None:
        self._plan = self._terminals = None

    def resolve(self) -> Plan:
        """The compiled plan; compiled anew only when something that it rests on has changed.

        Raises:
            ConfigError, RuntimeMissing, Unsupported: this host cannot run it.
        """
        started = time.monotonic()
        # Read once: another thread may leave the context meanwhile.
        plan = self._plan
        if plan is None or not plan.holds():
            plan = self._plan = self._compile()
        self.resolve_s = time.monotonic() - started
        return plan

    def renewal(self) -> Renewal:
        """How its plan is made anew when the runtime proves unsound."""

        def keep(plan: Plan) -> None:
            self._plan = plan

        return Renewal(self._compile, keep)

    def _compile(self) -> Plan:
        # pydantic and the models are imported by those who configure, not by those who only run.
        from ocisbx.backends.compile import compile_plan  # noqa: PLC0415 -- see above

        return compile_plan(self.config)

    def prompt(self) -> str:
        """What holds for its commands, as a short text for a model's system prompt. Errors as
        `resolve`."""
        from ocisbx.backends.observe import observe_plan  # noqa: PLC0415 -- for those who ask

        return observe_plan(self.resolve()).prompt()

    def run(
        self,
        command: Sequence[str] | str,
        *,
        input: Input = None,
        shell: bool = False,
        name: str | None = None,
        on_stdout: OnData = None,
        on_stderr: OnData = None,
        transcript: str | None = None,
    ) -> RunResult:
        """Run one command to its end. `input`: bytes, or a descriptor or open file that is relayed;
        `transcript`: a file to be made, asciicast v2, of its terminal (`terminal=True`).

        Raises:
            ConfigError: the command is no list of strings, or too long; the input is a text.
            PolicyDenied: `[commands]` does not let it run; nothing was started.
            OcisbxError: ocisbx or the runtime failed.
        """
        call = self._call(
            command, input=input, shell=shell, name=name, on_stdout=on_stdout, on_stderr=on_stderr
        )
        plan = self.resolve()
        with recorded(plan, call, transcript) as told:
            return run_plan(
                plan,
                told,
                resolve_s=self.resolve_s,
                audit=self._audit,
                renewal=self.renewal(),
            )

    def start(
        self,
        command: Sequence[str] | str,
        *,
        input: Input = None,
        shell: bool = False,
        name: str | None = None,
        on_stdout: OnData = None,
        on_stderr: OnData = None,
        transcript: str | None = None,
    ) -> Running:
        """Start one command and return; the context's exit ends it. Errors as `run`, plus those
        of the start itself; later ones come out of `wait()`."""
        return self.begin(
            command,
            input=input,
            shell=shell,
            name=name,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            transcript=transcript,
        ).started()

    def begin(
        self,
        command: Sequence[str] | str,
        *,
        transcript: str | None = None,
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> Running:
        """`start` for asyncio: once it is resolved, a thread starts it, and may wait for a slot."""
        call = self._call(command, **options)
        plan = self.resolve()
        plan.commands.check(call.argv)
        resolve_s, audit = self.resolve_s, self._audit
        from ocisbx.running import Running  # noqa: PLC0415 -- threads, for those who start only

        def work(hold: Callable[[Driven], None], pause: Callable[[float], None]) -> RunResult:
            with recorded(plan, call, transcript) as told:
                return run_plan(
                    plan,
                    told,
                    resolve_s=resolve_s,
                    audit=audit,
                    hold=hold,
                    renewal=self.renewal(),
                    waiting=Waiting(pause),
                )

        return Running(work)

    def spawn(
        self,
        command: Sequence[str] | str,
        *,
        size: tuple[int, int] = (24, 80),
        shell: bool = False,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        transcript: str | None = None,
        encoding: str | None = "utf-8",
    ) -> Terminal:
        """Start one command on a terminal of `size` (rows, columns), which the caller then reads
        and types on; the context's exit ends it. `env` is added to the configuration's;
        `transcript`: a file to be made, asciicast v2; without `encoding` what is read is bytes.
        Errors as `run`; TerminalError: the runtime did not hand over the terminal."""
        from ocisbx.expect.terminal import Terminal  # noqa: PLC0415 -- pexpect, for terminals only

        begin = partial(
            self.hold, command, size=size, shell=shell, name=name, env=env, transcript=transcript
        )
        return Terminal(begin, encoding=encoding)

    def hold(
        self,
        command: Sequence[str] | str,
        *,
        size: tuple[int, int] = (24, 80),
        shell: bool = False,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        transcript: str | None = None,
    ) -> ContainerTerminal:
        """`spawn` for asyncio: what a thread does of it. Errors as there."""
        from ocisbx.spawned import spawn_plan  # noqa: PLC0415 -- for terminals only
        from ocisbx.terminal.device import check_size  # noqa: PLC0415 -- as above
        from ocisbx.terminal.terminal import ContainerTerminal  # noqa: PLC0415 -- as above

        call = self._call(command, shell=shell, name=name)
        checked = check_size(*size)
        call = call._replace(size=checked, holds_terminal=True, extra_environment=check_env(env))
        # Read once, as in `resolve`.
        terminals = self._terminals
        if terminals is None:
            terminals = self._terminals = Sandbox(self.config, terminal=True)
        plan = terminals.resolve()
        begin = partial(
            spawn_plan,
            plan,
            call,
            resolve_s=terminals.resolve_s,
            audit=self._audit,
            renewal=terminals.renewal(),
        )
        return ContainerTerminal.begun(begin, transcript, checked, call.term)

    def create(
        self,
        command: Sequence[str] | str,
        *,
        input: Input = None,
        shell: bool = False,
        name: str | None = None,
        die_with_parent: bool = False,
        transcript: str | None = None,
    ) -> Container:
        """A container in the background that outlives this process, and waits for its `start()`.
        `die_with_parent`: it does not outlive it; `transcript` as `run`, of all who are attached.
        Errors as `run`; InvalidState: the name is taken.
        """
        from ocisbx.background.container import Container  # noqa: PLC0415 -- for those who need it
        from ocisbx.background.launch import Options, launch  # noqa: PLC0415 -- as above
        from ocisbx.terminal.transcript import new_file  # noqa: PLC0415 -- as above

        call = self._call(command, input=input, shell=shell, name=name)
        plan = self.resolve()
        with (
            handle_of(os.getpid() if die_with_parent else None) as parent,
            new_file(transcript, has_terminal=plan.terminal) as file,
        ):
            options = Options(
                start=False,
                audit=self._audit,
                resolve_s=self.resolve_s,
                parent=parent,
                transcript=file,
            )
            made = launch(plan, call, self.renewal(), options)
        return Container.find(cast("str", made))

    async def arun(
        self,
        command: Sequence[str] | str,
        *,
        input: Input = None,
        shell: bool = False,
        name: str | None = None,
        on_stdout: OnData = None,
        on_stderr: OnData = None,
        transcript: str | None = None,
    ) -> RunResult:
        """`run` for asyncio; callbacks are called in another thread. Cancellation ends the payload
        (SIGTERM, the grace, SIGKILL; cancelled again: SIGKILL) and is raised when nothing is left
        of it."""
        from ocisbx.running import outcome  # noqa: PLC0415 -- threads, for those who await only

        running = self.begin(
            command,
            input=input,
            shell=shell,
            name=name,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            transcript=transcript,
        )
        return await outcome(running)

    def _call(
        self,
        command: Sequence[str] | str,
        *,
        input: Input = None,
        shell: bool = False,
        name: str | None = None,
        on_stdout: OnData = None,
        on_stderr: OnData = None,
    ) -> Call:
        return Call(
            argv=check_command(command, shell=shell),
            environment=os.environ,
            name=name,
            stdin=check_input(input),
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            start_timeout_s=self._start_timeout_s,
        )


_sandboxes: dict[tuple[str, str], Sandbox] = {}
SANDBOXES_KEPT = 32
_CALL_OPTIONS = ("input", "shell", "name", "on_stdout", "on_stderr", "transcript")


def run(
    command: Sequence[str] | str,
    config: SandboxConfig | None = None,
    **options: Any,  # noqa: ANN401 -- typed where they arrive
) -> RunResult:
    """Run one command in a fresh container; keywords are those of Sandbox.run and the fields of
    SandboxConfig (`timeout_s=30`, `network="host"`, `limits={...}`).

    Raises:
        ConfigError, RuntimeMissing, Unsupported: nothing was started.
        OcisbxError: ocisbx or the runtime failed; the payload's own end is never an exception.
    """
    sandbox, call = _prepare(config, options)
    return sandbox.run(command, **call)


async def arun(
    command: Sequence[str] | str,
    config: SandboxConfig | None = None,
    **options: Any,  # noqa: ANN401 -- typed where they arrive
) -> RunResult:
    """`run` for asyncio."""
    sandbox, call = _prepare(config, options)
    return await sandbox.arun(command, **call)


def _prepare(
    config: SandboxConfig | None, options: dict[str, Any]
) -> tuple[Sandbox, dict[str, Any]]:
    """A Sandbox of these fields, kept for the next call with the same ones in the same place."""
    call = {name: options.pop(name) for name in _CALL_OPTIONS if name in options}
    wanted = _configure(config, options)
    key = (wanted.model_dump_json(), _here())
    sandbox = _sandboxes.get(key)
    if sandbox is None:
        if len(_sandboxes) >= SANDBOXES_KEPT:
            _sandboxes.clear()
        sandbox = _sandboxes[key] = Sandbox(wanted)
    return sandbox, call


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        # Resolving says what is wrong, where the directory matters at all.
        return ""


def _configure(config: SandboxConfig | None, fields: dict[str, Any]) -> SandboxConfig:
    from ocisbx.config import SandboxConfig as Config  # noqa: PLC0415 -- as `Sandbox._compile`

    if config is None:
        return Config(**fields)
    return config.updated(fields) if fields else config
