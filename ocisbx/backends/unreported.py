"""An execution without the init's report, for a runtime that cannot carry our socket (gVisor before
2023): the runtime's stdio is the payload's, its exit status the payload's, and signals go by its
`kill`. What it cannot tell stands in quirks.LACKS.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ocisbx.backends.base import Step
from ocisbx.backends.execution import OciExecution
from ocisbx.errors import InvalidState

if TYPE_CHECKING:
    from ocisbx.init.protocol import Target
    from ocisbx.outcome import Evidence

# Between two attempts to signal a container that the runtime has not made yet.
RETRY_S = 0.05


class UnreportedExecution(OciExecution):
    """As OciExecution; the init runs the payload at once and forwards signals to it."""

    def start(self) -> None:
        """Start the runtime with the payload's own descriptors. Errors as OciExecution's."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        stdio = self.stdio
        try:
            assert stdio.stdout is not None
            self._child = self._client.spawn_run(
                self.id,
                self._bundle.path,
                stdio={
                    0: null if stdio.stdin is None else stdio.stdin,
                    1: stdio.stdout,
                    2: stdio.stdout if stdio.stderr is None else stdio.stderr,
                },
                socket=None,
                cgroup=self._entered,
            )
        finally:
            os.close(null)
        self._signals_sent = 0
        self._held: list[tuple[int, Target]] = []
        self._retry_at: float | None = None
        # Whether the payload runs yet cannot be seen; its time counts from here.
        self._ready = self._started = True
        self.clock.payload_started = time.monotonic()
        limit_s = self._plan.timeout_s
        self._timeout_at = None if limit_s is None else time.monotonic() + limit_s
        stdio.release()
        for step in (Step.RUNTIME_STARTED, Step.CREATED, Step.RUNNING):
            self._tell(step)

    def _send(self, number: int, target: Target) -> None:
        assert self._child is not None
        if self._child.status is not None:
            return
        try:
            self._client.kill(self.id, number)
            self._signals_sent += 1
        except InvalidState:
            self._held.append((number, target))
            self._retry_at = time.monotonic() + RETRY_S

    def _advance(self, now: float) -> None:
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            held, self._held = self._held, []
            for number, target in held:
                self._send(number, target)
        super()._advance(now)

    def _moments(self) -> list[float | None]:
        return [*super()._moments(), self._retry_at]

    def _evidence(self) -> Evidence:
        return (
            super()
            ._evidence()
            ._replace(ready=False, started=False, reports=False, signals_sent=self._signals_sent)
        )
