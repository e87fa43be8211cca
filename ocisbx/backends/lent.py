"""LentExecution: the only command of a container that another process has started and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.backends.base import Step
from ocisbx.backends.beside import SideExecution

if TYPE_CHECKING:
    import socket


class LentExecution(SideExecution):
    """Implements `backends.base.Execution` for a container whose init waits for its command."""

    def start_alone(self, orders: socket.socket) -> bool:
        """Take over the socket of the init and let it run the command; False: it has ended."""
        self._init.adopt(orders)
        self._count()
        runs = self._init.go(self.stdio, self._command())
        self.stdio.release()
        self._begin()
        self._tell(Step.CREATED)
        return runs
