"""What is taken away between the end of all that runs in a container and that of its runtime."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.box import eventually

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime


def test_names_are_kept_free_as_long_as_anything_runs(box: Box) -> None:
    """They are taken away while the runtime still ends, not before."""
    name = box.workspace / ".envrc"
    for _ in range(10):
        reader, writer = os.pipe()
        with box.sandbox().start(["cat"], input=reader) as running:
            found: list[psutil.Process] = []

            def look(found: list[psutil.Process] = found) -> bool:
                below = psutil.Process().children(recursive=True)
                found[:] = [one.parent() or one for one in below if one.name() == "cat"]
                return len(found) == 1

            assert eventually(look)
            assert name.exists()
            os.close(writer)
            while name.exists():
                pass
            with contextlib.suppress(psutil.NoSuchProcess):
                assert found[0].status() == psutil.STATUS_ZOMBIE
            assert running.wait() is not None
        os.close(reader)
