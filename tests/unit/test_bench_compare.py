"""Two runs beside each other: only what is beyond noise is called a change."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocisbx.bench.compare import Comparison, compare
from ocisbx.errors import ConfigError
from tests.unit.bench_files import header, latency, memory, results, throughput

if TYPE_CHECKING:
    from ocisbx.bench.results import Line

NAMES = ("posix_spawn", "crun", "cold")


def run_of(seed: int, factors: dict[str, float], rounds: int = 60) -> list[Line]:
    """Rounds of log-normal noise, which hits whole rounds too; `factors`: p50 beside spawn."""
    generator = random.Random(seed)  # noqa: S311 -- noise
    columns: dict[str, list[float]] = {name: [] for name in factors}
    for _ in range(rounds):
        busy = generator.lognormvariate(0, 0.2)
        for name, factor in factors.items():
            columns[name].append(busy * factor * generator.lognormvariate(0, 0.1))
    return latency(columns)


def compared(first: list[Line], second: list[Line], least: float = 0.05) -> Comparison:
    with TemporaryDirectory() as place:
        before, after = (
            results(Path(place, f"{number}.jsonl"), header(*NAMES), *lines)
            for number, lines in enumerate((first, second))
        )
        return compare(before, after, least)


def verdicts(found: Comparison) -> dict[str, str]:
    return {one.launcher: one.verdict for one in found.verdicts}


SAME = {"posix_spawn": 1.0, "crun": 5.0, "cold": 6.0}


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_a_run_is_the_same_as_itself(seed: int) -> None:
    lines = run_of(seed, SAME)
    found = compared(lines, lines)
    assert verdicts(found) == {"crun": "same", "cold": "same"}
    assert not found.slower


def test_two_runs_of_the_same_are_the_same_nearly_always() -> None:
    found = [compared(run_of(2 * i, SAME), run_of(2 * i + 1, SAME)) for i in range(20)]
    assert sum(set(verdicts(one).values()) != {"same"} for one in found) <= 2


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.floats(1.4, 20))
def test_what_became_slower_is_told_and_turned_round_is_faster(seed: int, factor: float) -> None:
    before, after = run_of(seed, SAME), run_of(seed + 1, SAME | {"cold": 6 * factor})
    assert verdicts(compared(before, after))["cold"] == "slower"
    assert compared(before, after).slower
    assert verdicts(compared(after, before))["cold"] == "faster"


@settings(max_examples=10, deadline=None)
@given(st.floats(0.1, 10))
def test_a_machine_that_is_slower_altogether_is_no_change(speed: float) -> None:
    scaled = {name: factor * speed for name, factor in SAME.items()}
    assert set(verdicts(compared(run_of(5, SAME), run_of(5, scaled))).values()) == {"same"}


def test_a_change_below_the_least_is_noise_however_sure_it_is() -> None:
    before, after = run_of(1, SAME, 400), run_of(1, SAME | {"cold": 6.28}, 400)
    assert verdicts(compared(before, after))["cold"] == "same"
    assert verdicts(compared(before, after, least=0.01))["cold"] == "slower"


def test_fewer_calls_a_second_are_slower() -> None:
    first = throughput({"posix_spawn": [100, 101, 99, 100], "crun": [50, 51, 50, 49]})
    second = throughput({"posix_spawn": [100, 99, 101, 100], "crun": [25, 26, 25, 24]})
    (verdict,) = compared(first, second).verdicts
    assert (verdict.launcher, verdict.verdict) == ("crun", "slower")
    assert verdict.factor.factor == pytest.approx(2, rel=0.05)


def test_what_only_one_has_is_told(tmp_path: Path) -> None:
    two = {"posix_spawn": [1.0, 1.1], "crun": [2.0, 2.1]}
    first = results(tmp_path / "a", header(*NAMES), *latency(two), memory({"crun": 1}))
    lines = [*latency(two | {"cold": [3.0, 3.0]}), *latency(two, "sh")]
    other_host = {"kernel": "6.2", "cpus": 4}
    second = results(tmp_path / "b", header(*NAMES, host=other_host), *lines, ended=False)
    found = compare(first, second)
    assert [one.launcher for one in found.verdicts] == ["crun"]
    assert "latency true default 1: cold" in found.unmatched
    assert "latency sh default 1: crun" in found.unmatched
    assert "kernel: 6.1 and 6.2" in found.differing
    assert any("did not come to its end" in line for line in found.differing)
    assert found.to_dict()["verdicts"][0]["workload"] == "true"


def test_runs_without_anything_in_common_are_refused(tmp_path: Path) -> None:
    first = results(tmp_path / "a", header(*NAMES), *latency({"posix_spawn": [1.0]}))
    second = results(tmp_path / "b", header(*NAMES), *latency({"posix_spawn": [1.0]}, "sh"))
    with pytest.raises(ConfigError, match="in common"):
        compare(first, second)
