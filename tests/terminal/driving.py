"""What the tests of terminals do with them."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from typing import TYPE_CHECKING, Any

from ocisbx import ExpectTimeout
from ocisbx.background.packets import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import psutil

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


def eventually(condition: Callable[[], object]) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def events(path: Path) -> tuple[dict[str, Any], list[tuple[float, str, str]]]:
    """What a transcript tells of its terminal, and what passed there: when, of which kind, what."""
    head, *rest = path.read_text().splitlines()
    return json.loads(head), [tuple(json.loads(line)) for line in rest]


def is_idle(process: psutil.Process) -> bool:
    """Whether it uses less than a tenth of a processor, for a second."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(1)
    used_s = sum(process.cpu_times()[:2]) - sum(before[:2])
    return used_s < (time.monotonic() - began) / 10


@contextlib.contextmanager
def descriptors_left(left: int, pid: int, container_id: str) -> Iterator[None]:
    """The process at this container's control socket can open so many more meanwhile."""

    def used() -> set[int]:
        return {int(name) for name in os.listdir(f"/proc/{pid}/fd")}

    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # Not less than it has: poll(2) would refuse to watch so many.
    most = max(used()) + 1 + left
    with contextlib.ExitStack() as stack:
        stack.callback(resource.prlimit, pid, resource.RLIMIT_NOFILE, before)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
        while (count := len(used())) < most - left:
            client = connect(container_id)
            assert client is not None
            stack.enter_context(client)
            assert eventually(lambda: len(used()) > count)
        yield
