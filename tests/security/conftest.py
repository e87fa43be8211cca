"""Every runtime that is found, unprivileged; at the end, how many assertions hold on each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.box import newest
from tests.box_fixtures import box, cache, runtime

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

__all__ = ["box", "cache", "runtime"]

SCORE = "assertions that hold"
# For what is refused before any runtime is started.
refused = pytest.mark.parametrize("runtime", newest("crun"), ids=["any"], indirect=True)


@pytest.fixture(scope="session", autouse=True)
def _unprivileged() -> None:
    """What root may do is no proof."""
    assert os.geteuid() != 0, "start these tests with tools/test, which goes on unprivileged"


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    scores = [
        text
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == SCORE
    ]
    if scores:
        terminalreporter.section(SCORE)
        for text in sorted(set(scores)):
            terminalreporter.write_line(text)
