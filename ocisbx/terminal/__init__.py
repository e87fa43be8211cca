"""A container's terminal: received from its runtime, held, and relayed to a person.

`controller_fd` is our end of it (the field's "master"), `terminal_fd` the payload's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ocisbx.terminal.terminal import Terminal

__all__ = ["Terminal"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module 'ocisbx.terminal' has no attribute {name!r}"
        raise AttributeError(message)
    # A relay needs none of it.
    from ocisbx.terminal.terminal import Terminal  # noqa: PLC0415 -- see above

    return Terminal
