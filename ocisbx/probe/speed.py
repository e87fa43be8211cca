"""How fast this machine is, for timeouts that say whether something hangs.

An emulated machine (QEMU without KVM) starts a runtime 20 to 100 times as slowly as what it runs
on: what has hung in the one is only slow in the other.
"""

from __future__ import annotations

import time
from functools import cache

# Processor time of the loop below on an ordinary machine; one that takes four times as long is
# ordinary still.
ORDINARY_S = 0.0005
STILL_ORDINARY = 4.0
# No timeout grows beyond this.
MOST = 12.0
ROUNDS = 20_000
TRIES = 3


@cache
def slowness() -> float:
    """How many times as long as on an ordinary machine to wait here: 1.0 to MOST.

    Of processor time, which other programs do not take: a busy machine counts as a fast one. Takes
    2 ms, and as many times more as the machine is slower.
    """
    return scale(min(_loop_s() for _ in range(TRIES)))


def scale(loop_s: float) -> float:
    """What `slowness` makes of the time that the loop took."""
    return min(MOST, max(1.0, loop_s / (ORDINARY_S * STILL_ORDINARY)))


def _loop_s() -> float:
    started = time.thread_time()
    sum(number * number for number in range(ROUNDS))
    return time.thread_time() - started
