"""The fixtures around `Box`, for the parts of the tests whose conftest imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocisbx.background.container import Container
from ocisbx.background.leftovers import collect
from tests.box import RUNTIME_IDS, RUNTIMES, Box, nothing_leaks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ocisbx.host import RuntimeBinary


@pytest.fixture(params=RUNTIMES, ids=RUNTIME_IDS)
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the tests of one worker, as by the calls of one user."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def box(
    runtime: RuntimeBinary, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Box]:
    made = Box(tmp_path, runtime, cache)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield from (made for _ in nothing_leaks(made))


@pytest.fixture
def yard(box: Box) -> Iterator[Box]:
    """A box in which nothing of a test's containers and sessions is left, once they are removed."""
    yield box
    for container in Container.all():
        container.remove(force=True)
    collect()
    state = box.base / "state"
    places = (
        state / "ocisbx" / "containers",
        state / "ocisbx-worktrees",
        box.run_directory / "ocisbx" / "controls",
    )
    assert [left for place in places for left in place.glob("*")] == []
