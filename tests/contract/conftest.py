"""One suite for every runtime that is found here; each test has directories of its own.

What ocisbx refuses before it starts any is tried on one (`refused`). Of long tables in which each
row asks the same of a runtime, the rows are gone through on one of each kind (`of_each_kind`).
"""

from __future__ import annotations

import os

import pytest

from ocisbx.quirks import KNOWN_NAMES, find_quirks
from tests.box import RUNTIME_IDS, RUNTIMES, newest
from tests.box_fixtures import box, cache, runtime

__all__ = ["box", "cache", "runtime"]

# The newest of each name, and those whose exit status alone tells of a payload's end.
KINDS = {
    label: found
    for label, found in zip(RUNTIME_IDS, RUNTIMES, strict=True)
    if found in newest(found.name) or find_quirks(found.name, found.version).socket_args is None
}
of_each_kind = pytest.mark.parametrize("runtime", KINDS.values(), ids=KINDS, indirect=True)
refused = pytest.mark.parametrize("runtime", newest("crun"), ids=["any"], indirect=True)


@pytest.fixture(scope="session", autouse=True)
def _unprivileged() -> None:
    """The product is rootless, and so are its proofs."""
    assert os.geteuid() != 0, "start these tests with tools/test, which goes on unprivileged"
    assert {found.name for found in RUNTIMES} == set(KNOWN_NAMES), "tools/test installs runtimes"
