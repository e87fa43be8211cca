"""The workers of a section: one process a launcher, asked in turn."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import time
from typing import TYPE_CHECKING, Any

from ocisbx import command
from ocisbx.bench.worker import worker_argv
from ocisbx.errors import RuntimeFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.bench.launchers import Job

START_S = 120.0
ANSWER_S = 180.0
END_S = 30.0
CHUNK_BYTES = 1 << 16


class Worker:
    """A worker's process, and the pipes to it."""

    def __init__(self, job: Job) -> None:
        theirs_in, self._requests = os.pipe()
        self._answers, theirs_out = os.pipe()
        self._unread = b""
        try:
            self._child = command.spawn(
                worker_argv(job),
                descriptors={0: theirs_in, 1: theirs_out, 2: 2},
                environment=_environment(),
            )
        except OSError:
            os.close(self._requests)
            os.close(self._answers)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    @property
    def pid(self) -> int:
        return self._child.pid

    def ready(self) -> None:
        """Wait until it can measure. Raises RuntimeFailed: its launcher does not work here."""
        self._answer(START_S)

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
        """One call or batch. Raises RuntimeFailed."""
        os.write(self._requests, json.dumps(request).encode() + b"\n")
        return self._answer(ANSWER_S)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        poller = select.poll()
        poller.register(self._answers, select.POLLIN)
        while b"\n" not in self._unread:
            if not poller.poll(max(0.0, deadline - time.monotonic()) * 1e3):
                raise RuntimeFailed(f"no answer within {timeout_s:g} s")
            chunk = os.read(self._answers, CHUNK_BYTES)
            if not chunk:
                raise RuntimeFailed("its worker ended", why=str(self._child.wait(END_S)))
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeFailed(answer["error"])
        return answer

    def close(self) -> None:
        """End it, and let it clean up first."""
        os.close(self._requests)
        if self._child.wait(END_S) is None:
            self._child.kill()
            self._child.wait()
        self._child.close()
        os.close(self._answers)


def _environment() -> dict[str, str]:
    """Ours, with the directory that this package was imported from."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@contextlib.contextmanager
def hired(job: Job) -> Iterator[Worker]:
    """A worker with a workspace and a scratch directory of its own.

    Raises:
        RuntimeFailed, OSError: it cannot start, or its launcher does not work here.
    """
    for path in (job.workspace, job.scratch):
        os.makedirs(path, 0o700)
    worker = Worker(job)
    try:
        worker.ready()
        yield worker
    finally:
        worker.close()
        for path in (job.workspace, job.scratch):
            shutil.rmtree(path, ignore_errors=True)
