"""`ocisbx run`. With a plan at hand it imports no model: only what starts a container."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import select
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ocisbx.backends.base import Call
from ocisbx.calls import Renewal, Waiting, run_plan
from ocisbx.cli.options import parse, wants_help
from ocisbx.cli.output import inert_json, printable, put, say
from ocisbx.cli.run_options import CONTAINER, RUN
from ocisbx.errors import ConfigError, InvalidState, RuntimeFailed, TerminalError
from ocisbx.plan import fingerprint
from ocisbx.plans import load_plan, plan_key, store_plan
from ocisbx.probe.processes import handle_of
from ocisbx.result import RunResult, Termination, describe_end
from ocisbx.values import check_command, check_name, check_text, parse_env, parse_env_file, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from ocisbx.backends.driven import Driven
    from ocisbx.calls import Hold
    from ocisbx.plan import Plan

Options = dict[str, Any]

EXIT_CANCELLED = 130
STDIN, STDOUT, STDERR = 0, 1, 2
# execve(2) takes 2 MiB of arguments and environment together.
MAX_ENV_FILE = 2 << 20
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What comes within so long of the first is the same wish.
AT_ONCE_S = 1.0

# Ends that a person would otherwise have to guess from the exit code.
TOLD = frozenset(
    {
        Termination.TIMED_OUT,
        Termination.OOM_KILLED,
        Termination.PIDS_LIMIT,
        Termination.OUTPUT_LIMIT,
    }
)


def run_main(arguments: list[str]) -> int:
    """Run the payload; returns its exit code as interface.md maps it."""
    started = time.monotonic()
    parsed = parse(RUN, arguments)
    if wants_help(RUN, parsed):
        return 0
    options = parsed.options
    if "detach" in options:
        from ocisbx.cli.detached import detach  # noqa: PLC0415 -- for the background only

        return detach(options, parsed.words, started, start=True)
    if "pool" in options:
        from ocisbx.cli.pooled import run_pooled  # noqa: PLC0415 -- for containers of a pool only

        return run_pooled(options, parsed.words, started)
    argv = check_command(parsed.words)
    extra = extra_environment(options)
    if "dry-run" in options:
        from ocisbx.cli.prepare import dry_run  # noqa: PLC0415 -- needs the models

        return dry_run(options, argv, extra)
    if "host" in options:
        raise ConfigError("--host plans only", remedy="give it together with --dry-run")
    if "name" in options:
        check_name(options["name"])
    with Interrupts() as interrupts, parent_handle(options) as parent:
        interrupts.parent = parent
        plan = find_plan(options)
        call = make_call(options, argv, extra)
        kept = None
        if "keep-bundle" in options:
            from ocisbx.cli.prepare import keep_for_run  # noqa: PLC0415 -- as above

            plan, kept = keep_for_run(options["keep-bundle"], plan, call)
        return execute(
            plan,
            call,
            interrupts,
            options,
            resolve_s=time.monotonic() - started,
            kept=kept,
            # A kept bundle is what it is.
            renewal=None if kept else renewal_of(options),
        )


def extra_environment(options: Mapping[str, Any]) -> dict[str, str]:
    """What -e and --env-file add for this call; it reaches config.json and nothing else on disk.

    Raises:
        ConfigError: no variable, or the file cannot be read.
    """
    entries: list[tuple[str, str | None]] = []
    for path in options.get("env-file", ()):
        entries += parse_env_file(_env_file(path), path)
    entries += [parse_env(text) for text in options.get("env", ())]
    extra: dict[str, str] = {}
    for name, value in entries:
        value = os.environ.get(name) if value is None else value
        if value is not None:
            extra[name] = check_text(value, f"a value for {name}")
    return extra


def _env_file(path: str) -> str:
    """Bounded: a sparse file of a workspace may pretend to be larger than all memory."""
    remedy = "give a readable file in UTF-8 with lines NAME=VALUE or NAME"
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_ENV_FILE + 1)
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        what = f"--env-file {show(path)} cannot be read"
        raise ConfigError(what, why=why, remedy=remedy) from None
    if len(text) > MAX_ENV_FILE:
        what = f"--env-file {show(path)} has more than {MAX_ENV_FILE} characters"
        raise ConfigError(what, remedy=remedy)
    return text


def find_plan(options: Mapping[str, Any]) -> Plan:
    """The plan of these options, from the cache or compiled now; then what it cannot hold is said.

    Raises:
        ConfigError, RuntimeMissing, Unsupported: this host cannot run it.
    """
    key = key_of(options)
    plan = load_plan(key) if key else None
    if plan is None:
        plan = compile_plan(options)
        keep_plan(key, plan)
        if "json" not in options:
            from ocisbx.cli.notes import notes, unsaid  # noqa: PLC0415 -- with a new plan only

            for note in unsaid(notes(plan)):
                say(note)
    return plan


def key_of(options: Mapping[str, Any]) -> str:
    """What the plan of these options is kept under; empty: it cannot be kept."""
    decisive = {o.key: options[o.key] for o in CONTAINER if o.key in options}
    file = config_path(options)
    seen = None if file is None else [file, fingerprint(file, "content")]
    try:
        return plan_key({"options": decisive, "config": seen})
    except FileNotFoundError:
        # The current directory is gone; compiling says so.
        return ""


def compile_plan(options: Mapping[str, Any]) -> Plan:
    """A new plan. Raises as `find_plan`."""
    # Raised in the middle of their import, KeyboardInterrupt is a panic of pydantic's native part,
    # which prints that.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        from ocisbx.cli.prepare import compile_options  # noqa: PLC0415 -- needs the models
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return compile_options(options)


def keep_plan(key: str, plan: Plan) -> None:
    """Keep it for later calls, unless the key is empty."""
    if key:
        store_plan(key, plan)


def renewal_of(options: Mapping[str, Any]) -> Renewal:
    """What to run instead, should the plan's runtime fail."""
    return Renewal(partial(compile_plan, options), partial(keep_plan, key_of(options)))


