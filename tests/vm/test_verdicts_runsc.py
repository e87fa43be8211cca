"""Every verdict on gVisor: twenty of each kind, mixed, four at once; and without reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocisbx.result import Termination as T
from tests.vm.boxes import box, cache, debians, made_box, ours
from tests.vm.mass import prove, share
from tests.vm.payloads import FIFO, LATE, MIB, OOM, End, Room, end_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ocisbx.host import RuntimeBinary
    from tests.box import Box

__all__ = ["box", "cache", "share"]

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(3000)]


# Its kernel has 35 MiB and 80 threads of its own, and a start takes it seconds here.
ROOM = Room(
    memory_bytes=96 * MIB,
    pids=120,
    nearly_bytes=32 * MIB,
    own_kernel=True,
    timeout_ms=4000,
    children=8,
)


@pytest.fixture
def runtime() -> RuntimeBinary:
    return ours("runsc")


def test_twenty_of_each(box: Box, share: float) -> None:
    prove(box, ROOM, each=20, lookalikes=1, share=share)


# -------------------------------------------------------------------- a runtime without socket_args
@pytest.fixture
def unreported(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """A box on the runsc of 2022, whose exit status is all that is known."""
    yield from made_box(debians("runsc"), tmp_path, cache, monkeypatch)


UNREPORTED = {
    "exit 7": End(T.EXITED, exit_code=7),
    "kill -15 $$": End(T.SIGNALED, signal=15),
    # A shell's 128 + N cannot be told from it.
    "exit 137": End(T.SIGNALED, signal=9),
    "exec sleep 600": LATE,
    "exec dd if=/dev/zero of=/dev/null bs=400M count=1": OOM,
    f"{FIFO}while :; do read x <&9 & done": End(T.PIDS_LIMIT, exit_code=2),
}


def test_verdicts_without_a_report(unreported: Box) -> None:
    """One after another: beside others its start alone takes it many seconds here."""
    room = ROOM._replace(pids=200)
    ends = {
        script: end_of(unreported.sh(script, **room.fields(hasty=end == LATE)))
        for script, end in UNREPORTED.items()
    }
    assert ends == UNREPORTED
