"""What ocisbx itself offers, each on every runtime."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from ocisbx.bench.launchers import MEMORY_BYTES, PIDS, VARIANTS, Answer, Job, Opened, Row
from ocisbx.bench.processes import TIMEOUT_S, opened, payload_of
from ocisbx.errors import RuntimeFailed
from ocisbx.mounts import PER_CALL
from ocisbx.pool.pool import Pool
from ocisbx.sandbox.sandbox import Sandbox
from ocisbx.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CLI_OPTIONS: Mapping[str, Sequence[str]] = {
    "default": (),
    "no-seccomp": ("--seccomp", "none"),
    "limits": ("--memory", str(MEMORY_BYTES), "--pids-limit", str(PIDS)),
}


@contextlib.contextmanager
def open_cold(job: Job) -> Iterator[Opened]:
    payload = job.argv
    with Sandbox(**job.fields) as sandbox:

        def call(_: int) -> Answer:
            result = sandbox.run(payload)
            spent = result.timings
            own_s = spent.resolve_s + spent.bundle_s + spent.cleanup_s
            return Answer(result.exit_code, result.stdout, result.stderr, own_s)

        yield Opened(call)


@contextlib.contextmanager
def hold_cold(job: Job) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox(**job.fields))
        for _ in range(job.lanes):
            up = threading.Event()
            stack.enter_context(sandbox.start(payload_of(job), on_stdout=partial(_set, up)))
            if not up.wait(TIMEOUT_S):
                raise RuntimeFailed("a container did not start")
        yield


def _set(event: threading.Event, _: bytes) -> None:
    event.set()


@contextlib.contextmanager
def open_cli(job: Job) -> Iterator[Opened]:
    assert job.target is not None
    script = os.path.join(os.path.dirname(sys.executable), "ocisbx")
    program = [script] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", "ocisbx"]
    options = ["--runtime", job.target.path, "--workspace", job.workspace]
    if job.target.platform is not None:
        options += ["--platform", job.target.platform]
    start = [*program, "run", *options, *CLI_OPTIONS[job.variant], "--"]
    yield opened(job, lambda _, payload: [*start, *payload], os.environ)


# Bigger than what is called at once, so that a call finds a member that waits.
POOL_SIZE = 8
POLL_S = 0.002


def _fill(pool: Pool, size: int) -> None:
    """Wait until all members are there. Raises RuntimeFailed."""
    deadline = time.monotonic() + TIMEOUT_S
    while pool.counts.waiting < size:
        if time.monotonic() > deadline:
            raise RuntimeFailed(f"the pool did not fill: {pool.counts}")
        time.sleep(POLL_S)


@contextlib.contextmanager
def open_pool(job: Job) -> Iterator[Opened]:
    payload = job.argv
    size = max(POOL_SIZE, 2 * job.lanes)
    with Pool(size=size, **job.fields) as pool:
        _fill(pool, size)

        def call(_: int) -> Answer:
            result = pool.run(payload)
            return Answer(result.exit_code, result.stdout, result.stderr)

        yield Opened(call, lambda: _fill(pool, size), ahead=size)


@contextlib.contextmanager
def open_late(job: Job) -> Iterator[Opened]:
    payload = job.argv
    size = max(POOL_SIZE, 2 * job.lanes)
    with Pool(size=size, **{**job.fields, "workspace": PER_CALL}) as pool:
        _fill(pool, size)

        def call(_: int) -> Answer:
            result = pool.run(payload, workspace=job.workspace)
            return Answer(result.exit_code, result.stdout, result.stderr)

        yield Opened(call, lambda: _fill(pool, size), ahead=size)


@contextlib.contextmanager
def open_warm(job: Job) -> Iterator[Opened]:
    work = job.work
    with Pool(size=POOL_SIZE, warm=work.argv[0], **job.fields) as pool:
        _fill(pool, POOL_SIZE)

        def call(_: int) -> Answer:
            result = pool.run_code(work.code)
            return Answer(result.exit_code, result.stdout, result.stderr)

        yield Opened(call, lambda: _fill(pool, POOL_SIZE), ahead=POOL_SIZE)


@contextlib.contextmanager
def hold_pool(job: Job) -> Iterator[None]:
    with Pool(size=job.lanes, **job.fields) as pool:
        _fill(pool, job.lanes)
        yield


@contextlib.contextmanager
def open_session(job: Job) -> Iterator[Opened]:
    payload = job.argv
    with Session(**job.fields) as session:

        def call(_: int) -> Answer:
            result = session.run(payload)
            return Answer(result.exit_code, result.stdout, result.stderr)

        yield Opened(call)


OURS: tuple[Row, ...] = (
    Row(
        "cold",
        "Sandbox.run() in a long-lived process: a fresh container of the default preset (the same "
        "config.json as the bare runtime's), with our init, verdict, captured output, audit log",
        open_cold,
        hold_cold,
        runtime=True,
        variants=frozenset(VARIANTS),
    ),
    Row(
        "pool",
        "Pool.run() in a long-lived process: a container that was started before the call and runs "
        "this one command; the same config.json and init; a pool of 8, or twice as many as calls "
        "at once, that is full again before the next round",
        open_pool,
        hold_pool,
        runtime=True,
        variants=frozenset(VARIANTS),
    ),
    Row(
        "late workspace",
        "Pool.run(workspace=DIR): as the pool, with the workspace and all that is protected in it "
        "mounted in the waiting container as part of the call",
        open_late,
        runtime=True,
        variants=frozenset(VARIANTS),
        host_kernel=True,
    ),
    Row(
        "warm",
        "Pool.run_code(): as the pool, with the workload's interpreter started before the call in "
        "each container; it runs the code and is gone",
        open_warm,
        runtime=True,
        variants=frozenset(VARIANTS),
        workloads=frozenset({"python", "node"}),
    ),
    Row(
        "session",
        "Session.run() in a long-lived process: one more command in a container that lives on; the "
        "same config.json and init, no isolation of one command from another",
        open_session,
        runtime=True,
        variants=frozenset(VARIANTS),
    ),
    Row(
        "command line",
        "`ocisbx run -- COMMAND` with its plan cached: a Python process and a fresh container",
        open_cli,
        runtime=True,
        variants=frozenset(VARIANTS),
    ),
)
