"""Sessions: in a box of their own, on one runtime unless a test names others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocisbx import Container
from ocisbx.background.leftovers import collect
from ocisbx.quirks import find_quirks
from tests.box import RUNTIMES
from tests.box_fixtures import box, cache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.host import RuntimeBinary
    from tests.box import Box

__all__ = ["box", "cache", "house", "runtime"]

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
def house(box: Box) -> Iterator[Box]:
    """A box in which nothing of a test's sessions is left, once they are removed."""
    yield box
    for container in Container.all():
        container.remove(force=True)
    collect()
    state = box.base / "state" / "ocisbx"
    controls = box.run_directory / "ocisbx" / "controls"
    left = [*(state / "containers").glob("*"), *(box.base / "state" / "ocisbx-worktrees").glob("*")]
    assert [*left, *controls.glob("*")] == []
