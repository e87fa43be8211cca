"""Every verdict on gVisor: twenty of each kind, mixed, four at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.vm.boxes import box, cache, ours
from tests.vm.mass import prove, share
from tests.vm.payloads import MIB, Room

if TYPE_CHECKING:
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
