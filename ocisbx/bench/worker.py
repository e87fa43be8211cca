"""A worker: the process in which one launcher is measured, started by the bench for it alone.

    python -m ocisbx.bench.worker JOB

So no launcher pays for another's heap, threads or descriptors. A request is a line on stdin, an
answer a line on stdout, both JSON; the timing is done here, by the same lines for every launcher.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ocisbx import command
from ocisbx.bench.found import ROWS
from ocisbx.bench.launchers import Answer, Job, Opened
from ocisbx.bench.statistics import summarize
from ocisbx.errors import OcisbxError, RuntimeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Request = dict[str, Any]
    Handler = Callable[[Request], dict[str, Any]]

MODULE = "ocisbx.bench.worker"
SHOWN_BYTES = 400
INNER = "ocisbx-bench-inner"


def worker_argv(job: Job, *words: str) -> list[str]:
    return [sys.executable, "-P", "-m", MODULE, job.to_json(), *words]


def main() -> int:
    job = Job.from_json(sys.argv[1])
    row = ROWS[job.row]
    os.chdir(job.workspace)
    try:
        if row.around is not None and sys.argv[2:] != [INNER]:
            with row.around(job) as prefix:
                return _hand_over([*prefix, *worker_argv(job, INNER)])
        with _ready(job) as handler:
            _say({"ready": True})
            for line in sys.stdin:
                _say(handler(json.loads(line)))
    except (OcisbxError, OSError) as error:
        _say({"error": str(error)})
        return 1
    return 0


def _hand_over(argv: list[str]) -> int:
    """A second worker answers in our place, until its stdin ends."""
    child = command.spawn(argv, descriptors={0: 0, 1: 1, 2: 2}, environment=os.environ)
    status = child.wait()
    child.close()
    return 0 if status is not None and status.ok else 1


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _ready(job: Job) -> Iterator[Handler]:
    row = ROWS[job.row]
    if job.mark:
        assert row.hold is not None
        with row.hold(job):
            yield lambda _: {}
        return
    with row.open(job) as opened:
        yield lambda request: _measure(job, opened, request)


def _measure(job: Job, opened: Opened, request: Request) -> dict[str, Any]:
    if "seconds" in request:
        return _batch(job, opened, request["seconds"])
    cpu_s, started = _cpu_s(), time.perf_counter()
    answer = opened.call(0)
    wall_s = time.perf_counter() - started
    cpu_s = _cpu_s() - cpu_s
    _check(job, answer)
    opened.settle()
    own_ms = None if answer.own_s is None else round(answer.own_s * 1e3, 4)
    return {"wall_ms": round(wall_s * 1e3, 4), "cpu_ms": round(cpu_s * 1e3, 4), "own_ms": own_ms}


def _batch(job: Job, opened: Opened, seconds: float) -> dict[str, Any]:
    """Calls in all lanes, one after the other in each, begun in so many seconds, after those that
    were prepared."""
    took_s: list[float] = []
    trouble: list[Exception] = []
    started = 0.0

    def start() -> None:
        nonlocal started
        started = time.perf_counter()

    barrier = threading.Barrier(job.lanes, start)

    def work(lane: int) -> None:
        try:
            for _ in range(-(-opened.ahead // job.lanes)):
                _check(job, opened.call(lane))
            barrier.wait()
            before = started
            while before - started < seconds and not trouble:
                _check(job, opened.call(lane))
                after = time.perf_counter()
                took_s.append(after - before)
                before = after
        except threading.BrokenBarrierError:
            return
        except Exception as error:  # noqa: BLE001 -- raised in the thread that asked
            trouble.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(job.lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - started
    if trouble:
        raise trouble[0]
    opened.settle()
    summary = summarize(took_s)
    return {
        "calls": summary.n,
        "elapsed_s": round(elapsed_s, 5),
        "p50_ms": round(summary.p50 * 1e3, 3),
        "p99_ms": round(summary.p99 * 1e3, 3),
    }


def _cpu_s() -> float:
    """Processor time of this process and of all that it has waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _check(job: Job, answer: Answer) -> None:
    """A launcher that fails is fast: every answer is looked at."""
    if answer.exit_code == 0 and len(answer.stdout) == job.work.stdout_bytes:
        return
    said = (answer.stderr or answer.stdout)[-SHOWN_BYTES:].decode(errors="replace").strip()
    raise RuntimeFailed(
        f"{job.workload} ended with {answer.exit_code} and {len(answer.stdout)} bytes",
        why=said,
    )


if __name__ == "__main__":
    sys.exit(main())
