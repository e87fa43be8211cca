"""How a posture looks: for `inspect --posture` and for `run --posture`, which says it on stderr."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from ocisbx.backends.base import Step
from ocisbx.backends.observe import observe_plan, observe_running
from ocisbx.cli.output import printable, say
from ocisbx.errors import OcisbxError
from ocisbx.posture.judge import TIERS, Posture

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.backends.base import Call
    from ocisbx.backends.execution import OciExecution
    from ocisbx.calls import Hold
    from ocisbx.plan import Plan

COLUMNS = ("name", "state", "source", "holds")
WIDTH = 100
# Where what explains a row begins.
DETAIL = 6


def render(posture: Posture, about: dict[str, Any]) -> str:
    """`about` (what it is of) first, then the worst, then the table; one row's `how` and `meaning`
    stand below it."""
    seen = "config.json and the driver's word" + (f": {posture.unseen}" if posture.unseen else "")
    if posture.live is not None:
        seen = f"/proc/{posture.live} (the container's process 1), config.json, the driver's word"
    head = {**about, "seen in": seen, "tier": TIERS[posture.tier]}
    lines = [line for name, value in head.items() for line in _wrapped(name, str(value), 9)]
    lines += [line for text in posture.worst for line in _wrapped("know", text, 9)]
    lines += ["", *_table(posture)]
    return "\n".join(lines) + "\n"


def _table(posture: Posture) -> list[str]:
    cells = [tuple(name.upper() for name in COLUMNS)]
    cells += [tuple(printable(getattr(row, name)) for name in COLUMNS) for row in posture.rows]
    widths = [max(len(line[index]) for line in cells) for index in range(3)]
    indent = sum(widths) + 6
    lines = []
    for number, line in enumerate(cells):
        left = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False))
        lines += _wrapped(left, line[3], indent - 2)
        if number:
            row = posture.rows[number - 1]
            words = ": ".join(filter(None, (row.how, row.meaning)))
            lines += _wrapped("", words, DETAIL - 2) if words else []
    return lines


def _wrapped(left: str, text: str, width: int) -> list[str]:
    """`left` in a column of its own, and the text beside it, in lines that fit."""
    lines = textwrap.wrap(
        printable(text), max(40, WIDTH - width - 2), break_on_hyphens=False, break_long_words=False
    ) or [""]
    return [
        f"{left if index == 0 else '':{width}}  {line}".rstrip() for index, line in enumerate(lines)
    ]


def observed(plan: Plan, call: Call, hold: Hold) -> tuple[Call, Hold]:
    """The call and the hold of a run that says its posture once the container stands, before the
    payload's first instruction; what cannot be read is said too, and fails nothing."""
    held: list[OciExecution] = []

    def take(execution: OciExecution) -> None:
        held.append(execution)
        if hold is not None:
            hold(execution)

    def look(step: Step) -> None:
        if step is not Step.CREATED:
            return
        (execution,) = held
        about = about_plan(plan, execution.id)
        try:
            seen = observe_running(plan, execution.bundle_path, execution.init_pid)
            text = render(seen.posture(), about).rstrip("\n")
        except (OcisbxError, OSError) as error:
            text = printable(f"ocisbx: note: the posture cannot be told: {error}")
        say(text)

    return call._replace(on_step=look), take


def say_plan(plan: Plan, extra: Iterable[str]) -> None:
    """The posture of what would run, on stderr; `extra`: names of this call's own variables."""
    say(render(observe_plan(plan, extra).posture(), about_plan(plan, "a dry run")).rstrip("\n"))


def about_plan(plan: Plan, container_id: str) -> dict[str, str]:
    """What the posture of a run is of."""
    runtime = plan.runtime
    return {"of": container_id, "runtime": f"{runtime.name} {runtime.version} ({runtime.path})"}
