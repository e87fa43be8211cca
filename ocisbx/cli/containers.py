"""`ocisbx start`, `wait`, `stop`, `kill` and `rm`: containers in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.backends.live import live_owners
from ocisbx.background.container import Container
from ocisbx.bundle.record import State
from ocisbx.cli.options import Option, Syntax, parse, wants_help
from ocisbx.cli.output import inert_json, printable, put, say
from ocisbx.cli.run import TOLD
from ocisbx.errors import ConfigError, InvalidState, OcisbxError
from ocisbx.quantities import parse_seconds, parse_signal
from ocisbx.result import describe_end
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.cli.options import Parsed
    from ocisbx.result import RunResult

START = Syntax(
    "ocisbx start ID|NAME...",
    "Start containers that were created; prints each that was started.",
    (),
    ("ocisbx create --name build -- make", "ocisbx start build"),
)
WAIT = Syntax(
    "ocisbx wait [--timeout SECONDS] [--json] ID|NAME",
    "Wait for the end of a container in the background; exit codes as `run`.",
    (
        Option(("--timeout",), "one", "SECONDS", "wait no longer: exit code 125, it goes on"),
        Option(("--json",), "flag", "", "print one RunResult object, and nothing else"),
    ),
    ("ocisbx wait build", "ocisbx wait --timeout 60 --json build"),
)
STOP = Syntax(
    "ocisbx stop [-t SECONDS] ID|NAME...",
    "SIGTERM to the command, and SIGKILL after the grace; returns when it has ended.",
    (Option(("-t", "--time"), "one", "SECONDS", "the grace; default: that of `run --grace`"),),
    ("ocisbx stop build", "ocisbx stop -t 30 build web"),
)
KILL = Syntax(
    "ocisbx kill [-s SIGNAL] ID|NAME...",
    "Signal the command of each container; all that it started ends with it.",
    (Option(("-s", "--signal"), "one", "SIGNAL", "a name or a number (KILL)"),),
    ("ocisbx kill build", "ocisbx kill -s HUP web"),
)
RM = Syntax(
    "ocisbx rm [-f] ID|NAME...",
    "Remove containers that have ended, with what was captured of them.",
    (Option(("-f", "--force"), "flag", "", "end those that run"),),
    ("ocisbx rm build", "ocisbx rm -f build web"),
)


def find(given: str) -> Container:
    """The container in the background by this id or name.

    Raises:
        InvalidState: it runs in the foreground of another process.
        ConfigError: there is none.
    """
    try:
        return Container.find(given)
    except ConfigError:
        for owner in live_owners():
            if given in (owner.id, owner.name):
                raise InvalidState(
                    f"{show(given)} does not run in the background",
                    why=f"it is the foreground of process {owner.pid}",
                    remedy=f"kill {owner.pid} ends it",
                ) from None
        raise


def each(syntax: Syntax, parsed: Parsed, act: Callable[[Container], None]) -> int:
    """Do it to all that are named, whatever becomes of the others; prints those that it was done
    to. The worst exit code."""
    if not parsed.words:
        raise ConfigError("an ID or NAME expected", remedy=f"usage: {syntax.usage}")
    code = 0
    for given in parsed.words:
        try:
            act(find(given))
            put(f"{printable(given)}\n")
        except OcisbxError as error:
            say(printable_lines(error.render()))
            code = max(code, error.exit_code)
    return code


def printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def start_main(arguments: list[str]) -> int:
    """Start created containers."""
    parsed = parse(START, arguments)
    if wants_help(START, parsed):
        return 0
    code = 0

    def start(container: Container) -> None:
        nonlocal code
        container.start()
        result = container.never_ran()
        if result is not None:
            tell_end(result)
            code = result.shell_exit_code

    return max(each(START, parsed, start), code)


def wait_main(arguments: list[str]) -> int:
    """Wait for one container; its exit code."""
    parsed = parse(WAIT, arguments)
    if wants_help(WAIT, parsed):
        return 0
    if len(parsed.words) != 1:
        raise ConfigError("one ID or NAME expected", remedy=f"usage: {WAIT.usage}")
    given = parsed.options.get("timeout")
    timeout_s = None if given is None else parse_seconds(given, zero=True)
    container = find(parsed.words[0])
    result = container.wait(timeout_s)
    if result is None:
        raise InvalidState(
            f"{show(parsed.words[0])} has not ended in {timeout_s:g} s",
            remedy="wait longer, or end it: ocisbx stop",
        )
    if "json" in parsed.options:
        put(inert_json(result.to_dict()) + "\n")
    else:
        tell_end(result)
    return result.shell_exit_code


def tell_end(result: RunResult) -> None:
    """What the exit code leaves open."""
    if result.hint is not None:
        say(printable(f"ocisbx: {result.hint.why}"))
        if result.hint.remedy:
            say(printable(f"  remedy: {result.hint.remedy}"))
    elif result.termination in TOLD:
        say(f"ocisbx: {show(result.command[0])} {describe_end(result)}")


def stop_main(arguments: list[str]) -> int:
    """Stop containers."""
    parsed = parse(STOP, arguments)
    if wants_help(STOP, parsed):
        return 0
    given = parsed.options.get("time")
    grace_s = None if given is None else parse_seconds(given, zero=True)
    return each(STOP, parsed, lambda container: container.stop(grace_s))


def kill_main(arguments: list[str]) -> int:
    """Signal containers."""
    parsed = parse(KILL, arguments)
    if wants_help(KILL, parsed):
        return 0
    number = parse_signal(parsed.options.get("signal", "KILL"))
    return each(KILL, parsed, lambda container: container.signal(number))


def rm_main(arguments: list[str]) -> int:
    """Remove containers."""
    parsed = parse(RM, arguments)
    if wants_help(RM, parsed):
        return 0
    force = "force" in parsed.options

    def remove(container: Container) -> None:
        if container.record.is_session and (force or container.state is not State.RUNNING):
            from ocisbx.session.session import remove as remove_session  # noqa: PLC0415 -- for these

            remove_session(container)
        else:
            container.remove(force=force)

    return each(RM, parsed, remove)
