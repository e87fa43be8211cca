"""config.json of a plan, changed: the template is filled with marks, rewritten, and cut again."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ocisbx.plan import SLOTS, Template

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.plan import Plan

MARKS = {slot: f"@@{slot}@@" for slot in SLOTS}
CUT = re.compile("|".join(f'"{mark}"' for mark in MARKS.values()))


def rewritten(plan: Plan, change: Callable[[dict[str, Any]], None]) -> Plan:
    """The plan with `change` made to its config.json; the slots may be moved, or taken out."""
    text = plan.template.fill(
        root=MARKS["root"],
        argv=[MARKS["args"]],
        environment=[MARKS["env"]],
        cgroup=MARKS["cgroup"],
    )
    document = json.loads(text)
    change(document)
    text = json.dumps(document)
    slots = tuple(found.strip('"@') for found in CUT.findall(text))
    return plan._replace(
        template=Template(tuple(CUT.split(text)), slots),
        cgroup=plan.cgroup if "cgroup" in slots else None,
    )
