"""Finding: one thing that `doctor` has to say, and what all of them together mean."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ocisbx.errors import EXIT_UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 96


class Severity(StrEnum):
    """blocks: no sandbox can run here; weakens: one runs and holds less; informs: good to know."""

    BLOCKS = "blocks"
    WEAKENS = "weakens"
    INFORMS = "informs"


ORDER = tuple(Severity)
EXIT_CODES: dict[Severity, int] = {
    Severity.BLOCKS: EXIT_UNAVAILABLE,
    Severity.WEAKENS: 1,
    Severity.INFORMS: 0,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """`evidence` is what was seen, in the words of who said it; `remedy` can be pasted.

    The remedy is empty where nothing has to be done, or nothing can be.
    """

    name: str
    severity: Severity
    evidence: str
    consequence: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        """The five fields as text, ready for JSON."""
        return {name: str(value) for name, value in asdict(self).items()}


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """The gravest first; among equals the order in which they were found."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))


def exit_code(findings: Sequence[Finding]) -> int:
    """What `ocisbx doctor` ends with: 0, 1 (something weakens), 69 (no sandbox can run here)."""
    return EXIT_CODES[in_order(findings)[0].severity] if findings else 0


def render(findings: Sequence[Finding]) -> str:
    """A page for a person, the gravest first, closed by one line that sums up."""
    blocks = [_block(finding) for finding in in_order(findings)]
    return "\n\n".join([*blocks, summary(findings)]) + "\n"


def summary(findings: Sequence[Finding]) -> str:
    counts = {severity: sum(f.severity is severity for f in findings) for severity in ORDER}
    verdict = "no sandbox can run here" if counts[Severity.BLOCKS] else "sandboxes run here"
    told = ", ".join(f"{count} {severity}" for severity, count in counts.items() if count)
    return f"{verdict}: {told or 'nothing to report'}"


def _block(finding: Finding) -> str:
    rows = [("seen", finding.evidence), ("means", finding.consequence), ("remedy", finding.remedy)]
    lines = [f"{finding.severity}: {finding.name}"]
    for label, text in rows:
        if not text:
            continue
        # A remedy is to be pasted: its lines stay as they are.
        parts = (
            text.splitlines()
            if label == "remedy"
            else textwrap.wrap(text, WIDTH - 10, break_on_hyphens=False)
        )
        lines += [f"  {label if not at else '':<8}{part}" for at, part in enumerate(parts)]
    return "\n".join(lines)
