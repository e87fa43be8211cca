"""Recipes of the manual on youki in the test machine.

All of them run natively, in tests/recipes. These are those that the guest has programs for and that
differ in what a terminal has to do: lines, job control, a full screen, keys that are not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.recipes.cookbook import Cookbook
from tests.recipes.test_programs import (
    test_a_program_that_switches_echo_off,
    test_bash,
    test_python,
    test_top,
)
from tests.vm.boxes import box, cache, ours

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

__all__ = [
    "box",
    "cache",
    "test_a_program_that_switches_echo_off",
    "test_bash",
    "test_python",
    "test_top",
]

pytestmark = pytest.mark.vm


@pytest.fixture
def runtime() -> RuntimeBinary:
    return ours("youki")


@pytest.fixture
def cookbook(
    box: Box, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Cookbook:
    return Cookbook(box, monkeypatch, capfd)
