"""A JVM: its compiler, its collectors, its threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.conftest import Work

pytestmark = pytest.mark.runtime


def test_compile_and_run_with_little_memory(work: Work) -> None:
    script = """
        javac -Werror -d classes Work.java
        jar --create --file work.jar --main-class Work -C classes .
        java -Xmx64m -XX:+UseG1GC -jar work.jar
    """
    expected = [sum(range(100)) + sum(range(1000)), 64, 1 << 20, "0 got line", 42]
    processors = len(os.sched_getaffinity(0))
    assert work("java", script).splitlines() == [str(item) for item in [*expected, processors]]
