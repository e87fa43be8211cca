"""What a supervisor takes while its container runs, on every kind of runtime."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.background.container import Container
from ocisbx.places import find_places
from tests.background.conftest import KINDS
from tests.box import eventually

if TYPE_CHECKING:
    from tests.box import Box

# Debian's Python 3.11, of which 7.5 MiB are the interpreter; others are larger themselves.
LIMIT_BYTES = (12 if sys.version_info < (3, 12) else 18) << 20
# It relays this, then waits.
TALK = ["sh", "-c", "head -c 1M /dev/zero | tr '\\0' '\\n'; echo done; sleep 600"]

pytestmark = pytest.mark.parametrize("runtime", KINDS.values(), ids=KINDS)


def resident_bytes(container: Container) -> int:
    with open(f"/proc/{container.record.supervisor.pid}/status", encoding="ascii") as file:
        (line,) = [line for line in file if line.startswith("VmRSS")]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("terminal", [False, True], ids=["pipes", "terminal"])
def test_a_supervisor_is_small_at_work(yard: Box, *, terminal: bool) -> None:
    # The first one after an installation compiles.
    yard.sandbox().create(["true"]).start().wait(20)
    container = yard.sandbox(terminal=terminal).create(TALK).start()
    assert eventually(lambda: b"done" in container.logs()[-10:])
    assert resident_bytes(container) < LIMIT_BYTES
    assert container.exec(["true"]).exit_code == 0
    container.usage()
    assert resident_bytes(container) < LIMIT_BYTES


def test_the_supervisor_of_a_session_is_small(yard: Box) -> None:
    yard.sandbox().create(["true"]).start().wait(20)
    with yard.session() as session:
        assert session.run(["true"]).exit_code == 0
        (container,) = [one for one in Container.all() if one.id == session.id]
        assert resident_bytes(container) < LIMIT_BYTES


def test_the_supervisor_of_a_counted_one_is_small(yard: Box) -> None:
    yard.sandbox().create(["true"]).start().wait(20)
    container = yard.sandbox(concurrency={"max": 50}).create(["sleep", "600"]).start()
    assert resident_bytes(container) < LIMIT_BYTES


def test_a_new_version_of_one_module_is_compiled_by_the_first(yard: Box) -> None:
    """Too little for anybody to become much larger, and what it imports is then stale no more."""
    yard.sandbox().create(["true"]).start().wait(20)
    for name in ("slots", "supervisor"):
        (bytecode,) = Path(find_places().bytecode).rglob(f"{name}.*.pyc")
        bytecode.unlink()
    yard.sandbox().create(["true"]).start().wait(20)
    container = yard.sandbox(concurrency={"max": 50}).create(["sleep", "600"]).start()
    assert resident_bytes(container) < LIMIT_BYTES
