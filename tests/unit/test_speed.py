"""slowness(): what a slow machine gets more of."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.probe import speed

SECONDS = st.floats(min_value=0, max_value=1e6)


@pytest.mark.parametrize(
    ("loop_s", "times"),
    [
        (0.0, 1.0),
        (speed.ORDINARY_S, 1.0),
        (speed.ORDINARY_S * speed.STILL_ORDINARY, 1.0),
        (speed.ORDINARY_S * speed.STILL_ORDINARY * 4, 4.0),
        # An emulated machine on a busy one.
        (0.2, speed.MOST),
    ],
)
def test_a_slow_machine_gets_more_time(loop_s: float, times: float) -> None:
    assert speed.scale(loop_s) == times


@given(SECONDS, SECONDS)
def test_never_less_time_on_a_slower_machine(one_s: float, other_s: float) -> None:
    assert 1 <= speed.scale(min(one_s, other_s)) <= speed.scale(max(one_s, other_s)) <= speed.MOST


def test_it_is_measured_once() -> None:
    speed.slowness()
    before = time.thread_time()
    assert 1 <= speed.slowness() <= speed.MOST
    assert time.thread_time() - before < speed.ORDINARY_S
