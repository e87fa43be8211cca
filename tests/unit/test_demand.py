"""How many containers a pool keeps ready."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.errors import ConfigError
from ocisbx.pool.demand import FIRST_PAUSE_S, LONGEST_PAUSE_S, BackOff, Bounds, Demand
from ocisbx.pool.pool import MOST_MEMBERS, Pool, check_size

SECONDS = st.floats(0, 1e6, allow_nan=False)


@st.composite
def bounds(draw: Any, *, by_demand: bool | None = None) -> Bounds:
    least = draw(st.integers(1, 64))
    most = draw(st.integers(least, 1024))
    return Bounds(least, most, draw(st.booleans()) if by_demand is None else by_demand)


@given(bounds(), st.lists(st.tuples(st.sampled_from("csw"), SECONDS), max_size=50))
def test_the_wanted_number_lies_within_the_bounds(
    limits: Bounds, events: list[tuple[str, float]]
) -> None:
    now = 0.0
    demand = Demand(limits, 60.0, now)
    for kind, number in events:
        if kind == "c":
            demand.note_call(now)
        elif kind == "s":
            demand.note_start(number)
        else:
            now += number
        assert limits.least <= demand.wanted(now) <= limits.most


@given(bounds(), SECONDS)
def test_after_an_idle_time_the_least_is_wanted_until_the_next_call(
    limits: Bounds, idle_s: float
) -> None:
    idle_s += 0.001
    demand = Demand(limits, idle_s, 0.0)
    assert demand.wanted(0.0) == limits.most
    assert demand.idle_at() == idle_s
    assert demand.wanted(idle_s) == limits.least
    demand.note_call(idle_s)
    assert demand.wanted(idle_s) >= (1 if limits.by_demand else limits.most)


@given(bounds(by_demand=True), st.floats(0.001, 10))
def test_a_burst_raises_the_number_and_time_lowers_it(limits: Bounds, start_s: float) -> None:
    demand = Demand(limits, 1e9, 0.0)
    demand.note_start(start_s)
    before = None
    for _ in range(500):
        demand.note_call(1.0)
        wanted = demand.wanted(1.0)
        assert before is None or wanted >= before
        before = wanted
    later = [demand.wanted(1.0 + 10.0 * n) for n in range(40)]
    assert later == sorted(later, reverse=True)
    # One more than what was asked for at last: nothing.
    assert later[-1] == max(limits.least, min(limits.most, 2))


def test_the_rate_settles_at_what_is_asked_for() -> None:
    demand = Demand(Bounds(1, 1000, by_demand=True), 1e9, 0.0)
    demand.note_start(0.1)
    for n in range(10_000):
        demand.note_call(n / 50)
    # 50 in a second, 0.1 s each: 5, twice for bursts, and one.
    assert demand.wanted(200.0) == pytest.approx(11, abs=1)


@given(st.integers(1, 200))
def test_failures_one_after_the_other_wait_longer_up_to_a_bound(failures: int) -> None:
    back_off = BackOff()
    pauses = []
    now = 0.0
    for _ in range(failures):
        assert not back_off.holds(now)
        back_off.note_failure(now)
        pauses.append(back_off.until - now)
        assert back_off.holds(now)
        now = back_off.until
    assert pauses[0] == pytest.approx(FIRST_PAUSE_S)
    assert pauses == pytest.approx(sorted(pauses))
    assert pauses[-1] <= LONGEST_PAUSE_S * 1.0001
    back_off.note_failure(now)
    back_off.note_success()
    assert not back_off.holds(now)
    back_off.note_failure(now)
    assert back_off.until - now == pytest.approx(FIRST_PAUSE_S)


@pytest.mark.parametrize(
    "size",
    [0, -1, 1_000_000, MOST_MEMBERS + 1, True, 1.0, "8", None, [1, 2], (), (1,), (2, 1), (0, 3),
     (1, 2, 3), (1, 1_000_000), (False, 2), ("1", "2"), {}, float("nan")],
)  # fmt: skip
def test_sizes_that_cannot_be(size: Any) -> None:
    with pytest.raises(ConfigError, match=r"a pool of .* containers cannot be"):
        check_size(size)
    with pytest.raises(ConfigError):
        Pool(size=size, workspace="none")


def test_sizes() -> None:
    assert check_size(1) == Bounds(1, 1)
    assert check_size(MOST_MEMBERS) == Bounds(1, MOST_MEMBERS)
    assert check_size((3, 9)) == Bounds(3, 9, by_demand=True)


@pytest.mark.parametrize("seconds", [0, -1.0, "x", None, float("nan"), True, 1e300])
@pytest.mark.parametrize("name", ["max_age_s", "idle_s"])
def test_times_that_cannot_be(name: str, seconds: Any) -> None:
    with pytest.raises(ConfigError, match="a duration"):
        Pool(workspace="none", **{name: seconds})
