"""Faults, verbs, bundles: on the runtimes that share the host's kernel. What a user is promised on
gVisor, tests/contract and tests/security show; its choice and trials, test_choosing.py."""

import pytest

from ocisbx.host import RuntimeBinary
from tests.box import RUNTIME_IDS, RUNTIMES, newest
from tests.box_fixtures import box, cache
from tests.runtimes.stage import stage

__all__ = ["box", "cache", "runtime", "stage"]

NATIVE = [(one, name) for one, name in zip(RUNTIMES, RUNTIME_IDS, strict=True) if not one.platform]
# For what does not depend on a runtime's version: the newest of each name.
NEWEST = {one.name: one for one, _ in NATIVE if one in newest(one.name)}
of_each_name = pytest.mark.parametrize("runtime", NEWEST.values(), ids=NEWEST, indirect=True)
# Where a program of the test's own, or ours, does all that is looked at.
on_any = pytest.mark.parametrize("runtime", [NATIVE[0][0]], ids=["any"], indirect=True)


@pytest.fixture(params=[one for one, _ in NATIVE], ids=[name for _, name in NATIVE])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found
