"""What a supervisor imports, and when: beside the stand-ins of boot.py, and compiled before."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from ocisbx.calls import is_counted
from ocisbx.command import SpawnError, become

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.background.request import Request

    # That of boot.py.
    ImportSmall = Callable[[str], None]

AGAIN = "again"

# What only some need.
CAP = "ocisbx.slots"
SEATS = "ocisbx.background.attaching"
TERMINAL = "ocisbx.backends.terminal"
TRANSCRIPT = "ocisbx.terminal.transcript"
# What only the end needs.
AUDIT = "ocisbx.audit"


def begin_again_if_compiled(paths: list[str]) -> None:
    """Begin again by exec where these modules had to be compiled, which may leave twice as much
    memory in use as to find them compiled; nobody shall have to after that. Of those that only some
    need none is looked at here: where one alone has changed, the first that needs it is larger."""
    if not paths or sys.argv[-1] == AGAIN:
        return
    for name in (CAP, SEATS, TERMINAL, TRANSCRIPT):
        __import__(name)
    with contextlib.suppress(SpawnError):
        become([*sys.orig_argv, AGAIN], os.environ)


def load_for(request: Request, import_small: ImportSmall) -> None:
    """Import what only some need, if this one does."""
    terminal = request.plan.terminal
    needed = {
        CAP: is_counted(request.plan),
        SEATS: terminal or request.keyboard,
        TERMINAL: terminal,
        TRANSCRIPT: request.transcript is not None,
    }
    for name, is_needed in needed.items():
        if is_needed:
            import_small(name)
