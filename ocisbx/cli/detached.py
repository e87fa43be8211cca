"""`ocisbx create`, and `run -d`: a container that goes on without the caller."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from ocisbx.background.launch import NeverRan, Options, launch
from ocisbx.cli.options import Syntax, parse, wants_help
from ocisbx.cli.output import put, put_json, say
from ocisbx.cli.run import (
    STDIN,
    Interrupts,
    extra_environment,
    find_plan,
    make_call,
    parent_handle,
    renewal_of,
    tell,
)
from ocisbx.cli.run_options import CALL, CONTAINER
from ocisbx.errors import ConfigError
from ocisbx.values import check_command, check_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from ocisbx.plan import Plan

CREATE = Syntax(
    "ocisbx create [RUN OPTIONS] [--] COMMAND [ARG...]",
    "",
    (*CONTAINER, *CALL),
    command=True,
    page="""\
usage: ocisbx create [RUN OPTIONS] [--] COMMAND [ARG...]

Make a container in the background that waits for `ocisbx start`, and print its
id. `ocisbx run -d` does both.

  RUN OPTIONS       those of `ocisbx run` (ocisbx run --help) but -d, --posture,
                    --dry-run, --host and --keep-bundle; with --json the id is
                    printed as {"id": ..., "name": ...}

examples:
  ocisbx create --name build -- make
  ocisbx start build && ocisbx wait build
""",
)
# What only the foreground can do, and what to do instead.
FOREGROUND = {
    "posture": "ocisbx inspect --posture ID tells it of a container that runs",
    "dry-run": "leave -d out: nothing is run",
    "host": "leave -d out: nothing is run",
    "keep-bundle": "ocisbx bundle make -o DIR keeps one",
}


def create_main(arguments: list[str]) -> int:
    """Create a container; prints its id."""
    started = time.monotonic()
    parsed = parse(CREATE, arguments)
    if wants_help(CREATE, parsed):
        return 0
    if "detach" in parsed.options:
        raise ConfigError("-d starts a container", remedy="ocisbx run -d")
    return detach(parsed.options, parsed.words, started, start=False)


def detach(options: Mapping[str, Any], words: list[str], began: float, *, start: bool) -> int:
    """Bring a command into the background and print the id; the exit code."""
    for key, remedy in FOREGROUND.items():
        if key in options:
            raise ConfigError(f"--{key} is for the foreground", remedy=remedy)
    # A terminal of the caller's stays the caller's: who attaches types.
    keyboard = "interactive" in options and os.isatty(STDIN)
    argv = check_command(words)
    if "name" in options:
        check_name(options["name"])
    with contextlib.ExitStack() as stack:
        stack.enter_context(Interrupts())
        parent = stack.enter_context(parent_handle(options))
        plan = find_plan(options)
        call = make_call(options, argv, extra_environment(options))
        if keyboard:
            call = call._replace(stdin=None)
        made = launch(
            plan,
            call._replace(stdout=None, stderr=None),
            renewal_of(options),
            Options(
                start=start,
                audit="no-audit" not in options,
                resolve_s=time.monotonic() - began,
                parent=parent,
                keyboard=keyboard,
                transcript=stack.enter_context(_transcript(plan, options)),
                tell=say,
            ),
        )
    if isinstance(made, NeverRan):
        tell(made.result, plan)
        return made.result.shell_exit_code
    if "json" in options:
        put_json({"id": made, "name": options.get("name")})
    else:
        put(f"{made}\n")
    return 0


def _transcript(plan: Plan, options: Mapping[str, Any]) -> AbstractContextManager[int | None]:
    if "transcript" not in options:
        return contextlib.nullcontext()
    from ocisbx.terminal.transcript import new_file  # noqa: PLC0415 -- for those who want one

    return new_file(options["transcript"], has_terminal=plan.terminal)
