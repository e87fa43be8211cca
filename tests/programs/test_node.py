"""Node: worker threads, child processes, a watched file, a server on the loopback device."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.conftest import Work

pytestmark = pytest.mark.runtime


def test_threads_children_files_and_a_server(work: Work) -> None:
    assert json.loads(work("node", "node work.js")) == [4000, [42, 21], True, 190]
