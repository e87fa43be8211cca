"""`ocisbx stats`: what the sandboxes that run now use, again and again."""

from __future__ import annotations

import os
import select
import shlex
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.audit import redact
from ocisbx.backends.live import LiveUsage, Meter, find_live
from ocisbx.bundle.record import read_record
from ocisbx.cli.options import Option, Syntax, parse, wants_help
from ocisbx.cli.output import STDOUT, inert_json, printable, put
from ocisbx.errors import ConfigError
from ocisbx.posture.rows import size
from ocisbx.quantities import parse_seconds
from ocisbx.values import utc_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STATS = Syntax(
    "ocisbx stats [--json] [--no-stream] [--interval S] [ID|NAME...]",
    "Show what your containers use now, all that run or those named: on a terminal a\n"
    "table that is redrawn, else a line for each of them every second. It ends when\n"
    "the named ones have ended, else by Ctrl-C. What is not counted here is a -.",
    (
        Option(("--interval",), "one", "S", "seconds between two samples (1)"),
        Option(("--no-stream",), "flag", "", "show it once"),
        Option(("--json",), "flag", "", "an object a line, as ocisbx-stats(1) tells; null for -"),
    ),
    (
        "ocisbx stats",
        "ocisbx stats --no-stream my-build",
        "ocisbx stats --json --interval 5 >> usage.jsonl",
    ),
)

LEAST_INTERVAL_S = 0.1
# A rate needs two samples; who looks need not wait a whole interval for the first.
FIRST_S = 0.25
COMMAND_WIDTH = 24
# Move up so many lines, to the first column; clear to the end of line, of the screen; let no line
# wrap, or do again (console_codes(4)).
UP = "\x1b[{}F"
CLEAR_LINE, CLEAR_BELOW, NO_WRAP, WRAP = "\x1b[K", "\x1b[J", "\x1b[?7l", "\x1b[?7h"


class Column(NamedTuple):
    """One column of the table; `width` is the least, so that a stream of lines stays aligned."""

    title: str
    width: int
    text: Callable[[LiveUsage], str]


def stats_main(arguments: list[str]) -> int:
    """Show usage once, or until the sandboxes or the reader are gone."""
    parsed = parse(STATS, arguments)
    if wants_help(STATS, parsed):
        return 0
    interval_s = _interval_s(parsed.options.get("interval", "1"))
    wanted = frozenset(map(find_live, parsed.words)) or None
    show = _shower(json="json" in parsed.options)
    meter = Meter()
    meter.sample(wanted)
    once = "no-stream" in parsed.options
    due = time.monotonic() + (interval_s if once else min(interval_s, FIRST_S))
    while True:
        _sleep_until(due)
        usages = meter.sample(wanted)
        if wanted is not None and not usages and not once:
            return 0
        show(usages)
        if once:
            return 0
        due = max(due + interval_s, time.monotonic())


def _interval_s(given: str) -> float:
    remedy = f"--interval {LEAST_INTERVAL_S:g}, or more"
    try:
        interval_s = parse_seconds(given)
    except ConfigError as error:
        raise ConfigError(f"interval: {error.what}", remedy=remedy) from error
    if interval_s < LEAST_INTERVAL_S:
        raise ConfigError(f"an interval of {interval_s:g} s is too short", remedy=remedy)
    return interval_s


def _sleep_until(due: float) -> None:
    """Raises BrokenPipeError as soon as nobody reads our output any more."""
    poller = select.poll()
    poller.register(STDOUT, 0)
    if poller.poll(max(0.0, due - time.monotonic()) * 1000):
        raise BrokenPipeError


def _shower(*, json: bool) -> Callable[[Sequence[LiveUsage]], None]:
    if json:
        return _put_json_lines
    if os.isatty(STDOUT) and os.environ.get("TERM", "dumb") != "dumb":
        return Screen().show
    return Lines().show


def _put_json_lines(usages: Sequence[LiveUsage]) -> None:
    put("".join(inert_json(document(usage)) + "\n" for usage in usages))


class Lines:
    """The titles once, then a line for each sandbox of each sample."""

    def __init__(self) -> None:
        self._titled = False

    def show(self, usages: Sequence[LiveUsage]) -> None:
        lines = table(usages)
        put("".join(f"{line}\n" for line in (lines[1:] if self._titled else lines)))
        self._titled = True


