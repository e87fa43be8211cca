"""Faults and long runs, on every runtime that is found here."""

from __future__ import annotations

from tests.box_fixtures import box, cache, runtime
from tests.runtimes.stage import stage

__all__ = ["box", "cache", "runtime", "stage"]
