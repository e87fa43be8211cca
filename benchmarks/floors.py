"""What no driver could save: the parts of a call of ocisbx that are programs, beside the whole.

    python -m benchmarks.floors [--runtime PATH] [--rounds N] [--keep]

A cold call, each of these one `true` with its output captured, in random order in every round:
  bare      the runtime's stock binary, in namespaces that were entered once;
  cell      the same where each call enters them (ocisbx-cell), as containers that share nothing do;
  init      besides, our init as process 1;
  sealed    besides, by a sealed copy of the runtime, as ocisbx runs it;
  ocisbx    Sandbox.run().
A session's command:
  spawn     posix_spawn of `true` on the host, its output captured;
  order     the packet that starts `true` in a session, and the packets of its start and end: what
            the kernel and the init take;
  session   Session.run().
A call of a warm interpreter, `print(1+1)`:
  python3   `python3 -c` on the host;
  nothing   the hand-over of a call to a shell that waits as an interpreter does, and prints;
  warm      Pool.run_code().
Prints one JSON object; `--keep` writes results/floors.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.common import (
    ROOT,
    host_facts,
    interleave,
    keep,
    parse_arguments,
    shown,
    summarize,
    timed,
)
from ocisbx import Pool, Sandbox, SandboxConfig, Session, command
from ocisbx.background.packets import ask_orders
from ocisbx.bench.bare import ID, lane
from ocisbx.bench.processes import unique
from ocisbx.init import cell_path, wire
from ocisbx.init.protocol import Exited
from ocisbx.places import ensure, find_places
from ocisbx.runtime.client import CELL_ARGS, SEALED_FD
from ocisbx.runtime.sealed import sealed_copy

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

WARM_UP = 5
TIMEOUT_S = 30.0
ANSWER_BYTES = 4096
INSIDE = "--inside"
CODE = "print(1+1)"
# ocisbx-pool(1), "Warm interpreters".
WAITS = ["sh", "-c", "echo ocisbx-ready; read size; echo 2"]
PAUSE_S = 0.05


def process(argv: Sequence[str], copy: int | None = None) -> float:
    """Seconds of one program with its output read to the end; `copy`: the runtime's, which it finds
    as SEALED_FD."""
    name = unique()
    words = [name if word == ID else word for word in argv]

    def run() -> None:
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        given = {0: null, 1: writer, 2: writer} | ({} if copy is None else {SEALED_FD: copy})
        child = command.spawn(words, descriptors=given)
        os.close(writer)
        said = os.read(reader, ANSWER_BYTES)
        status = child.wait(TIMEOUT_S)
        for descriptor in (null, reader):
            os.close(descriptor)
        child.close()
        assert status is not None, words
        assert status.ok, said

    return timed(run)


def serve() -> None:
    """In namespaces that were entered once: each line of stdin is a command line to be timed."""
    for line in sys.stdin:
        print(process(json.loads(line)), flush=True)


@contextlib.contextmanager
def entered(cell: str, argv: Sequence[str]) -> Iterator[Callable[[], float]]:
    """Time this in the cell's namespaces."""
    python = [sys.executable, "-P", "-m", "benchmarks.floors", INSIDE]
    around = [cell_path(), *CELL_ARGS[cell], "--"] if cell != "none" else []
    with subprocess.Popen(
        [*around, *python], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        stdin, stdout = worker.stdin, worker.stdout
        assert stdin is not None
        assert stdout is not None

        def once() -> float:
            stdin.write(json.dumps(argv) + "\n")
            stdin.flush()
            return float(stdout.readline())

        yield once
        stdin.close()


@contextlib.contextmanager
def cold(runtime: str, scratch: str) -> Iterator[dict[str, Callable[[], float]]]:
    with contextlib.ExitStack() as stack:
        sandbox = Sandbox(runtime={"names": [runtime]}, workspace="none")
        plan = sandbox.resolve()
        places = find_places()
        for path in (places.runtime, places.bundles):
            ensure(path)
        bare = stack.enter_context(lane(plan, scratch, "bare", ["true"]))
        init = stack.enter_context(lane(plan, scratch, "init", ["true"], init=True))
        cell = [] if plan.cell == "none" else [cell_path(), *CELL_ARGS[plan.cell], "--"]
        at = init.index(plan.runtime.path)
        sealed = [*init[:at], f"/proc/self/fd/{SEALED_FD}", *init[at + 1 :]]
        yield {
            "bare": stack.enter_context(entered(plan.cell, bare)),
            "cell": partial(process, [*cell, *bare]),
            "init": partial(process, [*cell, *init]),
            "sealed": partial(process, [*cell, *sealed], sealed_copy(plan.runtime.path)),
            "ocisbx": partial(timed, partial(sandbox.run, ["true"])),
        }


def order(orders: socket.socket, run: wire.Command) -> None:
    """A command of a session with no more than the protocol asks for."""
    ours, theirs = wire.report_socketpair()
    reader, writer = os.pipe()
    wire.send_run(orders, run, stdout=writer, stderr=writer, channel=theirs.fileno())
    theirs.close()
    os.close(writer)
    with ours:
        while (received := wire.receive(ours)) is not None:
            if isinstance(received.packet, Exited):
                wire.send_end(ours)
                break
    assert os.read(reader, 1) == b""
    os.close(reader)


@contextlib.contextmanager
def commands(runtime: str) -> Iterator[dict[str, Callable[[], float]]]:
    with Session(runtime={"names": [runtime]}, workspace="none") as session:
        found = ask_orders(session.id)
        assert found is not None
        with found[1] as orders:
            run = wire.Command(["true"], ["PATH=/usr/bin:/bin"])
            yield {
                "spawn": partial(process, ["/bin/true"]),
                "order": partial(timed, partial(order, orders, run)),
                "session": partial(timed, partial(session.run, ["true"])),
            }


@contextlib.contextmanager
def warm(runtime: str) -> Iterator[dict[str, Callable[[], float]]]:
    config = SandboxConfig(runtime={"names": [runtime]}, workspace="none")
    with Pool(config, 1, warm=WAITS) as shell, Pool(config, 1, warm="python3") as python:
        yield {
            "python3": partial(process, [shutil.which("python3") or sys.executable, "-c", CODE]),
            "nothing": partial(pooled, shell),
            "warm": partial(pooled, python),
        }


def pooled(pool: Pool) -> float:
    while not pool.counts.waiting:
        time.sleep(PAUSE_S)
    time.sleep(PAUSE_S)
    return timed(partial(pool.run_code, CODE))


def ratios(samples: dict[str, list[float]], first: str) -> dict[str, dict[str, float]]:
    """What each took, and times what the first one did."""
    base = statistics.median(samples[first])
    return {
        name: {**summarize(found), f"x_{first}": round(statistics.median(found) / base, 2)}
        for name, found in samples.items()
    }


def main() -> int:
    if sys.argv[1:] == [INSIDE]:
        serve()
        return 0
    options = parse_arguments(__doc__, rounds=150)
    host, rows = host_facts(), []
    for runtime in options.runtime:
        with (
            tempfile.TemporaryDirectory(prefix="ocisbx-floors-") as scratch,
            cold(runtime, scratch) as contenders,
        ):
            whole = ratios(interleave(contenders, options.rounds, WARM_UP), "bare")
        with commands(runtime) as contenders:
            further = ratios(interleave(contenders, options.rounds, WARM_UP), "spawn")
        with warm(runtime) as contenders:
            ahead = ratios(interleave(contenders, options.rounds, WARM_UP), "python3")
        found = {"cold": whole, "session": further, "warm": ahead}
        rows.append({"runtime": shown(runtime), **found})
    document = {"benchmark": "floors", "host": host, "rows": rows}
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("floors", document)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
