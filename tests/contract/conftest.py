"""One suite for every runtime that is found here; each test has directories of its own."""

from __future__ import annotations

import os

import pytest

from ocisbx.quirks import KNOWN_NAMES
from tests.box import RUNTIMES
from tests.box_fixtures import box, cache, runtime

__all__ = ["box", "cache", "runtime"]


@pytest.fixture(scope="session", autouse=True)
def _unprivileged() -> None:
    """The product is rootless, and so are its proofs."""
    assert os.geteuid() != 0, "start these tests with tools/test, which goes on unprivileged"
    assert {found.name for found in RUNTIMES} == set(KNOWN_NAMES), "tools/test installs runtimes"
