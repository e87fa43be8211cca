"""What the tests of terminals do with them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ocisbx import ExpectTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx import Terminal

PATIENCE_S = 20.0


def until(terminal: Terminal, wanted: str) -> str:
    """All that is printed until `wanted` is among it; what comes after it stays."""
    found = ""
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in found:
        try:
            data = terminal.read(1, timeout_s=deadline - time.monotonic())
        except ExpectTimeout:
            raise AssertionError(found) from None
        assert data, (found, wanted)
        found += data
    return found


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
