"""What other threads, signal handlers and callbacks want of a payload's loop."""

from __future__ import annotations

import os
from _thread import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Wishes:
    """A queue of actions with a descriptor that polls readable while there are any."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wished: list[Callable[[], None]] = []
        # A wish that comes while the number is being closed would be written to whatever has it
        # next. Reentrant: a signal handler may wish in the middle of either.
        self._closing = RLock()

    def add(self, action: Callable[[], None]) -> None:
        """Let the loop's thread do it; from any thread, silent once closed."""
        self._wished.append(action)
        with self._closing:
            if self.descriptor >= 0:
                os.eventfd_write(self.descriptor, 1)

    def take(self) -> None:
        """Do all of them; for the loop."""
        os.eventfd_read(self.descriptor)
        while self._wished:
            self._wished.pop(0)()

    def close(self) -> None:
        with self._closing:
            descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
