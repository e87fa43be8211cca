"""`ocisbx bundle make|check|run|rerun|diff`."""

from __future__ import annotations

import os
from typing import Any

from ocisbx.backends.base import Call
from ocisbx.backends.kept import keep_bundle, kept_plan, rerun_command, shell_line
from ocisbx.bundle.check import check_bundle
from ocisbx.bundle.diff import ABSENT, differences
from ocisbx.bundle.kept import read_config
from ocisbx.bundle.view import payload_argv
from ocisbx.cli.options import JSON, Option, Syntax, parse, wants_help
from ocisbx.cli.output import printable, put, put_json
from ocisbx.cli.run import (
    STDERR,
    STDIN,
    STDOUT,
    Interrupts,
    execute,
    extra_environment,
    find_plan,
    make_call,
)
from ocisbx.cli.run_options import CALL, CONTAINER
from ocisbx.command import SpawnError, become
from ocisbx.errors import ConfigError, RuntimeMissing
from ocisbx.values import check_command, did_you_mean, show

EXIT_NO = 1

_MAKE_CALL = tuple(o for o in CALL if o.key in ("env", "env-file"))

MAKE = Syntax(
    "ocisbx bundle make -o DIR [RUN OPTIONS] [--] COMMAND [ARG...]",
    "",
    (Option(("-o", "--output"), "one", "DIR", "where to"), *CONTAINER, *_MAKE_CALL),
    command=True,
    page="""\
usage: ocisbx bundle make -o DIR [RUN OPTIONS] [--] COMMAND [ARG...]

Write the bundle that `ocisbx run` would run into DIR, which must be new or
empty, and run nothing.

  -o, --output DIR  where to
  RUN OPTIONS       those of `ocisbx run` (ocisbx run --help) that shape a
                    container: all but -i, --json, --name, --no-audit,
                    --dry-run, --host and --keep-bundle

examples:
  ocisbx bundle make -o /tmp/b -- make test
  ocisbx bundle make -o /tmp/b --network host -v /opt/go:ro -- go build ./...
""",
)
CHECK = Syntax(
    "ocisbx bundle check [--json] DIR",
    "Say what is wrong with a bundle: JSON path and rule, one a line.\nExit code 1: not valid.",
    (JSON,),
    ("ocisbx bundle check /tmp/b",),
)
RUN_KEPT = Syntax(
    "ocisbx bundle run [OPTIONS] DIR",
    "Run a kept bundle as its config.json says, also when it was edited; exit codes\nas `run`.",
    (
        Option(("-i", "--interactive"), "flag", "", "forward stdin, else it is empty"),
        Option(("--json",), "flag", "", "print one RunResult object, and nothing else"),
        Option(("--name",), "one", "NAME", "the container's name"),
        Option(("--no-audit",), "flag", "", "leave the call out of the audit log"),
        Option(("--posture",), "flag", "", "say on stderr what the container withholds"),
    ),
    ("ocisbx bundle run /tmp/b", "ocisbx bundle run -i /tmp/b < input.txt"),
)
RERUN = Syntax(
    "ocisbx bundle rerun [--exec] DIR",
    "Print the shell command that runs a kept bundle by its runtime alone, without\nocisbx.",
    (Option(("--exec",), "flag", "", "become that command instead of printing it"),),
    ("ocisbx bundle rerun /tmp/b | tail -n 1 | sh", "ocisbx bundle rerun --exec /tmp/b"),
)
DIFF = Syntax(
    "ocisbx bundle diff [--json] DIR DIR",
    "What differs between two bundles' config.json, by JSON path.\nExit code 1: they differ.",
    (JSON,),
    ("ocisbx bundle diff /tmp/a /tmp/b",),
)
ABOUT = """\
usage: ocisbx bundle make|check|run|rerun|diff [OPTIONS] DIR

  make -o DIR [RUN OPTIONS] -- COMMAND   write a bundle, run nothing
  check DIR                              what is wrong with it
  run DIR                                run it, as its config.json says
  rerun DIR                              print the runtime's own command for it
  diff DIR DIR                           compare two

Exit code 1: `check` found something, or `diff` a difference.

examples:
  ocisbx bundle make -o /tmp/b -- make test
  ocisbx bundle rerun /tmp/b | tail -n 1 | sh
"""


