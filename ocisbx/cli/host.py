"""`ocisbx doctor`, `features`, `schema` and `version`: about this host and this program."""

from __future__ import annotations

import sys

from ocisbx.cli.options import JSON, Syntax, parse, refuse_words, wants_help
from ocisbx.cli.output import put, put_json
from ocisbx.errors import ConfigError
from ocisbx.version import VERSION

VERSION_SYNTAX = Syntax(
    "ocisbx version [--json]",
    "Print the version of ocisbx.",
    (JSON,),
    ("ocisbx version --json",),
)
SCHEMA = Syntax(
    "ocisbx schema [NAME]",
    "Print a JSON schema; without NAME the names.",
    (),
    ("ocisbx schema sandbox > sandbox.schema.json",),
)
FEATURES = Syntax(
    "ocisbx features [--json]",
    "What this host and each of its runtimes can do (each is tried), and which one\n"
    "`--runtime auto` takes.",
    (JSON,),
    ("ocisbx features", "ocisbx features --json | python3 -m json.tool"),
)
DOCTOR = Syntax(
    "ocisbx doctor [--json]",
    "Examine this host: what keeps sandboxes from running or weakens them, with\n"
    "remedies. Exit code 0: nothing does, 1: something weakens them, 69: no sandbox\n"
    "can run here.",
    (JSON,),
    ("ocisbx doctor", "ocisbx doctor --json"),
)


def version_main(arguments: list[str]) -> int:
    """Print the version."""
    parsed = parse(VERSION_SYNTAX, arguments)
    if wants_help(VERSION_SYNTAX, parsed):
        return 0
    refuse_words(VERSION_SYNTAX, parsed)
    if "json" in parsed.options:
        put_json({"version": VERSION, "python": ".".join(map(str, sys.version_info[:3]))})
    else:
        put(f"ocisbx {VERSION}\n")
    return 0


def schema_main(arguments: list[str]) -> int:
    """Print one schema, or the names of all."""
    parsed = parse(SCHEMA, arguments)
    if wants_help(SCHEMA, parsed):
        return 0
    from ocisbx.schemas import SCHEMAS, schema  # noqa: PLC0415 -- the models; version has no use

    if len(parsed.words) > 1:
        raise ConfigError("one NAME expected", remedy=f"usage: {SCHEMA.usage}")
    if parsed.words:
        put_json(schema(parsed.words[0]))
    else:
        put("".join(f"{name}\n" for name in SCHEMAS))
    return 0


def features_main(arguments: list[str]) -> int:
    """Show what the host and each runtime can do."""
    parsed = parse(FEATURES, arguments)
    if wants_help(FEATURES, parsed):
        return 0
    refuse_words(FEATURES, parsed)
    from ocisbx.cli.progress import Progress  # noqa: PLC0415 -- as above
    from ocisbx.doctor import render_report, report  # noqa: PLC0415 -- as above

    with Progress() as progress:
        document = report(progress.tell)
    if "json" in parsed.options:
        put_json(document)
    else:
        put(render_report(document))
    return 0


def doctor_main(arguments: list[str]) -> int:
    """Examine the host."""
    parsed = parse(DOCTOR, arguments)
    if wants_help(DOCTOR, parsed):
        return 0
    refuse_words(DOCTOR, parsed)
    from ocisbx.cli.progress import Progress  # noqa: PLC0415 -- as above
    from ocisbx.doctor import examine, exit_code, render  # noqa: PLC0415 -- as above

    with Progress() as progress:
        findings = examine(progress.tell)
    if "json" in parsed.options:
        put_json([finding.to_dict() for finding in findings])
    else:
        put(render(findings))
    return exit_code(findings)
