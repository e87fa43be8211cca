"""Python's threads and processes, and an installation by pip."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.box import PYTHON, RUNTIME_IDS, RUNTIMES

if TYPE_CHECKING:
    from tests.box import Box
    from tests.programs.conftest import Work

pytestmark = pytest.mark.runtime


# On every runtime: threads and semaphores are what a wrong seccomp profile or /dev/shm breaks
# first, and what the older runtimes answer differently.
@pytest.mark.parametrize("runtime", RUNTIMES, ids=RUNTIME_IDS)
def test_threads_and_multiprocessing(work: Work) -> None:
    methods = ("fork", "spawn", "forkserver")
    assert json.loads(work("python", f"{PYTHON} work.py")) == {
        "counts": dict.fromkeys(methods, 400),
        "sums": dict.fromkeys(methods, sum(number**2 for number in range(20))),
        "children": ["0", "1", "2"],
        "processors": len(os.sched_getaffinity(0)),
    }


def test_pip_install_from_a_folder(work: Work, box: Box) -> None:
    """Without a network: what builds the package is the system's setuptools."""
    script = f"""
        {PYTHON} -m venv --system-site-packages .venv
        .venv/bin/pip install --no-index --no-build-isolation --disable-pip-version-check ./greeter
        .venv/bin/greet sandbox
    """
    assert work("pip", script).splitlines()[-1] == "hello sandbox from 1.0"
    # The environment stays, as everything in the workspace does.
    assert (box.workspace / ".venv" / "bin" / "greet").exists()
