"""`ocisbx exec` and `cp`: further commands and files, in a container in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ocisbx.backends.base import Call
from ocisbx.cli.containers import find, tell_end
from ocisbx.cli.options import Option, Syntax, parse, wants_help
from ocisbx.cli.output import inert_json, put
from ocisbx.cli.progress import Progress
from ocisbx.cli.run import STDERR, STDIN, STDOUT, Interrupts, extra_environment
from ocisbx.errors import ConfigError
from ocisbx.quantities import parse_seconds
from ocisbx.values import check_command, parse_user, show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.background.commands import Orders
    from ocisbx.background.container import Container
    from ocisbx.result import RunResult

FURTHER = (
    Option(("-e", "--env"), "many", "K[=V]", "add a variable; K alone: your value"),
    Option(("--env-file",), "many", "FILE", "such lines from a file"),
    Option(("-w", "--workdir"), "one", "DIR", "where it starts"),
    Option(("-u", "--user"), "one", "UID:GID", "who it is inside"),
    Option(("-i", "--interactive"), "flag", "", "forward stdin, else it is empty"),
    Option(("-t", "--tty"), "flag", "", "a terminal; -it: at your keyboard"),
    Option(("--transcript",), "one", "FILE", "keep what passes on it (asciicast)"),
    Option(("--timeout",), "one", "SECONDS", "then TERM, and KILL after the grace"),
    Option(("--json",), "flag", "", "print one RunResult object, and nothing else"),
)
EXEC = Syntax(
    "ocisbx exec [OPTIONS] ID|NAME COMMAND [ARG...]",
    "Run a further command in a container in the background, under its limits and\n"
    "rules; exit codes as `run`. It ends with the container.",
    FURTHER,
    ("ocisbx exec build ps aux", "ocisbx exec -it build bash"),
    command=True,
)
CP = Syntax(
    "ocisbx cp ID|NAME:PATH PATH | PATH ID|NAME:PATH",
    "Copy a file or a tree out of or into a container in the background, as cp -r.\n"
    "On the host nothing is overwritten, and no link is followed.",
    (),
    ("ocisbx cp build:/tmp/report.html .", "ocisbx cp ./data build:/tmp"),
)


def exec_main(arguments: list[str]) -> int:
    """Run a further command; its exit code."""
    parsed = parse(EXEC, arguments)
    if wants_help(EXEC, parsed):
        return 0
    if len(parsed.words) < 2:
        raise ConfigError("an ID or NAME and a command expected", remedy=f"usage: {EXEC.usage}")
    given, *words = parsed.words
    return carry_out(find(given), parsed.options, check_command(words))


def carry_out(container: Container, options: Mapping[str, Any], argv: tuple[str, ...]) -> int:
    """Run it there, with FURTHER's options; its exit code."""
    capture = "json" in options
    user = parse_user(options["user"]) if "user" in options else None
    call = Call(
        argv=argv,
        environment={},
        extra_environment=extra_environment(options),
        stdin=STDIN if "interactive" in options else None,
        stdout=None if capture else STDOUT,
        stderr=None if capture else STDERR,
        workdir=options.get("workdir"),
        user=None if user is None else (user.uid, user.uid if user.gid is None else user.gid),
    )
    with Interrupts() as interrupts, container.orders() as orders:
        interrupts.begin()
        terminal = "tty" in options
        # The time limit of a session is each command's; any other container's is its own.
        timeout_s = orders.plan.timeout_s if container.record.is_session else None
        if "timeout" in options:
            timeout_s = parse_seconds(options["timeout"])
        there = orders.under(timeout_s=timeout_s, terminal=terminal)
        if terminal or "transcript" in options:
            result = _run_on_terminal(there, call, interrupts, options.get("transcript"))
        else:
            result = there.run(call, hold=interrupts.hold)
    if capture:
        put(inert_json(result.to_dict()) + "\n")
    else:
        tell_end(result)
    return result.shell_exit_code


def _run_on_terminal(
    orders: Orders, call: Call, interrupts: Interrupts, transcript: str | None
) -> RunResult:
    from ocisbx.cli.terminal import sit_down  # noqa: PLC0415 -- for terminals only

    person, call, hold = sit_down(orders.plan, call, interrupts.hold, transcript)
    with person:
        return orders.run(call, hold=hold)


def cp_main(arguments: list[str]) -> int:
    """Copy one file or tree."""
    parsed = parse(CP, arguments)
    if wants_help(CP, parsed):
        return 0
    if len(parsed.words) != 2:
        raise ConfigError("two paths expected", remedy=f"usage: {CP.usage}")
    (source_of, source), (target_of, target) = map(_split, parsed.words)
    if bool(source_of) is bool(target_of):
        raise ConfigError(
            "one of both is to be in a container", remedy="ID:PATH; ./a:b is a file of the host"
        )
    container = find(source_of or target_of)
    with Progress() as progress:
        progress.tell(f"copying {show(source)}")
        if source_of:
            container.get(source, target)
        else:
            container.put(source, target)
    return 0


def _split(word: str) -> tuple[str, str]:
    """The container, empty for the host, and the path."""
    container, colon, path = word.partition(":")
    if not colon or "/" in container or container in ("", ".", ".."):
        return "", word
    return container, path
