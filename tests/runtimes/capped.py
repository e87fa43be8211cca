"""Sandboxes of which one may run at once, for the tests of slots: fixtures and what begins them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.box import RUNTIMES, eventually, nap, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx import Sandbox
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

# Slots know no runtimes: one will do, and one of each kind where drivers race or die.
KINDS = {one.name: one for one in RUNTIMES if one.name in ("crun", "runc")}
of_each_kind = pytest.mark.parametrize("runtime", KINDS, indirect=True)


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    return KINDS[getattr(request, "param", min(KINDS))]


@pytest.fixture(autouse=True)
def no_cap_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCISBX_MAX_SANDBOXES", raising=False)


def capped(box: Box, wait_s: float | None = None, **fields: Any) -> Sandbox:
    return box.sandbox(concurrency={"max": 1, "wait_s": wait_s}, grace_s=0.2, **fields)


@pytest.fixture
def mark() -> Iterator[str]:
    """An argument of `sleep` that tells the processes of this test; none may be left."""
    made = nap()
    yield made
    assert eventually(lambda: running(made) == [])
