"""`ocisbx expect`: a script for a program on a terminal, checked and run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocisbx.cli.options import JSON, Option, Syntax, parse, wants_help
from ocisbx.cli.output import printable, put, put_json
from ocisbx.cli.run_options import CALL, CONTAINER
from ocisbx.documents import MAX_FILE_BYTES, read_file, show_path
from ocisbx.errors import ConfigError
from ocisbx.expect.file import parse_script
from ocisbx.expect.params import command_of, load_params, parse_params
from ocisbx.quantities import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.expect.handover import Attendant
    from ocisbx.expect.report import ScriptReport
    from ocisbx.expect.script import Script
    from ocisbx.expect.terminal import Terminal

# What belongs to one call, and makes sense of a program that a script drives.
_TAKEN = ("env", "env-file", "name", "no-audit", "transcript")
EXPECT = Syntax(
    "ocisbx expect FILE.toml|- [OPTIONS] [-- COMMAND [ARG...]]",
    "",
    (
        *CONTAINER,
        *(option for option in CALL if option.key in _TAKEN),
        Option(("--param",), "many", "NAME=VALUE", ""),
        Option(("--dry-run",), "flag", "", ""),
        JSON,
        Option(("--wait-user",), "one", "SECONDS", ""),
    ),
    page="""\
usage: ocisbx expect FILE.toml|- [OPTIONS] [-- COMMAND [ARG...]]

Drive a program on a terminal by a script (TOML, ocisbx-expect(5); - reads
standard input): wait for prompts, answer them. The program runs in a fresh
container. COMMAND goes before the file's own.

  --dry-run    check the file, its patterns and keys; run nothing
  --json       print one object, and nothing else
  --wait-user SECONDS
               where a person is needed, and none sits here: how long to wait
               for one to come by `ocisbx attach`
  --param NAME=VALUE
               a value for ${param:NAME}, which the file's [params] names; again
               for others. It is shown: what is secret comes by [secrets]
  RUN OPTIONS  those of `ocisbx run` that say what the container is
               (--workspace, -v, --network, --memory ...: ocisbx run --help),
               -e, --env-file, --name, --transcript and --no-audit

Exit code 0: the script ended ok, 1: a case said fail, or the program ended
early, 124: a step timed out, 3: a person is needed and nobody is there,
125: the file is wrong.

examples:
  ocisbx expect --dry-run apply.toml
  ocisbx expect apply.toml -e TF_LOG=info -- terraform apply
  ocisbx expect login.toml --param user=ada
  ocisbx expect --dry-run - < apply.toml
""",
)


def expect_main(arguments: list[str]) -> int:
    """Check a script, and run it."""
    own, command = _split(arguments)
    parsed = parse(EXPECT, own)
    if wants_help(EXPECT, parsed):
        return 0
    if len(parsed.words) != 1:
        what = "one FILE.toml, or -, expected"
        raise ConfigError(what, remedy=f"usage: {EXPECT.usage}")
    script = read_script(parsed.words[0])
    if not command and not script.command:
        remedy = 'write it after --, or as command = ["PROGRAM", "ARG"] in the file'
        raise ConfigError("no command was given", remedy=remedy)
    params = load_params(script, parse_params(parsed.options.get("param", ())))
    argv, as_json = command or command_of(script, params), "json" in parsed.options
    if "dry-run" in parsed.options:
        _tell(script, argv, as_json=as_json)
        return 0
    return tell_report(_run(script, argv, params, parsed.options), as_json=as_json)


def _run(
    script: Script, argv: list[str], params: Mapping[str, str], options: dict[str, Any]
) -> ScriptReport:
    """Raises OcisbxError: the container cannot be started, a secret is not there."""
    # For a script that is only checked none of it is needed.
    from ocisbx.cli.prepare import build_config  # noqa: PLC0415
    from ocisbx.cli.run import Interrupts, extra_environment  # noqa: PLC0415
    from ocisbx.expect.hidden import load_secrets  # noqa: PLC0415
    from ocisbx.expect.runner import run_script  # noqa: PLC0415
    from ocisbx.sandbox.sandbox import Sandbox  # noqa: PLC0415

    secrets = load_secrets(script, os.environ)
    given = options.get("wait-user")
    wait_s = None if given is None else parse_seconds(given)
    extra = extra_environment(options)
    with Interrupts():
        sandbox = Sandbox(build_config(options), audit="no-audit" not in options)
        with sandbox.spawn(
            argv,
            size=script.size,
            env=extra,
            name=options.get("name"),
            transcript=options.get("transcript"),
        ) as terminal:
            attendant = _attendant(terminal, wait_s)
            return run_script(script, terminal, secrets, attendant, params=params)


def _attendant(terminal: Terminal, wait_s: float | None) -> Attendant | None:
    """Who brings a person to the terminal; None: nobody can be there."""
    from ocisbx.cli.attend import FromElsewhere, InPlace, someone_sits_here  # noqa: PLC0415 -- as above

    if someone_sits_here():
        return InPlace(terminal)
    return None if wait_s is None else FromElsewhere(terminal, wait_s)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Options and file; the command after `--`."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def read_script(name: str) -> Script:
    """The script in a file, or on standard input for `-`. Raises ConfigError."""
    if name != "-":
        return parse_script(read_file(Path(name)), show_path(Path(name)))
    try:
        with os.fdopen(os.dup(0), "rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
        return parse_script(raw.decode(), "standard input")
    except (OSError, ValueError) as error:
        raise ConfigError("standard input cannot be read", why=str(error)) from None


def tell_report(report: ScriptReport, *, as_json: bool) -> int:
    """Print what a script did, inert whatever the program printed; returns the exit code."""
    if as_json:
        put_json(report.to_dict())
        return report.exit_code
    for step in report.steps:
        name = f" {step.name}:" if step.name else ""
        matched = "".join(f" {text!r}" for _, text in step.matches[-1:])
        line = f"{step.number:4}  {step.kind:14}{step.duration_s:8.3f} s {step.outcome}"
        put(printable(f"{line}{name}{matched}") + "\n")
    told = ": ".join(filter(None, [report.outcome, report.why, report.message]))
    put(printable(told) + "\n")
    return report.exit_code


def _tell(script: Script, command: list[str], *, as_json: bool) -> None:
    """What would be done."""
    if as_json:
        document: dict[str, Any] = script.model_dump(mode="json", exclude_none=True)
        put_json({**document, "command": command})
        return
    put(f"{printable(' '.join(command))}: {len(script.steps)} steps\n")
    for number, step in enumerate(script.steps, start=1):
        limit_s = script.timeout_s if step.timeout_s is None else step.timeout_s
        name = f"  {printable(step.name)}" if step.name else ""
        put(f"{number:4}  {step.kind:14}{limit_s:g} s{name}\n")
