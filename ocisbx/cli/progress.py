"""What is being done, said on stderr as soon as it takes long."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from ocisbx.cli.output import say

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE_S = 2.0


class Progress:
    """`tell` what is begun: nothing is said in the first two seconds, then each step as it comes.

    The first that is said is the one that was under way.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._lock = threading.Lock()
        self._slow = False
        self._current = ""
        self._timer = threading.Timer(patience_s, self._on_slow)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        self._timer.join()

    def tell(self, step: str) -> None:
        with self._lock:
            self._current = step
            if self._slow:
                say(f"ocisbx: {step}")

    def _on_slow(self) -> None:
        with self._lock:
            self._slow = True
            if self._current:
                say(f"ocisbx: {self._current}")
