"""Every verdict on youki, and on what Debian has of runc and crun."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.vm.boxes import box, cache, debians, ours
from tests.vm.mass import prove, share
from tests.vm.payloads import Room

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

__all__ = ["box", "cache", "share"]

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(3000)]


class Row(NamedTuple):
    runtime: RuntimeBinary
    each: int


ROWS = {
    "youki": Row(ours("youki"), 20),
    "Debian's crun": Row(debians("crun"), 5),
    "Debian's runc": Row(debians("runc"), 5),
}


@pytest.fixture(params=list(ROWS.values()), ids=list(ROWS))
def row(request: pytest.FixtureRequest) -> Row:
    found: Row = request.param
    return found


@pytest.fixture
def runtime(row: Row) -> RuntimeBinary:
    return row.runtime


def test_some_of_each(box: Box, row: Row, share: float) -> None:
    prove(box, Room(), each=row.each, lookalikes=1, share=share)
