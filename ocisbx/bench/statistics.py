"""What is made of the samples: quantiles, and how sure a ratio is.

A round is one call of every launcher, in random order. What disturbed a round disturbed all sides
of it, and rounds beside each other are alike, so the bootstrap draws runs of neighbouring rounds
(a moving-block bootstrap, Künsch 1989), whole: each side of a ratio sees the same ones.
"""

from __future__ import annotations

import math
import random
from statistics import NormalDist, fmean, median, stdev
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Statistic = Callable[[Sequence[float]], float]

T = TypeVar("T")

RESAMPLES = 1000
CONFIDENCE = 0.95
SEED = 1


class Summary(NamedTuple):
    """The distribution of a series."""

    n: int
    p50: float
    p90: float
    p99: float
    least: float


class Interval(NamedTuple):
    """A value with the interval that holds it with CONFIDENCE; `spread`: the standard deviation
    of its logarithm over the resamples."""

    value: float
    low: float
    high: float
    spread: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values, between two of them by their distances (Hyndman and Fan's
    definition 7, as in numpy and R)."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def summarize(values: Sequence[float]) -> Summary:
    """`values` must not be empty."""
    ordered = sorted(values)
    p50, p90, last = (quantile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Summary(len(ordered), p50, p90, last, ordered[0])


def p99(values: Sequence[float]) -> float:
    return quantile(sorted(values), 0.99)


def blocks(rounds: int, resamples: int = RESAMPLES, seed: int = SEED) -> list[list[int]]:
    """The rounds of each resample: blocks of about the cube root of their number, drawn anywhere
    (past the end it goes on at the beginning), as many as there are rounds."""
    generator = random.Random(seed)  # noqa: S311 -- a repeatable draw, not a secret
    length = max(1, round(rounds ** (1 / 3)))
    drawn = []
    for _ in range(resamples):
        starts = (generator.randrange(rounds) for _ in range(math.ceil(rounds / length)))
        wrapped = [(start + step) % rounds for start in starts for step in range(length)]
        drawn.append(wrapped[:rounds])
    return drawn


class Ratios:
    """Ratios to one series, `base`, with the same resamples for all."""

    def __init__(
        self, base: Sequence[float], above: Statistic = median, below: Statistic = median
    ) -> None:
        self._base = base
        self._above = above
        self._draws = blocks(len(base))
        self._denominator = below(base)
        self._denominators = [below([base[i] for i in draw]) for draw in self._draws]

    def of(self, series: Sequence[float]) -> Interval:
        """`above(series) / below(base)`; `series` has a value of every round of the base."""
        if len(series) != len(self._base):
            message = f"{len(series)} rounds beside {len(self._base)}"
            raise ValueError(message)
        ratios = sorted(
            self._above([series[i] for i in draw]) / denominator
            for draw, denominator in zip(self._draws, self._denominators, strict=True)
        )
        tail = (1 - CONFIDENCE) / 2
        logs = [math.log(ratio) for ratio in ratios]
        return Interval(
            value=self._above(series) / self._denominator,
            low=quantile(ratios, tail),
            high=quantile(ratios, 1 - tail),
            spread=stdev(logs, fmean(logs)),
        )


class Change(NamedTuple):
    """How a ratio changed from one run to another: `factor` (1: not), with its interval, and the
    chance of at least such a difference between two runs of the same."""

    factor: float
    low: float
    high: float
    p_value: float


def change(before: Interval, after: Interval) -> Change:
    """The logarithms of two medians' ratios are close to normal, and the runs independent."""
    difference = math.log(after.value / before.value)
    spread = math.hypot(before.spread, after.spread)
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * spread
    if spread == 0:
        p_value = 1.0 if difference == 0 else 0.0
    else:
        p_value = 2 * NormalDist().cdf(-abs(difference) / spread)
    low, high = (math.exp(difference + sign * reach) for sign in (-1, 1))
    return Change(math.exp(difference), low, high, p_value)


def holm(p_values: Mapping[T, float], level: float = 1 - CONFIDENCE) -> set[T]:
    """Those that stand at `level` when all are looked at together (Holm 1979): of many comparisons
    some differ by chance."""
    standing: set[T] = set()
    ordered = sorted(p_values, key=lambda name: p_values[name])
    for place, name in enumerate(ordered):
        if p_values[name] > level / (len(ordered) - place):
            break
        standing.add(name)
    return standing
