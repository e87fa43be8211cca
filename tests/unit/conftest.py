"""Unit tests start no process: an audit hook, which cannot be undone, sees every way to do it."""

import sys
from collections.abc import Iterator

import pytest

from ocisbx.probe.runtimes import find_runtimes

STARTS = frozenset({
    "subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.spawn",
    "os.system", "pty.spawn",
})  # fmt: skip
_running: list[str] = []
_seen: list[str] = []


def _watch(event: str, _arguments: tuple[object, ...]) -> None:
    if event in STARTS and _running:
        _seen.append(event)


# What each runtime says of itself is remembered: who has an empty cache asks here, not in a test.
find_runtimes()
sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def _no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    _running.append(request.node.nodeid)
    _seen.clear()
    yield
    _running.clear()
    assert not _seen, f"a unit test started a process: {_seen}"
