"""What all parts of the tests share: how they are spread over the workers of pytest-xdist."""

import gc

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# How long an example takes says how busy the machine is, not whether it holds.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

MASS_PERCENT = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of the payloads whose verdicts are tested in mass, how many percent are run; with 100 the
    mutants of tests/security on every version, too."""
    told = f"percent of the mass tests (default {MASS_PERCENT})"
    parser.addoption("--mass", type=int, default=MASS_PERCENT, help=told)


def pytest_collection_finish() -> None:
    """Each box looks for what its test left with gc.collect(): among thousands of collected tests
    that would take longer than the test."""
    gc.collect()
    gc.freeze()


# Parts that share nothing with a neighbour and measure no time. All tests of the other parts run on
# one worker, one after the other.
PARALLEL_PARTS = frozenset(
    {
        "contract",
        "expect",
        "golden",
        "machine",
        "meta",
        "pool",
        "programs",
        "recipes",
        "security",
        "sessions",
        "terminal",
        "unit",
        "vm",
    }
)


# Not `--dist loadgroup` and marks: xdist 3.8 writes the group to an attribute that pytest 9.2 does
# not read, and then spreads the group's tests over all workers.
class PartScheduling(LoadScopeScheduling):
    """Takes each test of a parallel part by itself, and all others as one unit of work."""

    def _split_scope(self, nodeid: str) -> str:
        part = nodeid.split("/")[1]
        return nodeid if part in PARALLEL_PARTS else "serial"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return PartScheduling(config, log)
