"""A program on a terminal in a container: its start beside the bare runtime's, its prompts and its
flood beside plain pexpect's on the host.

    python -m benchmarks.terminal [--runtime PATH]... [--rounds N] [--prompts N]
                                  [--megabytes N] [--keep]

start: from `Sandbox.spawn` to the first byte that the program prints, and the same of the bare
runtime, `run` with a console socket on the config.json of ocisbx without its init; in turn, in
random order. Where the runtime needs namespaces of its own they are entered each time, by both.
Goal: p50 at most 1.3 x.

prompts: from the moment at which the program in the container writes a prompt to the moment at
which its match is known; pexpect has the same program on the host. Goal: p50 at most 1.2 x.

flood: a program prints `--megabytes` and then a prompt, which is waited for by a regex; pexpect
searches the last 200 characters. Goal: no less than pexpect's rate on the host.
Prints one JSON object; `--keep` writes results/terminal.json.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import select
import socket
import tempfile
import time
from typing import TYPE_CHECKING, Any

import ocisbx
from benchmarks.common import host_facts, interleave, keep, parse_arguments, shown, summarize
from benchmarks.expect import FLOODER, PROMPTER, WINDOW, by_pexpect
from benchmarks.expect import start as start_pexpect
from ocisbx import command
from ocisbx.backends.placeholders import hold
from ocisbx.bench.bare import ID, lane
from ocisbx.init import cell_path
from ocisbx.places import ensure, find_places
from ocisbx.runtime.client import CELL_ARGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PYTHON = ["/usr/bin/python3", "-I", "-c"]
START_GOAL = 1.3
LATENCY_GOAL = 1.2
RATE_GOAL = 1.0
WARM_UP = 2
TIMEOUT_S = 60.0
ENDED = re.compile("DONE> $")


@contextlib.contextmanager
def bare(runtime: str, directory: str) -> Iterator[Callable[[], float]]:
    """The runtime without ocisbx, on a bundle that it starts again and again."""
    plan = ocisbx.Sandbox(runtime={"names": [runtime]}, workspace="none", terminal=True).resolve()
    places = find_places()
    for path in (places.runtime, places.bundles):
        ensure(path)
    console = f"{directory}/console"
    cell = [] if plan.cell == "none" else [cell_path(), *CELL_ARGS[plan.cell], "--"]
    name = f"bench-terminal-{os.getpid()}"
    with (
        hold(plan.placeholders),
        lane(plan, directory, name, ["printf", "x"], console=console) as words,
        open(os.devnull, "r+b") as null,
    ):
        number = itertools.count()

        def first_byte() -> float:
            own = f"{name}-{next(number)}"
            argv = [*cell, *(own if word == ID else word for word in words)]
            return timed_start(argv, console, null.fileno())

        yield first_byte


def timed_start(argv: Sequence[str], console: str, null_fd: int) -> float:
    """Seconds until the first byte; the container has gone when it returns."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(console)
        listening.listen()
        started = time.perf_counter()
        child = command.spawn(argv, descriptors={0: null_fd, 1: null_fd, 2: null_fd})
        connection, _ = listening.accept()
        with connection:
            _, (controller_fd,), _, _ = socket.recv_fds(connection, 4096, 1)
        said = os.read(controller_fd, 1)
        elapsed_s = time.perf_counter() - started
    os.unlink(console)
    assert said == b"x"
    os.close(controller_fd)
    child.wait(TIMEOUT_S)
    return elapsed_s


def ours_first_byte(sandbox: ocisbx.Sandbox) -> float:
    started = time.perf_counter()
    with sandbox.spawn(["printf", "x"]) as terminal:
        poller = select.poll()
        poller.register(terminal.fileno(), select.POLLIN)
        poller.poll()
        said = terminal.read_some()
        elapsed_s = time.perf_counter() - started
    assert said == "x"
    return elapsed_s


