"""Quantiles, ratios and their intervals, and what many comparisons together say."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocisbx.bench.statistics import (
    Interval,
    Ratios,
    blocks,
    change,
    holm,
    p99,
    quantile,
    summarize,
)

TIMES = st.lists(st.floats(0.01, 1e4), min_size=1, max_size=40)
SHARES = st.floats(0, 1)


@given(TIMES)
def test_the_median_is_that_of_the_standard_library(values: list[float]) -> None:
    assert quantile(sorted(values), 0.5) == pytest.approx(statistics.median(values))


@given(TIMES.filter(lambda values: len(values) > 1))
def test_quantiles_are_those_of_the_standard_library(values: list[float]) -> None:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    assert [quantile(sorted(values), i / 100) for i in range(1, 100)] == pytest.approx(cuts)


@given(TIMES, SHARES, SHARES)
def test_quantiles_rise_and_stay_among_the_values(
    values: list[float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    found = [quantile(sorted(values), share) for share in (0, low, high, 1)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (min(values), max(values))


@given(TIMES)
def test_a_summary_is_in_order(values: list[float]) -> None:
    found = summarize(values)
    assert found.n == len(values)
    assert found.least <= found.p50 <= found.p90 <= found.p99 == p99(values) <= max(values)


@given(st.integers(1, 200))
def test_a_resample_is_made_of_runs_of_neighbouring_rounds(rounds: int) -> None:
    draws = blocks(rounds, resamples=3)
    length = max(1, round(rounds ** (1 / 3)))
    for draw in draws:
        assert len(draw) == rounds
        assert set(draw) <= set(range(rounds))
        for place, number in enumerate(draw):
            if place % length:
                assert number == (draw[place - 1] + 1) % rounds
    assert draws == blocks(rounds, resamples=3)


@settings(max_examples=15, deadline=None)
@given(TIMES, st.floats(0.1, 100))
def test_what_is_always_so_many_times_as_slow_has_no_doubt(
    values: list[float], factor: float
) -> None:
    found = Ratios(values).of([factor * value for value in values])
    assert found[:3] == pytest.approx((factor,) * 3)
    assert found.spread == pytest.approx(0, abs=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_ratio_has_the_unit_of_neither_side(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 30))
    columns = st.lists(st.floats(0.1, 100), min_size=count, max_size=count)
    base, series, unit = data.draw(columns), data.draw(columns), data.draw(st.floats(0.01, 100))
    first = Ratios(base).of(series)
    scaled = Ratios([unit * value for value in base]).of([unit * value for value in series])
    assert scaled == pytest.approx(first, rel=1e-6, abs=1e-6)
    assert first.low <= first.high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Of 200 runs of 40 rounds with a true ratio of 3, in log-normal noise."""
    generator = random.Random(7)  # noqa: S311 -- noise
    held = 0
    for _ in range(200):
        base = [generator.lognormvariate(0, 0.3) for _ in range(40)]
        series = [3 * generator.lognormvariate(0, 0.3) for _ in range(40)]
        found = Ratios(base).of(series)
        held += found.low <= 3 <= found.high
    assert held >= 175


def test_noise_that_lasts_widens_the_interval() -> None:
    """A disturbance of neighbouring rounds is not taken for as many independent ones."""
    generator = random.Random(3)  # noqa: S311 -- noise
    scattered = [1 + (generator.random() < 0.4) for _ in range(90)]
    lasting = sorted(scattered[:45]) + sorted(scattered[45:], reverse=True)
    base = [1.0] * 90
    mean = statistics.fmean
    widths = []
    for series in (scattered, lasting):
        found = Ratios(base, above=mean).of(series)
        widths.append(found.high - found.low)
    assert widths[1] > 1.3 * widths[0]


def test_a_ratio_wants_every_round() -> None:
    with pytest.raises(ValueError, match="2 rounds beside 3"):
        Ratios([1, 2, 3]).of([1, 2])


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0.001, 1), st.floats(0.001, 1))
def test_a_change_turned_round_is_its_inverse(
    before: float, after: float, one: float, other: float
) -> None:
    sides = Interval(before, 0, 0, one), Interval(after, 0, 0, other)
    forth, back = change(*sides), change(*reversed(sides))
    assert forth.factor == pytest.approx(1 / back.factor)
    assert forth.low == pytest.approx(1 / back.high)
    assert forth.p_value == pytest.approx(back.p_value)
    assert forth.low <= forth.factor <= forth.high
    assert 0 <= forth.p_value <= 1


def test_a_change_without_any_spread_is_certain() -> None:
    same, other = Interval(2, 2, 2, 0), Interval(3, 3, 3, 0)
    assert change(same, same).p_value == 1
    assert change(same, other).p_value == 0


@given(st.dictionaries(st.integers(), st.floats(0, 1)))
def test_holm_lies_between_bonferroni_and_every_one_alone(p_values: dict[int, float]) -> None:
    standing = holm(p_values, level=0.05)
    strict = {name for name, p in p_values.items() if p <= 0.05 / max(1, len(p_values))}
    loose = {name for name, p in p_values.items() if p <= 0.05}
    assert strict <= standing <= loose
    if standing:
        worst = max(p_values[name] for name in standing)
        assert {name for name, p in p_values.items() if p < worst} <= standing


def test_a_difference_of_half_a_spread_is_no_difference() -> None:
    found = change(Interval(1, 0, 0, 0.1), Interval(math.exp(0.05), 0, 0, 0.1))
    assert found.p_value > 0.5
