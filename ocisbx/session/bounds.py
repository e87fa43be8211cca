"""What a session may give to one that it starts: no more than it has itself. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ocisbx.errors import PolicyDenied
from ocisbx.quantities import UNLIMITED

if TYPE_CHECKING:
    from ocisbx.config import Limits

# Where less is less.
NUMBERS = ("memory_bytes", "memory_high_bytes", "swap_bytes", "cpus", "pids")


def limits_within(parent: Limits, child: Limits) -> dict[str, Any]:
    """The fields of a child's limits: its own, and its parent's where it has none of its own.

    Raises:
        PolicyDenied: it asks for more than its parent has.
    """
    found = child.model_dump(exclude_unset=True)
    for name in NUMBERS:
        bound, asked = getattr(parent, name), getattr(child, name)
        if bound is None or bound == UNLIMITED:
            continue
        if asked is None:
            found[name] = bound
        elif asked == UNLIMITED or asked > bound:
            raise PolicyDenied(
                f"limits.{name} of a child session cannot be {asked}",
                why=f"its parent has {bound}",
                remedy="ask for less, or leave it out: then it is the parent's",
            )
    for name in ("cpuset", "io"):
        if name not in found and getattr(parent, name):
            found[name] = parent.model_dump()[name]
    return found


def seconds_within(parent: float | None, child: float | None) -> float | None:
    """How long a child may live, where its parent may live so long. Raises PolicyDenied."""
    if parent is None or (child is not None and child <= parent):
        return child
    if child is None:
        return parent
    raise PolicyDenied(
        f"a child session cannot live for {child:g} s",
        why=f"its parent ends {parent:g} s after its start",
        remedy="a lifetime_s of no more, or none",
    )
