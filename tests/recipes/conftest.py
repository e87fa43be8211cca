"""The recipes of the manual, on the newest of each runtime."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.box import Box, newest
from tests.box_fixtures import box, cache
from tests.recipes.cookbook import Cookbook

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary

__all__ = ["box", "cache", "runtime"]

KINDS = ("crun", "runc", "youki", "runsc")
NEWEST = [runtime for kind in KINDS for runtime in newest(kind)]
# Those that run on the host's kernel.
HOSTED = [runtime for runtime in NEWEST if runtime.name != "runsc"]


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    assert os.geteuid() != 0, "start these tests with tools/test, which goes on unprivileged"
    assert [found.name for found in NEWEST] == list(KINDS), "tools/test installs runtimes"


@pytest.fixture(params=NEWEST, ids=[found.name for found in NEWEST])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found


@pytest.fixture
def cookbook(
    box: Box, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Cookbook:
    return Cookbook(box, monkeypatch, capfd)
