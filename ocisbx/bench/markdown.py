"""A run as a Markdown page: where, how, the numbers, and what each launcher was told."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from ocisbx.bench.report import tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIB = 1 << 20
READ = (
    "p50, p90, p99 and min: milliseconds of one call, from the start to the end of its output and "
    "its exit status. CPU: processor time of one call, of the worker and all that it waited for (a "
    "daemon's is not seen). x spawn: the ratio of the medians to posix_spawn in the same rounds, "
    "with the interval that holds it with 95 % (moving-block bootstrap over rounds); p99 x spawn: "
    "the p99 to posix_spawn's p50. x bare runtime: the same ratio to the bare runtime. Each "
    "launcher has a process of its own; the order of the calls is shuffled in each round, and the "
    "first rounds do not count."
)


def page(found: Mapping[str, Any], picture: str = "") -> str:
    """`picture`: the file of the plot, beside the page."""
    lines = [*_where(found), "", READ, ""]
    if picture:
        lines += [f"![one call of each launcher]({picture})", ""]
    for table in tables(found):
        lines += [f"## {table.title}", "", *rows(table.columns, table.rows), ""]
    lines += ["## What each launcher was told", ""]
    told = [(one["title"], one["version"] or "-", one["words"]) for one in found["launchers"]]
    lines += [*rows(("launcher", "version", "configuration"), told), ""]
    missing = [(one["title"], one["why"]) for one in found["absent"]]
    missing += [
        (f"{one['failed']} ({one['part']}, {one['workload']}, {one['variant']})", one["why"])
        for one in found["failures"]
    ]
    if missing:
        lines += ["## Not measured", "", *rows(("what", "why"), missing), ""]
    return "\n".join(lines)


def _where(found: Mapping[str, Any]) -> list[str]:
    host = found["host"]
    load = found["load"]
    memory = host.get("memory_bytes", 0) // MIB
    end = "" if found["complete"] else " The run was cut short."
    text = (
        f"Host: {host.get('cpus')} CPUs ({host.get('cpu')}), {memory} MiB, kernel "
        f"{host.get('kernel')}, Python {host.get('python')}, {host.get('user')}; load average "
        f"{load['least']} to {load['most']} during the run, which began {found['at']} with ocisbx "
        f"{found['ocisbx']}.{end} The command:"
    )
    return [
        text,
        "",
        f"    {shlex.join(found['command'])}",
    ]


def rows(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [columns, ["---"] * len(columns), *cells]
    return [f"| {' | '.join(map(_cell, line))} |" for line in lines]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
