"""Sessions: in a box of their own, on one runtime unless a test names others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocisbx.quirks import find_quirks
from tests.box import RUNTIMES
from tests.box_fixtures import box, cache, yard

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

__all__ = ["box", "cache", "house", "runtime", "yard"]

# All that can hold a session; of gVisor's platforms the first, which is the default.
ABLE = {
    f"{one.name}-{one.version}": one
    for one in reversed(RUNTIMES)
    if find_quirks(one.name, one.version).socket_args is not None
}
UNABLE = [one for one in RUNTIMES if find_quirks(one.name, one.version).socket_args is None]
CRUN = next(one for one in RUNTIMES if one.name == "crun")


@pytest.fixture
def runtime() -> RuntimeBinary:
    return CRUN


@pytest.fixture
def house(yard: Box) -> Box:
    """What the tests of sessions call a yard."""
    return yard
