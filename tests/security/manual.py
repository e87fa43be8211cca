"""ocisbx-security(7): manual.md with the suite's own tables; written by tools/generate."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from tests.security import gvisor
from tests.security.assertions import ROWS
from tests.security.groups import GROUPS
from tests.security.mutants import MUTANTS

if TYPE_CHECKING:
    from tests.security.rows import Row

PAGE = "ocisbx/man/ocisbx-security.7.md"
PROSE = Path(__file__).with_name("manual.md")


def assertions() -> str:
    """What is held, by what, and what shows that the assertion could fail."""
    parts = []
    for (first, last), title in GROUPS.items():
        rows = sorted((row for row in ROWS if first <= row.number <= last), key=lambda r: r.number)
        lines = [f"### {title}", "", "| held | by | shown to fail |", "|---|---|---|"]
        # One line for what stands or falls together: the calls of one refusal, the masks.
        lines += [line(list(alike)) for _, alike in groupby(rows, key=nature)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def nature(row: Row) -> tuple[object, ...]:
    return row.number, row.held_by, row.mutants, row.kernel, row.test


def line(rows: list[Row]) -> str:
    names = "; ".join(row.name for row in rows)
    shown = [f"*{name}*" for name in rows[0].mutants]
    if rows[0].kernel:
        shown.append("the kernel refuses it anyway")
    if rows[0].test:
        shown.append(rows[0].test.rpartition("::")[2])
    return f"| {names} | {rows[0].held_by} | {', '.join(shown)} |".replace("|NEW", "\\|NEW")


def mutants() -> str:
    rows = (f"| *{mutant.name}* | {mutant.takes_away} |" for mutant in MUTANTS.values())
    return "\n".join(["| mutant | takes away |", "|---|---|", *rows])


def on_gvisor() -> str:
    rows = []
    for name, why in sorted({**gvisor.NEW, **gvisor.OLD}.items()):
        which = " (before 2024)" * (name not in gvisor.NEW) + " (since 2024)" * (
            name not in gvisor.OLD
        )
        rows.append(f"| {name}{which} | {why} |")
    return "\n".join(["| assertion | in gVisor |", "|---|---|", *rows])


PARTS = {"assertions": assertions, "mutants": mutants, "gvisor": on_gvisor}


def generate(root: Path) -> dict[Path, str]:
    """The page below `root`."""
    text = PROSE.read_text()
    for name, made in PARTS.items():
        text = text.replace(f"@{name}@", made())
    return {root / PAGE: text}