def config_path(options: Mapping[str, Any]) -> str | None:
    """--config, else OCISBX_CONFIG."""
    given: str | None = options.get("config")
    return os.environ.get("OCISBX_CONFIG") or None if given is None else given


@contextlib.contextmanager
def parent_handle(options: Mapping[str, Any]) -> Iterator[int | None]:
    """A pidfd of the process that called us, where we are not to outlive it.

    Raises:
        InvalidState: it has ended already.
    """
    parent = os.getppid()
    with handle_of(parent if "die-with-parent" in options else None) as handle:
        if os.getppid() != parent:
            # What was opened may be another process by that number.
            raise InvalidState("the process to end with has ended already")
        yield handle


def make_call(options: Mapping[str, Any], argv: tuple[str, ...], extra: dict[str, str]) -> Call:
    """What differs between two runs of one plan."""
    capture = "json" in options
    return Call(
        argv=argv,
        environment=os.environ,
        extra_environment=extra,
        name=options.get("name"),
        stdin=STDIN if "interactive" in options else None,
        stdout=None if capture else STDOUT,
        stderr=None if capture else STDERR,
    )


def execute(
    plan: Plan,
    call: Call,
    interrupts: Interrupts,
    options: Mapping[str, Any],
    *,
    resolve_s: float,
    kept: str | None = None,
    renewal: Renewal | None = None,
) -> int:
    """Run it to its end and say what has to be said (`options`: json, posture, no-audit); the
    exit code."""
    interrupts.begin()
    hold: Hold = interrupts.hold
    person: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if "posture" in options:
        from ocisbx.cli.posture import observed  # noqa: PLC0415 -- for --posture only

        call, hold = observed(plan, call, hold)
    if plan.terminal or "transcript" in options:
        from ocisbx.cli.terminal import sit_down  # noqa: PLC0415 -- for terminals only

        person, call, hold = sit_down(plan, call, hold, options.get("transcript"))
    # What was imported lives to the end: without this, enabling begins with a 3 ms collection.
    gc.freeze()
    gc.enable()
    try:
        with person:
            result = run_plan(
                plan,
                call,
                resolve_s=resolve_s,
                audit="no-audit" not in options,
                hold=hold,
                renewal=renewal,
                waiting=Waiting(interrupts.pause, say),
            )
    except (RuntimeFailed, TerminalError):
        if interrupts.count:
            # Ended before its payload could run.
            return EXIT_CANCELLED
        raise
    if "json" in options:
        put(inert_json(result.to_dict() | {"bundle": kept}) + "\n")
    else:
        tell(result, plan)
    return result.shell_exit_code


