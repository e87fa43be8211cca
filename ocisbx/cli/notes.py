"""What does not hold on this host, said once to each user: later calls print the payload's output
and nothing else. `--dry-run`, `--json` and `doctor` tell it every time."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ocisbx.errors import OcisbxError
from ocisbx.places import ensure, find_places
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.plan import Plan

HELD = {
    EnforcementState.ENFORCED: "",
    EnforcementState.PARTIAL: "only partly enforced",
    EnforcementState.UNSUPPORTED: "not enforced",
}
READ_LIMIT_BYTES = 1 << 16


def notes(plan: Plan) -> list[str]:
    """One line for each reason why something does not hold here, and each warning."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, entry in plan.enforcement.items():
        held = HELD[entry.state]
        if held and entry.requested not in (None, False):
            reasons.setdefault((held, entry.how), []).append(name)
    lines = [
        f"ocisbx: note: {', '.join(names)} {held} here: {how}"
        for (held, how), names in reasons.items()
    ]
    return lines + [f"ocisbx: note: {warning}" for warning in plan.warnings]


def unsaid(lines: Iterable[str]) -> list[str]:
    """Those that this user has not been told yet; from now on they are told.

    Where nothing can be remembered (a read-only cache) they are told each time.
    """
    wanted = list(lines)
    if not wanted:
        return []
    cache = find_places().cache
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{ensure(cache)}/said", flags, 0o600)
    except (OSError, OcisbxError):
        return wanted
    try:
        known = os.pread(descriptor, READ_LIMIT_BYTES, 0).decode(errors="replace").splitlines()
        new = [line for line in wanted if line not in known]
        with contextlib.suppress(OSError):
            os.write(descriptor, "".join(f"{line}\n" for line in new).encode())
    finally:
        os.close(descriptor)
    return new
