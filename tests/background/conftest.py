"""Containers in the background: on one runtime of each kind, in a box of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocisbx.background.container import Container
from ocisbx.background.leftovers import collect
from tests.box import RUNTIMES
from tests.box_fixtures import box, cache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.host import RuntimeBinary
    from tests.box import Box

__all__ = ["box", "cache", "runtime", "yard"]

# The first one found of each kind is the newest.
KINDS = {one.name: one for one in reversed(RUNTIMES)}
CRUN = KINDS["crun"]


@pytest.fixture
def runtime() -> RuntimeBinary:
    return CRUN


@pytest.fixture
def yard(box: Box) -> Iterator[Box]:
    """A box in which nothing of a test's containers is left, once they are removed."""
    yield box
    for container in Container.all():
        container.remove(force=True)
    collect()
    state = box.base / "state" / "ocisbx" / "containers"
    controls = box.run_directory / "ocisbx" / "controls"
    assert [*state.glob("*"), *controls.glob("*")] == []