def start_row(runtime: str, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ocisbx-terminal-") as directory:
        sandbox = ocisbx.Sandbox(runtime={"names": [runtime]}, workspace="none")
        with bare(runtime, directory) as first_byte:
            contenders: dict[str, Callable[[], float]] = {
                "ocisbx": lambda: ours_first_byte(sandbox),
                "bare": first_byte,
            }
            samples = interleave(contenders, rounds, WARM_UP)
    found = {name: summarize(values) for name, values in samples.items()}
    ratio = found["ocisbx"]["p50_ms"] / found["bare"]["p50_ms"]
    return {"what": "start", "runtime": shown(runtime), **found, "ratio": round(ratio, 3)}


@contextlib.contextmanager
def inside(runtime: str, source: str, argument: int) -> Iterator[ocisbx.Terminal]:
    sandbox = ocisbx.Sandbox(
        runtime={"names": [runtime]},
        workspace="none",
        grace_s=0,
        capture={"max_bytes": 1 << 40},
    )
    with sandbox.spawn([*PYTHON, source, str(argument)]) as terminal:
        yield terminal


def by_ours(runtime: str, prompts: int) -> list[float]:
    samples = []
    with inside(runtime, PROMPTER, prompts) as terminal:
        for _ in range(prompts):
            terminal.expect(r"(\d+) > ", TIMEOUT_S)
            samples.append((time.time_ns() - int(terminal.match[1])) / 1e9)
            terminal.send("x")
    return samples


def prompts_row(runtime: str, prompts: int, rounds: int) -> dict[str, Any]:
    share = max(1, prompts // rounds)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        ours += by_ours(runtime, share)
        theirs += by_pexpect(share, 0.0001)
    found = {"ocisbx": summarize(ours), "pexpect on the host": summarize(theirs)}
    ratio = found["ocisbx"]["p50_ms"] / found["pexpect on the host"]["p50_ms"]
    return {"what": "prompts", "runtime": shown(runtime), **found, "ratio": round(ratio, 3)}


def flood_ours(runtime: str, megabytes: int) -> float:
    with inside(runtime, FLOODER, megabytes * 1_000_000) as terminal:
        terminal.expect("up\n", TIMEOUT_S)
        began = time.perf_counter()
        terminal.send("x")
        terminal.expect(ENDED, 10 * TIMEOUT_S)
        return time.perf_counter() - began


def flood_theirs(megabytes: int) -> float:
    child = start_pexpect(FLOODER, megabytes * 1_000_000)
    child.delaybeforesend = None
    child.expect("up\n")
    began = time.perf_counter()
    child.send("x")
    child.expect(ENDED, timeout=10 * TIMEOUT_S, searchwindowsize=WINDOW)
    elapsed_s = time.perf_counter() - began
    child.close(force=True)
    return elapsed_s


def flood_row(runtime: str, megabytes: int, rounds: int) -> dict[str, Any]:
    contenders: dict[str, Callable[[], float]] = {
        "ocisbx": lambda: flood_ours(runtime, megabytes),
        "pexpect on the host": lambda: flood_theirs(megabytes),
    }
    samples = interleave(contenders, rounds, 0)
    rates = {name: round(megabytes / min(values), 1) for name, values in samples.items()}
    return {
        "what": "flood",
        "runtime": shown(runtime),
        "megabytes": megabytes,
        "mb_per_s": rates,
        "ratio": round(rates["ocisbx"] / rates["pexpect on the host"], 2),
    }


def main() -> int:
    options = parse_arguments(__doc__, rounds=20, prompts=1000, megabytes=100)
    host = host_facts()
    rows = []
    for runtime in options.runtime:
        rows += [
            start_row(runtime, options.rounds),
            prompts_row(runtime, options.prompts, 5),
            flood_row(runtime, options.megabytes, 2),
        ]
    document = {
        "benchmark": "terminal",
        "host": host,
        "configuration": {"rounds": options.rounds},
        "rows": rows,
    }
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("terminal", document)
    goals = {"start": START_GOAL, "prompts": LATENCY_GOAL}
    met = all(
        row["ratio"] <= goals[row["what"]] if row["what"] in goals else row["ratio"] >= RATE_GOAL
        for row in rows
    )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
