"""`ocisbx bench [list|show|compare]`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Self

from ocisbx.bench.compare import LEAST_CHANGE, Comparison, compare
from ocisbx.bench.found import ROWS, find_launchers
from ocisbx.bench.launchers import REFERENCE, VARIANTS, Absent, Launcher
from ocisbx.bench.markdown import page
from ocisbx.bench.measure import Bench, Settings
from ocisbx.bench.plot import check as check_plot
from ocisbx.bench.plot import draw
from ocisbx.bench.report import document, ratio, tables
from ocisbx.bench.results import FORMAT, Header, Measured, Missing, Recorder, read_results
from ocisbx.bench.workloads import WORKLOADS
from ocisbx.cli.options import JSON, Option, Parsed, Syntax, parse, refuse_words, wants_help
from ocisbx.cli.output import STDERR, put, put_json, put_table, say
from ocisbx.errors import ConfigError
from ocisbx.places import ensure, find_places
from ocisbx.probe.machine import load_now, machine_facts
from ocisbx.values import did_you_mean, show
from ocisbx.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EXIT_NO = 1
PARTS = ("latency", "throughput", "memory")
CONCURRENCY = "1,2,4,8,16"
MOST_AT_ONCE = 256
# A line that is not redrawn is said at most so often.
SAY_EVERY_S = 10.0
CLEAR_LINE = "\r\x1b[K"

SHOWN = (
    JSON,
    Option(("--markdown",), "flag", "", "print a Markdown page"),
    Option(("--plot",), "one", "FILE", "draw it too: FILE.svg or FILE.png"),
)
BENCH = Syntax(
    "ocisbx bench [OPTIONS] | list | show FILE | compare A B",
    "",
    (
        Option(("-o", "--output"), "one", "FILE", "where the samples go"),
        Option(("--launcher",), "many", "WORD", "only launchers with WORD in their names"),
        Option(("--runtime",), "many", "NAME|PATH", "only these runtimes"),
        Option(("--part",), "one", "LIST", ""),
        Option(("--workload",), "one", "LIST", ""),
        Option(("--variant",), "one", "LIST", ""),
        Option(("--concurrency",), "one", "LIST", ""),
        Option(("--rounds",), "one", "N", ""),
        Option(("--batches",), "one", "N", ""),
        Option(("--idle",), "one", "N", ""),
        *SHOWN,
    ),
    page="""\
usage: ocisbx bench [OPTIONS]
       ocisbx bench list [--runtime NAME|PATH]... [--json]
       ocisbx bench show [--json|--markdown] [--plot FILE] FILE
       ocisbx bench compare [--least PERCENT] [--json] A B

