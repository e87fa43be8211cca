"""Boxes on each runtime of the guest, and the cgroups of sandboxes there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.probe.runtimes import find_runtimes
from tests.box import Box, nothing_leaks
from tests.box_fixtures import cache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.host import RuntimeBinary

__all__ = ["cache"]

HIERARCHY = Path("/sys/fs/cgroup")
OUR_CGROUP = re.compile(r"ocisbx-[0-9a-f]{20}")
# What a start and an end may take at once with others, in a machine that is emulated.
PATIENCE_S = 120.0

# By name and whether it is the distribution's; of equal ones the first that is found.
FOUND = {(one.name, one.path.startswith("/usr/")): one for one in reversed(find_runtimes())}


def ours(name: str) -> RuntimeBinary:
    return FOUND[name, False]


def debians(name: str) -> RuntimeBinary:
    return FOUND[name, True]


@pytest.fixture
def box(
    runtime: RuntimeBinary, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Box]:
    """`runtime` is the module's own; afterwards all is as it was before."""
    yield from made_box(runtime, tmp_path, cache, monkeypatch)


def made_box(
    runtime: RuntimeBinary, place: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Box]:
    made = Box(place, runtime, cache)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    before = cgroups()
    yield from (made for _ in nothing_leaks(made))
    assert cgroups() == before


def cgroups() -> set[Path]:
    """Those of sandboxes, wherever in the hierarchy."""
    return {
        Path(parent, name)
        for parent, names, _ in os.walk(HIERARCHY)
        for name in names
        if OUR_CGROUP.fullmatch(name)
    }


def cgroup_of(container_id: str) -> Path:
    (found,) = (path for path in cgroups() if path.name == f"ocisbx-{container_id}")
    return found
