"""Containers in the background: on one runtime of each kind, in a box of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.box import RUNTIMES
from tests.box_fixtures import box, cache, yard

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary

__all__ = ["box", "cache", "runtime", "yard"]

# The first one found of each kind is the newest.
KINDS = {one.name: one for one in reversed(RUNTIMES)}
CRUN = KINDS["crun"]


@pytest.fixture
def runtime() -> RuntimeBinary:
    return CRUN
