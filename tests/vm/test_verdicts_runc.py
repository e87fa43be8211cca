"""Every verdict on runc: a hundred of each kind, mixed, four at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.vm.boxes import box, cache, ours
from tests.vm.mass import prove, share
from tests.vm.payloads import Room

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

__all__ = ["box", "cache", "share"]

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture
def runtime() -> RuntimeBinary:
    return ours("runc")


def test_a_hundred_of_each(box: Box, share: float) -> None:
    prove(box, Room(), each=100, lookalikes=2, share=share)