class Screen:
    """A table that is drawn over the one before, as many rows as there is room for."""

    def __init__(self) -> None:
        self._drawn = 0

    def show(self, usages: Sequence[LiveUsage]) -> None:
        lines = table(usages)
        room = os.get_terminal_size(STDOUT).lines - 1
        # Some terminals do not tell: 0 lines.
        if 0 < room < len(lines):
            more = len(lines) - room + 1
            lines = [*lines[: room - 1], f"... and {more} more"][:room]
        text = UP.format(self._drawn) if self._drawn else ""
        text += NO_WRAP + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW + WRAP
        self._drawn = len(lines)
        put(text)


def table(usages: Sequence[LiveUsage]) -> list[str]:
    """Lines under a line of titles."""
    cells = [[column.title for column in COLUMNS]]
    cells += [[column.text(usage) for column in COLUMNS] for usage in usages]
    widths = [
        max(column.width, *(len(line[index]) for line in cells))
        for index, column in enumerate(COLUMNS)
    ]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def document(usage: LiveUsage) -> dict[str, Any]:
    """The keys of `usage` in a result, where they mean the same; null: not counted here."""
    owner, counters, rates = usage.owner, usage.counters, usage.rates
    return {
        "at": utc_text(usage.at_s),
        "id": owner.id,
        "name": owner.name,
        "command": redact(owner.command),
        "cpu_percent": None if rates.cpu is None else round(rates.cpu * 100, 2),
        "cpu_user_s": _seconds(counters.cpu_user_usec),
        "cpu_system_s": _seconds(counters.cpu_system_usec),
        "cpu_throttled_s": _seconds(counters.cpu_throttled_usec),
        "memory_bytes": counters.memory_current_bytes,
        "memory_peak_bytes": counters.memory_peak_bytes,
        "memory_limit_bytes": usage.memory_limit_bytes,
        "pids": counters.pids_current,
        "pids_peak": counters.pids_peak,
        "pids_limit": usage.pids_limit,
        "io_read_bytes": counters.io_read_bytes,
        "io_write_bytes": counters.io_write_bytes,
        "oom_kills": counters.oom_kills,
        "pressure": {
            "cpu_s": _seconds(counters.pressure_cpu_usec),
            "memory_s": _seconds(counters.pressure_memory_usec),
            "io_s": _seconds(counters.pressure_io_usec),
        },
    }


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / 1e6


def _command(usage: LiveUsage) -> str:
    owner = usage.owner
    if not owner.command:
        return "(pool)" if read_record(owner.id) is None else "(session)"
    text = printable(shlex.join(redact(owner.command)))
    return text if len(text) <= COMMAND_WIDTH else text[: COMMAND_WIDTH - 1] + "…"


def _percent(share: float | None, digits: int = 0) -> str:
    return "-" if share is None else f"{share * 100:.{digits}f}%"


def _count(count: int | None) -> str:
    return "-" if count is None else str(count)


def _bytes(*counts: int | None) -> str:
    """`A / B`; one dash where none of them is counted."""
    texts = ["-" if count is None else size(count) for count in counts]
    return "-" if {*texts} == {"-"} else " / ".join(texts)


def _stalled(usage: LiveUsage) -> str:
    texts = [_percent(share) for share in usage.rates[1:]]
    return "-" if {*texts} == {"-"} else " / ".join(texts)


COLUMNS = (
    Column("ID", 20, lambda usage: printable(usage.owner.id)),
    Column("NAME", 8, lambda usage: printable(usage.owner.name or "-")),
    Column("COMMAND", COMMAND_WIDTH, _command),
    Column("CPU %", 6, lambda usage: _percent(usage.rates.cpu, 1)),
    Column(
        "MEM / LIMIT",
        21,
        lambda usage: _bytes(usage.counters.memory_current_bytes, usage.memory_limit_bytes),
    ),
    Column("PIDS", 4, lambda usage: _count(usage.counters.pids_current)),
    Column(
        "IO R / W",
        21,
        lambda usage: _bytes(usage.counters.io_read_bytes, usage.counters.io_write_bytes),
    ),
    Column("STALLED CPU / MEM / IO", 22, _stalled),
)
