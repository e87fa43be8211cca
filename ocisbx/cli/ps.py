"""`ocisbx ps` and `gc`: which containers there are, and what nobody owns any more."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from ocisbx.audit import redact
from ocisbx.backends.live import live_owners
from ocisbx.background.ending import read_ending
from ocisbx.background.leftovers import collect
from ocisbx.bundle.record import State, read_records
from ocisbx.cli.options import JSON, Option, Syntax, parse, refuse_words, wants_help
from ocisbx.cli.output import printable, put, put_json, put_table
from ocisbx.errors import BundleError

if TYPE_CHECKING:
    from ocisbx.bundle.owner import Owner
    from ocisbx.bundle.record import Record

PS = Syntax(
    "ocisbx ps [-a] [--json]",
    "List your containers that run now, in the background and in the foreground of\nany process.",
    (
        Option(("-a", "--all"), "flag", "", "those too that were not started, or have ended"),
        JSON,
    ),
    ("ocisbx ps", "ocisbx ps -a --json"),
)
GC = Syntax(
    "ocisbx gc [--json]",
    "Remove the bundles, containers and names that dead owners left behind, and\nnothing else.",
    (JSON,),
    ("ocisbx gc",),
)
COLUMNS = ("id", "name", "state", "pid", "runtime", "created_at", "workdir", "command")


def ps_main(arguments: list[str]) -> int:
    """List containers."""
    parsed = parse(PS, arguments)
    if wants_help(PS, parsed):
        return 0
    refuse_words(PS, parsed)
    records = read_records()
    rows = [row for record in records if (row := background_row(record)) is not None]
    known = {record.id for record in records}
    rows += [_foreground(owner) for owner in live_owners() if owner.id not in known]
    if "all" not in parsed.options:
        rows = [row for row in rows if row["state"] == State.RUNNING]
    if "json" in parsed.options:
        put_json(rows)
        return 0
    shown = [{**row, "command": _command(row), "state": _words(row)} for row in rows]
    put_table(COLUMNS, shown)
    return 0


def background_row(record: Record) -> dict[str, Any] | None:
    """One row; None: it was removed just now."""
    state = record.state()
    result: dict[str, Any] = {}
    if state is State.EXITED:
        try:
            ending = read_ending(record.path)
        except BundleError:
            ending = {}
        if ending is None:
            return None
        result = ending.get("result") or {}
    return {
        "id": record.id,
        "name": record.name,
        "state": state.value,
        "pid": record.supervisor.pid if state in (State.CREATED, State.RUNNING) else None,
        "runtime": record.runtime,
        "created_at": record.created_at,
        "workdir": record.workdir,
        "command": redact(record.command),
        "parent": record.parent or None,
        "background": True,
        "termination": result.get("termination"),
        "exit_code": result.get("exit_code"),
        "signal": result.get("signal"),
    }


def _foreground(owner: Owner) -> dict[str, Any]:
    return {
        "id": owner.id,
        "name": owner.name,
        "state": State.RUNNING.value,
        "pid": owner.pid,
        "runtime": f"{owner.runtime_name} {owner.runtime_version}",
        "created_at": owner.created_at,
        "workdir": owner.workdir,
        "command": redact(owner.command),
        "parent": None,
        "background": False,
        "termination": None,
        "exit_code": None,
        "signal": None,
    }


def _command(row: dict[str, Any]) -> str:
    return shlex.join(row["command"]) or ("(session)" if row["background"] else "(pool)")


def _words(row: dict[str, Any]) -> str:
    """The state, with how it ended."""
    if row["state"] != State.EXITED:
        return str(row["state"])
    if row["termination"] is None:
        return "failed"
    how = {"exited": f"exited ({row['exit_code']})", "signaled": f"signal {row['signal']}"}
    return how.get(row["termination"], str(row["termination"]))


def gc_main(arguments: list[str]) -> int:
    """Collect what dead owners left; says what was removed."""
    parsed = parse(GC, arguments)
    if wants_help(GC, parsed):
        return 0
    refuse_words(GC, parsed)
    from ocisbx.session.worktree import forget_worktrees  # noqa: PLC0415 -- ps goes without

    forget_worktrees()
    rows = [
        {"id": found.id, "path": found.path, "command": redact(found.owner.command)}
        if found.owner is not None
        else {"id": found.id, "path": found.path, "command": None}
        for found in collect()
    ]
    if "json" in parsed.options:
        put_json(rows)
        return 0
    for row in rows:
        command = "" if row["command"] is None else f" ({shlex.join(row['command'])})"
        put(printable(f"removed {row['id']}{command}") + "\n")
    return 0
