"""The shape of a judgement, and what all judgements share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ocisbx.posture.facts import Facts, Subject

State = Literal["enforced", "partial", "unsupported", "off"]
Source = Literal["live", "spec", "declared"]

LISTED = 6


class Row(NamedTuple):
    """One protection, for a person who decides whether to trust it.

    `source`: who says so: /proc of the running container, its config.json, or what the driver
    declared. `warning`: how it is weaker than isolation level restricted, "" where it is not.
    `mismatch`: what was asked for, or declared, and does not hold; "" where all agree.
    """

    name: str
    state: State
    source: Source
    holds: str
    how: str
    meaning: str
    warning: str = ""
    mismatch: str = ""


Judge = "Callable[[Subject], Row | None]"


def source_of(subject: Subject, field: str) -> Source:
    """Who tells the effective value of this field of Facts."""
    return (
        "live" if subject.live is not None and getattr(subject.live, field) is not None else "spec"
    )


def weaker_live(
    subject: Subject, field: str, weaker: Callable[[Facts, Facts], object], words: str
) -> str:
    """`words` when the container lacks what config.json claims; `weaker(spec, live)` compares."""
    live = subject.live
    if live is None or getattr(live, field) is None or getattr(subject.spec, field) is None:
        return ""
    return words if weaker(subject.spec, live) else ""


def listed(names: Iterable[str], limit: int = LISTED) -> str:
    """`a, b, c and 4 more`; `none` where there is nothing."""
    all_names = list(names)
    shown = all_names[:limit]
    rest = len(all_names) - len(shown)
    return (", ".join(shown) + (f" and {rest} more" if rest else "")) or "none"


def size(count: float) -> str:
    """`512 MiB`: binary units, whole where they are."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.0f} bytes"