def bundle_main(arguments: list[str]) -> int:
    """Carry `bundle VERB` out."""
    verb = arguments[0] if arguments else "--help"
    if verb in ("-h", "--help"):
        put(ABOUT)
        return 0
    if verb not in VERBS:
        raise ConfigError(
            f"bundle {show(verb)} is not a verb{did_you_mean(verb, VERBS)}",
            remedy="ocisbx bundle --help",
        )
    syntax, carry_out = VERBS[verb]
    parsed = parse(syntax, arguments[1:])
    if wants_help(syntax, parsed):
        return 0
    return carry_out(parsed.options, parsed.words)


def _directories(words: list[str], count: int, syntax: Syntax) -> list[str]:
    if len(words) != count:
        wanted = "one directory" if count == 1 else f"{count} directories"
        raise ConfigError(f"{wanted} expected, {len(words)} given", remedy=f"usage: {syntax.usage}")
    return words


def _make(options: dict[str, Any], words: list[str]) -> int:
    argv = check_command(words)
    if "output" not in options:
        raise ConfigError("-o DIR is missing", remedy=f"usage: {MAKE.usage}")
    call = make_call(options, argv, extra_environment(options))
    put(keep_bundle(options["output"], find_plan(options), call) + "\n")
    return 0


def _check(options: dict[str, Any], words: list[str]) -> int:
    (path,) = _directories(words, 1, CHECK)
    found = check_bundle(path)
    if "json" in options:
        rows = [{"path": violation.path, "rule": violation.rule} for violation in found]
        put_json({"bundle": path, "valid": not found, "violations": rows})
    else:
        lines = [printable(str(violation)) for violation in found]
        put("\n".join(lines or [f"{printable(path)}: valid"]) + "\n")
    return EXIT_NO if found else 0


def _run(options: dict[str, Any], words: list[str]) -> int:
    (path,) = _directories(words, 1, RUN_KEPT)
    with Interrupts() as interrupts:
        plan = kept_plan(path)
        capture = "json" in options
        call = Call(
            argv=check_command(payload_argv(read_config(path)["process"]["args"])),
            environment={},
            name=options.get("name"),
            stdin=STDIN if "interactive" in options else None,
            stdout=None if capture else STDOUT,
            stderr=None if capture else STDERR,
        )
        return execute(
            plan,
            call,
            interrupts,
            options,
            resolve_s=0.0,
            kept=os.path.abspath(path),
        )


def _rerun(options: dict[str, Any], words: list[str]) -> int:
    (path,) = _directories(words, 1, RERUN)
    command = rerun_command(path)
    if "exec" not in options:
        put(shell_line(command) + "\n")
        return 0
    try:
        become(command)
    except SpawnError as error:
        raise RuntimeMissing(
            f"{command[0]} cannot be started",
            why=error.strerror or "",
            remedy="`ocisbx doctor` tells which runtimes are here",
        ) from error


def _diff(options: dict[str, Any], words: list[str]) -> int:
    left, right = _directories(words, 2, DIFF)
    found = differences(read_config(left), read_config(right))
    if "json" in options:
        sides = ("left", "right")
        rows = [
            {"path": one.path}
            | {side: getattr(one, side) for side in sides if getattr(one, side) is not ABSENT}
            for one in found
        ]
        put_json(rows)
    else:
        for one in found:
            put(f"{printable(one.path)}: {_shown(one.left)} -> {_shown(one.right)}\n")
    return EXIT_NO if found else 0


def _shown(value: object) -> str:
    from json import dumps  # noqa: PLC0415 -- beside the flag of that name

    return "(absent)" if value is ABSENT else printable(dumps(value, ensure_ascii=False))


VERBS = {
    "make": (MAKE, _make),
    "check": (CHECK, _check),
    "run": (RUN_KEPT, _run),
    "rerun": (RERUN, _rerun),
    "diff": (DIFF, _diff),
}