def tell(result: RunResult, plan: Plan) -> None:
    """What the payload's output and exit code leave open."""
    if result.enforcement != plan.enforcement:
        _tell_less(result, plan)
    if result.hint is not None:
        say(printable(f"ocisbx: {result.hint.why}"))
        if result.hint.remedy:
            say(printable(f"  remedy: {result.hint.remedy}"))
    elif result.termination in TOLD:
        after = f" after {plan.timeout_s:g} s" if result.termination == "timed_out" else ""
        say(f"ocisbx: {show(result.command[0])} {describe_end(result)}{after}")
    for name, captured in (("stdout", result.captured_stdout), ("stderr", result.captured_stderr)):
        if captured.truncated:
            limit = plan.max_output_bytes
            say(
                f"ocisbx: {name} was cut at {limit} of {captured.total_bytes} bytes\n"
                "  remedy: --max-output SIZE, or write to a file in the workspace"
            )


def _tell_less(result: RunResult, plan: Plan) -> None:
    """What turned out at the start, or while it ran, not to hold as the plan said."""
    from ocisbx.cli.notes import notes  # noqa: PLC0415 -- for what went wrong only

    known = notes(plan)
    for line in notes(plan._replace(enforcement=result.enforcement)):
        if line not in known:
            say(line)


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP end the payload, gently; a second one hurries.

    Until `begin` is called, and once the context has ended by one, they raise KeyboardInterrupt,
    several at once a single one: the next would break off what the first one cleans up (systemd
    sends SIGTERM and SIGHUP together). One that the caller ignores (nohup, the background of a
    shell) stays ignored.
    """

    def __init__(self) -> None:
        self.count = 0
        self._came_at_s: float | None = None
        self._raised = self._running = self._is_over = False
        # A pidfd: its end is one, too.
        self.parent: int | None = None
        self._execution: Driven | None = None

    def __enter__(self) -> Self:
        for number in ENDINGS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self._is_over = True
        for number in ENDINGS:
            if signal.getsignal(number) != self._on_signal:
                continue
            if self._came_at_s is None:
                signal.signal(number, signal.SIG_DFL)
            else:
                # Python's end gives back the default action: what ends by the first signal would
                # have the exit code of one that came a moment later.
                atexit.register(signal.signal, number, signal.SIG_IGN)
        if self._raised and error is not None and not isinstance(error, KeyboardInterrupt):
            # Raised while a model is built, it comes out as pydantic's error.
            raise KeyboardInterrupt from error

    def begin(self) -> None:
        """From here on they end the payload; raises KeyboardInterrupt when one came before. What is
        raised in a destructor, or a callback of native code, Python prints and ignores."""
        self._running = True
        if self._raised:
            raise KeyboardInterrupt

    def hold(self, execution: Driven) -> None:
        """What to cancel; at once when a signal came before."""
        self._execution = execution
        if self.parent is not None:
            execution.attended[self.parent] = self._on_orphaned
        if self.count:
            execution.cancel()

    def pause(self, seconds: float) -> None:
        """Sleep before anything has started; raises KeyboardInterrupt when a signal came."""
        watched = [] if self.parent is None else [self.parent]
        orphaned = select.select(watched, [], [], seconds)[0]
        if self.count or orphaned:
            raise KeyboardInterrupt

    def _on_orphaned(self) -> None:
        assert self._execution is not None
        assert self.parent is not None
        # It stays readable.
        del self._execution.attended[self.parent]
        self._execution.cancel()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        now_s, came_at_s = time.monotonic(), self._came_at_s
        if not self._running or self._is_over:
            if came_at_s is not None and now_s < came_at_s + AT_ONCE_S:
                return
            self._came_at_s, self._raised = now_s, True
            raise KeyboardInterrupt
        self._came_at_s = now_s
        self.count += 1
        if self._execution is not None:
            self._execution.cancel()
