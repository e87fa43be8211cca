"""Faults, verbs, bundles: on the runtimes that share the host's kernel. What a user is promised on
gVisor, tests/contract and tests/security show; its choice and trials, test_choosing.py."""

import pytest

from ocisbx.host import RuntimeBinary
from tests.box import RUNTIME_IDS, RUNTIMES
from tests.box_fixtures import box, cache
from tests.runtimes.stage import stage

__all__ = ["box", "cache", "runtime", "stage"]

NATIVE = [(one, name) for one, name in zip(RUNTIMES, RUNTIME_IDS, strict=True) if not one.platform]


@pytest.fixture(params=[one for one, _ in NATIVE], ids=[name for _, name in NATIVE])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found
