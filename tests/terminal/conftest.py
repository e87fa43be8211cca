"""Terminals: on every runtime that can give one, in a box of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocisbx.quirks import find_quirks
from tests.box import RUNTIMES, newest
from tests.box_fixtures import box, cache, yard

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary

__all__ = ["box", "cache", "runtime", "yard"]

# Of gVisor's platforms the first, which is the default.
ABLE = {
    f"{one.name}-{one.version}": one
    for one in reversed(RUNTIMES)
    if find_quirks(one.name, one.version).socket_args is not None
}
# What people do at a terminal that somebody else holds is ours: of each name one is enough.
OF_EACH_NAME = {
    name: one for name, one in ABLE.items() if one in newest(one.name) or one.name == "runsc"
}
of_each_name = pytest.mark.parametrize(
    "runtime", list(OF_EACH_NAME.values()), ids=list(OF_EACH_NAME), indirect=True
)
UNABLE = [one for one in RUNTIMES if find_quirks(one.name, one.version).socket_args is None]


@pytest.fixture(params=list(ABLE.values()), ids=list(ABLE))
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found
