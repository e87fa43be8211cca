"""How many containers should wait: from what was asked for lately. Pure; times are monotonic."""

from __future__ import annotations

import math
from typing import NamedTuple

# How fast the past is forgotten: a call counts half after so long.
HALF_LIFE_S = 10.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0


class Bounds(NamedTuple):
    """How many members a pool has waiting: `most` while it is used, `least` when it is not.
    `by_demand`: while it is used as many between the two as its calls need."""

    least: int
    most: int
    by_demand: bool = False


class Demand:
    """Counts calls, and says how many members are wanted.

    A pool starts full, and is full while it is used; by demand it holds what a burst needs that
    comes while one member is being started. When nothing was asked for in `idle_s`: `least`.
    """

    def __init__(self, bounds: Bounds, idle_s: float, now: float) -> None:
        self._bounds = bounds
        self._idle_s = idle_s
        self._last_call = now
        self._rate = 0.0
        self._rated_at = now
        self._start_s = 0.0
        self._calls = 0

    def note_call(self, now: float) -> None:
        """A member was used."""
        self._rate = self._decayed(now) + math.log(2) / HALF_LIFE_S
        self._rated_at = self._last_call = now
        self._calls += 1

    def note_start(self, took_s: float) -> None:
        """A member took so long to start."""
        self._start_s = took_s if not self._start_s else 0.8 * self._start_s + 0.2 * took_s

    def wanted(self, now: float) -> int:
        """How many should be waiting."""
        least, most, by_demand = self._bounds
        if now - self._last_call >= self._idle_s:
            return least
        if not by_demand or not self._calls:
            return most
        # Little's law: so many are asked for while one is started; twice that for bursts.
        burst = math.ceil(2 * self._decayed(now) * self._start_s)
        return max(least, min(most, burst + 1))

    def idle_at(self) -> float:
        """When the pool shrinks, if nothing is asked for."""
        return self._last_call + self._idle_s

    def _decayed(self, now: float) -> float:
        passed_s = max(0.0, now - self._rated_at)
        return float(self._rate * 0.5 ** (passed_s / HALF_LIFE_S))


class BackOff:
    """How long to wait after starts that failed, one after the other."""

    def __init__(self) -> None:
        self._failures = 0
        self.until = -math.inf

    def note_failure(self, now: float) -> None:
        self._failures += 1
        pause_s = FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 16)
        self.until = now + min(pause_s, LONGEST_PAUSE_S)

    def note_success(self) -> None:
        self._failures = 0
        self.until = -math.inf

    def holds(self, now: float) -> bool:
        """Whether it is too early for another attempt."""
        return now < self.until
