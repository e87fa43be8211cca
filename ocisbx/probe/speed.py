"""How fast this machine is, for timeouts that say whether something hangs.

An emulated machine (QEMU without KVM) starts a runtime 20 to 100 times as slowly as what it runs
on: what has hung in the one is only slow in the other.
"""

from __future__ import annotations

import time
from functools import cache

# Processor time of the loop below on an ordinary machine; one that takes three times as long is
# ordinary still.
ORDINARY_S = 0.0015
STILL_ORDINARY = 3.0
# No timeout grows beyond this.
MOST = 24.0
ROUNDS = 60_000


@cache
def slowness() -> float:
    """How many times as long as on an ordinary machine to wait here: 1.0 to MOST.

    Of processor time, which other programs do not take: a busy machine is not taken for a slow one
    (an emulated one is, when what emulates it is busy, which it cannot see). Takes 2 ms, and as
    many times more as the machine is slower.
    """
    return scale(_loop_s())


def scale(loop_s: float) -> float:
    """What `slowness` makes of the time that the loop took."""
    return min(MOST, max(1.0, loop_s / (ORDINARY_S * STILL_ORDINARY)))


def _loop_s() -> float:
    started = time.thread_time()
    sum(number * number for number in range(ROUNDS))
    return time.thread_time() - started