Measure launchers side by side, in turn, in one run: posix_spawn, other
sandboxes, bare runtimes and ocisbx, each where it is present (list).

  -o, --output FILE    where the samples go, JSON lines (default: a new file
                       in ocisbx's state directory)
  --launcher WORD      only those with WORD in their names; repeatable
  --runtime NAME|PATH  only these runtimes (the newest of each name); repeatable
  --part LIST          latency (default), throughput, memory, or all
  --workload LIST      true,python (default), sh, node, output, files, or all
  --variant LIST       default, no-seccomp, limits, or all
  --concurrency LIST   for throughput: calls at once (1,2,4,8,16)
  --rounds N           of latency (50); --batches N of throughput (10)
  --idle N             for memory: idle containers (16)
  --json, --markdown, --plot FILE (.svg, .png)   besides or instead of a table

examples:
  ocisbx bench --launcher bwrap --launcher crun --workload true
  ocisbx bench -o before.jsonl && ...; ocisbx bench -o after.jsonl
  ocisbx bench compare before.jsonl after.jsonl   # exit code 1: slower
""",
)
LIST = Syntax(
    "ocisbx bench list [--runtime NAME|PATH]... [--json]",
    "Show which launchers are present, in which configuration, and which are not.",
    (Option(("--runtime",), "many", "NAME|PATH", "only these runtimes"), JSON),
    ("ocisbx bench list",),
)
SHOW = Syntax(
    "ocisbx bench show [--json|--markdown] [--plot FILE] FILE",
    "Show what a file of samples says.",
    SHOWN,
    ("ocisbx bench show before.jsonl", "ocisbx bench show --plot before.svg before.jsonl"),
)
COMPARE = Syntax(
    "ocisbx bench compare [--least PERCENT] [--json] A B",
    "Say what is slower or faster in B than in A beyond noise: the ratios to\n"
    "posix_spawn differ by more than chance explains (95 %, all comparisons together)\n"
    "and by more than --least. Exit code 1: something is slower.",
    (Option(("--least",), "one", "PERCENT", "smaller changes are noise (5)"), JSON),
    ("ocisbx bench compare before.jsonl after.jsonl",),
)


def bench_main(arguments: list[str]) -> int:
    """Measure, or look at what was measured."""
    others = {"list": _list, "show": _show, "compare": _compare}
    if arguments and arguments[0] in others:
        return others[arguments[0]](arguments[1:])
    parsed = parse(BENCH, arguments)
    if wants_help(BENCH, parsed):
        return 0
    refuse_words(BENCH, parsed)
    return _measure(parsed)


# ---------------------------------------------------------------------------------------- measure


def _measure(parsed: Parsed) -> int:
    settings = _settings(parsed.options)
    if "plot" in parsed.options:
        check_plot(parsed.options["plot"])
    with _Progress() as progress:
        launchers, absent = find_launchers(
            parsed.options.get("runtime", ()), lambda step: progress.tell(step, 0)
        )
        chosen = _chosen(launchers, absent, parsed.options.get("launcher", ()))
        path = parsed.options.get("output") or _new_file()
        with (
            Recorder(path) as recorder,
            # A peer that runs as root may leave what only root can delete.
            tempfile.TemporaryDirectory(
                prefix="ocisbx-bench-", ignore_cleanup_errors=True
            ) as directory,
        ):
            recorder.write(_header(settings, chosen, absent))
            Bench(chosen, settings, recorder, directory, progress.tell).run()
    if os.path.exists(directory):
        say(f"ocisbx: not all could be deleted of {directory}")
    say(f"ocisbx: the samples are in {recorder.path}")
    return _present(recorder.path, parsed.options)


def _header(settings: Settings, launchers: Sequence[Launcher], absent: Sequence[Absent]) -> Header:
    return Header(
        format=FORMAT,
        ocisbx=VERSION,
        host=machine_facts(),
        settings=settings._asdict(),
        command=["ocisbx", *sys.argv[1:]],
        **load_now(),
        launchers=[
            Measured(
                title=one.title,
                words=one.words,
                version=one.version,
                program=os.path.basename(one.program),
                bare=one.bare,
            )
            for one in launchers
        ],
        absent=[Missing(title=one.title, why=one.why) for one in absent],
    )


def _settings(options: dict[str, Any]) -> Settings:
    return Settings(
        parts=_names(options, "part", "latency", PARTS),
        workloads=_names(options, "workload", "true,python", WORKLOADS),
        variants=_names(options, "variant", "default", VARIANTS),
        concurrency=tuple(
            _whole(word, "concurrency", MOST_AT_ONCE)
            for word in options.get("concurrency", CONCURRENCY).split(",")
        ),
        rounds=_whole(options.get("rounds", "50"), "rounds", 1_000_000),
        warm_up=3,
        batch_s=0.5,
        batch_rounds=_whole(options.get("batches", "10"), "batches", 10_000),
        idle=_whole(options.get("idle", "16"), "idle", 1000),
        seed=int.from_bytes(os.urandom(4)),
    )


def _names(
    options: dict[str, Any], option: str, default: str, known: Iterable[str]
) -> tuple[str, ...]:
    words = options.get(option, default).split(",")
    if words == ["all"]:
        return tuple(known)
    for word in words:
        if word not in known:
            raise ConfigError(
                f"--{option}: {show(word)} is not known{did_you_mean(word, known)}",
                remedy=f"a list of {', '.join(known)}, or all",
            )
    return tuple(dict.fromkeys(words))


def _whole(word: str, option: str, most: int) -> int:
    if not (word.isascii() and word.isdigit() and 1 <= int(word) <= most):
        raise ConfigError(
            f"--{option}: {show(word)} is not a number", remedy=f"a whole number, 1 to {most}"
        )
    return int(word)


def _chosen(
    launchers: Sequence[Launcher], absent: Sequence[Absent], words: Sequence[str]
) -> list[Launcher]:
    """Those that were asked for, and the reference."""
    for word in words:
        if not any(word in one.title for one in launchers):
            why = next((one.why for one in absent if word in one.title), "")
            raise ConfigError(
                f"no launcher here has {show(word)} in its name",
                why=why,
                remedy="`ocisbx bench list` tells what is here",
            )
    return [
        one
        for one in launchers
        if one.title == REFERENCE or not words or any(word in one.title for word in words)
    ]


def _new_file() -> str:
    state = find_places().state
    ensure(os.path.dirname(state))
    directory = ensure(f"{ensure(state)}/bench")
    return f"{directory}/{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.jsonl"


class _Progress:
    """What is under way and how long it will take still: one line on a terminal, else now and
    then one."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._next = 0.0
        self._redraws = os.isatty(STDERR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._redraws:
            put(CLEAR_LINE, STDERR)

    def tell(self, step: str, done: float) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (0.1 if self._redraws else SAY_EVERY_S)
        spent_s = now - self._started
        left = f", {_minutes(spent_s / done - spent_s)} left" if done > 0 else ""
        line = f"ocisbx: {step} ({done:.0%}{left})"
        if self._redraws:
            put(CLEAR_LINE + line, STDERR)
        else:
            say(line)


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


# ------------------------------------------------------------------------------------------- look


def _present(path: str, options: dict[str, Any]) -> int:
    found = document(read_results(path))
    if "plot" in options:
        draw(found, options["plot"])
    if "json" in options:
        put_json(found)
    elif "markdown" in options:
        put(page(found))
    else:
        _put_tables(found)
    return 0


def _put_tables(found: dict[str, Any]) -> None:
    for table in tables(found):
        put(f"{table.title}\n")
        put_table(table.columns, [dict(zip(table.columns, row, strict=True)) for row in table.rows])
        put("\n")
    for one in found["failures"]:
        section = " ".join(str(one[name]) for name in ("part", "workload", "variant"))
        put(f"failed: {one['failed']}, {section}: {one['why']}\n")


def _list(arguments: list[str]) -> int:
    parsed = parse(LIST, arguments)
    if wants_help(LIST, parsed):
        return 0
    refuse_words(LIST, parsed)
    with _Progress() as progress:
        launchers, absent = find_launchers(
            parsed.options.get("runtime", ()), lambda step: progress.tell(step, 0)
        )
    rows = [
        {
            "launcher": one.title,
            "version": one.version or None,
            "variants": sorted(ROWS[one.row].variants),
            "configuration": one.words,
        }
        for one in launchers
    ]
    missing = [{"launcher": one.title, "why": one.why} for one in absent]
    if "json" in parsed.options:
        put_json({"present": rows, "absent": missing})
        return 0
    put_table(("launcher", "version", "configuration"), rows)
    if missing:
        put("\nnot here:\n")
        put_table(("launcher", "why"), missing)
    return 0


def _show(arguments: list[str]) -> int:
    parsed = parse(SHOW, arguments)
    if wants_help(SHOW, parsed):
        return 0
    (path,) = _words(parsed, SHOW, 1)
    return _present(path, parsed.options)


def _compare(arguments: list[str]) -> int:
    parsed = parse(COMPARE, arguments)
    if wants_help(COMPARE, parsed):
        return 0
    first, second = _words(parsed, COMPARE, 2)
    least = LEAST_CHANGE
    if "least" in parsed.options:
        least = _whole(parsed.options["least"], "least", 1000) / 100
    found = compare(read_results(first), read_results(second), least)
    if "json" in parsed.options:
        put_json(found.to_dict())
    else:
        _put_comparison(found)
    return EXIT_NO if found.slower else 0


def _words(parsed: Parsed, syntax: Syntax, count: int) -> list[str]:
    if len(parsed.words) != count:
        raise ConfigError(f"{count} FILE expected", remedy=f"usage: {syntax.usage}")
    return parsed.words


def _put_comparison(found: Comparison) -> None:
    rows = [
        {
            "section": " ".join(map(str, one.section)),
            "launcher": one.launcher,
            "before": f"{one.before:.3g}",
            "after": f"{one.after:.3g}",
            "change": ratio(
                {"value": one.factor.factor, "low": one.factor.low, "high": one.factor.high}
            ),
            "verdict": one.verdict,
        }
        for one in found.verdicts
    ]
    put_table(("section", "launcher", "before", "after", "change", "verdict"), rows)
    for line in found.differing:
        say(f"ocisbx: the runs differ: {line}")
    for line in found.unmatched:
        say(f"ocisbx: in one of them only: {line}")
