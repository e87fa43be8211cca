"""Programs that have a runtime's name and are none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ocisbx.probe.runtimes import find_runtimes, search_directories
from ocisbx.quirks import KNOWN_NAMES

if TYPE_CHECKING:
    from ocisbx.host import Host


def strangers(host: Host) -> tuple[tuple[str, str], ...]:
    """(path, words) of programs that have a runtime's name and were not recognised as one."""
    known = {os.path.realpath(runtime.path) for runtime in host.runtimes}
    found = []
    for path in (f"{where}/{name}" for where in search_directories() for name in KNOWN_NAMES):
        real = os.path.realpath(path)
        if real in known or not os.access(path, os.X_OK):
            continue
        known.add(real)
        asked = find_runtimes((path,))[0]
        if asked.trouble:
            found.append((path, asked.trouble))
    return tuple(found)
