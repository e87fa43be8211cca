"""Which runtime runs it: the caller's list in order, or the fastest sound one."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from ocisbx.errors import RuntimeMissing
from ocisbx.quirks import AUTO_ORDER, KNOWN_NAMES, parse_version

if TYPE_CHECKING:
    from ocisbx.host import Host, RuntimeBinary

INSTALL = "as an administrator: apt-get install crun (or runc); `ocisbx doctor` tells more"
USE_ANOTHER = "--runtime auto takes the best of these; `ocisbx features` tells more about each"


def select_runtime(names: tuple[str, ...], host: Host) -> RuntimeBinary:
    """The first name of the list that this host has; of several binaries the newest.

    Raises:
        RuntimeMissing: none of them is here.
    """
    wanted = names or ("auto",)
    for name in wanted:
        candidates = _candidates(name, host)
        if candidates:
            return candidates[0]
    found = ", ".join(f"{r.name} {r.version} ({r.path})" for r in host.runtimes) or "none"
    raise RuntimeMissing(
        f"no usable runtime: {', '.join(wanted)} asked for",
        why=f"found: {found}",
        remedy=USE_ANOTHER if any(r.name in AUTO_ORDER for r in host.runtimes) else INSTALL,
    )


def _candidates(name: str, host: Host) -> list[RuntimeBinary]:
    if name.startswith("/"):
        return [r for r in host.runtimes if r.path == posixpath.normpath(name)]
    order = AUTO_ORDER if name in ("auto", "strongest") else (name,)
    if any(kind not in KNOWN_NAMES for kind in order):
        return []
    known = [r for r in host.runtimes if r.name in order]
    return sorted(
        known,
        key=lambda r: (order.index(r.name), [-part for part in parse_version(r.version)]),
    )
