"""Two runs beside each other: what changed beyond noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.bench.launchers import REFERENCE
from ocisbx.bench.report import rates
from ocisbx.bench.statistics import Ratios, change, holm
from ocisbx.errors import ConfigError

if TYPE_CHECKING:
    from ocisbx.bench.results import Key, Results
    from ocisbx.bench.statistics import Change

# Smaller changes are called noise whatever the interval says: a run does not know how runs of the
# same thing differ.
LEAST_CHANGE = 0.05
# Facts of the host that make even ratios hard to compare.
FACTS = ("kernel", "machine", "cpu", "cpus", "python", "user")


class Verdict(NamedTuple):
    """One launcher in one section. `factor`: how many times as slow it is in the second run,
    beside the reference of each run."""

    section: Key
    launcher: str
    before: float
    after: float
    factor: Change
    verdict: str


class Comparison(NamedTuple):
    verdicts: list[Verdict]
    # What differs between the runs besides the numbers, in words.
    differing: list[str]
    # Sections and launchers that only one of them has.
    unmatched: list[str]

    @property
    def slower(self) -> bool:
        return any(one.verdict == "slower" for one in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdicts": [
                {
                    **dict(
                        zip(
                            ("part", "workload", "variant", "concurrency"), one.section, strict=True
                        )
                    ),
                    "launcher": one.launcher,
                    "before": round(one.before, 4),
                    "after": round(one.after, 4),
                    "factor": round(one.factor.factor, 4),
                    "low": round(one.factor.low, 4),
                    "high": round(one.factor.high, 4),
                    "verdict": one.verdict,
                }
                for one in self.verdicts
            ],
            "differing": self.differing,
            "unmatched": self.unmatched,
        }


def compare(first: Results, second: Results, least: float = LEAST_CHANGE) -> Comparison:
    """Raises ConfigError: they have nothing in common."""
    changes: dict[tuple[Key, str], tuple[float, float, Change]] = {}
    unmatched = []
    for key in dict.fromkeys([*first.sections, *second.sections]):
        if key[0] == "memory":
            continue
        sides = [set(one.launchers_of(key)) for one in (first, second)]
        unmatched += [
            f"{' '.join(map(str, key))}: {title}" for title in sorted(sides[0] ^ sides[1])
        ]
        common = [title for title in first.launchers_of(key) if title in sides[1]]
        if not common:
            continue
        for title, found in _changes(first, second, key, common).items():
            changes[key, title] = found
    if not changes:
        raise ConfigError(
            f"{first.path} and {second.path} have no launcher and workload in common",
            remedy="measure the same with the same options",
        )
    standing = holm({name: found[2].p_value for name, found in changes.items()})
    verdicts = [
        Verdict(
            key, title, before, after, factor, _verdict(factor, least, (key, title) in standing)
        )
        for (key, title), (before, after, factor) in changes.items()
    ]
    return Comparison(verdicts, _differing(first, second), unmatched)


def _changes(
    first: Results, second: Results, key: Key, titles: list[str]
) -> dict[str, tuple[float, float, Change]]:
    columns = [_columns(one, key, titles) for one in (first, second)]
    ratios = [Ratios(found[REFERENCE]) for found in columns]
    changed = {}
    for title in titles:
        if title == REFERENCE:
            continue
        before, after = (side.of(found[title]) for side, found in zip(ratios, columns, strict=True))
        changed[title] = (before.value, after.value, change(before, after))
    return changed


def _columns(results: Results, key: Key, titles: list[str]) -> dict[str, list[float]]:
    """Time for each call: of a batch, the mean."""
    if key[0] == "throughput":
        return {title: [1 / rate for rate in rates(results, key, title)] for title in titles}
    found = {title: results.column(key, "wall_ms", title) for title in titles}
    return {title: column for title, column in found.items() if column is not None}


def _verdict(factor: Change, least: float, stands: bool) -> str:  # noqa: FBT001 -- a fact
    if not stands or 1 / (1 + least) < factor.factor < 1 + least:
        return "same"
    return "slower" if factor.factor > 1 else "faster"


def _differing(first: Results, second: Results) -> list[str]:
    sides = (first.header, second.header)
    found = [
        f"{name}: {one} and {other}"
        for name in FACTS
        if (one := sides[0].host.get(name)) != (other := sides[1].host.get(name))
    ]
    versions = [{one.title: (one.version, one.words) for one in side.launchers} for side in sides]
    found += [
        f"{title}: another version or configuration"
        for title in versions[0].keys() & versions[1].keys()
        if versions[0][title] != versions[1][title]
    ]
    found += [f"{one.path} did not come to its end" for one in (first, second) if not one.complete]
    return sorted(found)
