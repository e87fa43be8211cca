"""What is taken away between the end of all that runs in a container and that of its runtime."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.box import eventually

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime


def init_of(command: str) -> psutil.Process | None:
    """What has started it, below this process; None: it is not there yet."""
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.name() == command:
                return one.parent()
    return None


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_names_are_kept_free_as_long_as_anything_runs(box: Box) -> None:
    """They are taken away while the runtime still ends, not before."""
    name = box.workspace / ".envrc"
    for _ in range(10):
        reader, writer = os.pipe()
        with os.fdopen(reader), box.sandbox().start(["cat"], input=reader) as running:
            with os.fdopen(writer):
                assert eventually(lambda: init_of("cat") is not None)
                init = init_of("cat")
                assert init is not None
                assert name.exists()
            until = time.monotonic() + 20
            while name.exists():
                assert time.monotonic() < until
            assert has_ended(init)
            assert running.wait() is not None
