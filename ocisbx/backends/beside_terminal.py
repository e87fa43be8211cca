"""A further command on a terminal: its leader makes one inside and sends us the controlling end."""

from __future__ import annotations

import os
import time

from ocisbx.backends.beside import SideExecution
from ocisbx.backends.endings import Patience
from ocisbx.backends.terminal import OnTerminal
from ocisbx.errors import TerminalError
from ocisbx.terminal.console import is_controller


class SideTerminalExecution(OnTerminal, SideExecution):
    """As SideExecution. The command waits until its terminal has a size.

    A container that does not hand it over in the time in which others have to start has hung.
    """

    # The terminal, by time.monotonic(); None: it is there, or nobody waits for it any more.
    _due_by: float | None = None

    def _set_off(self) -> None:
        # Not before the terminal is there.
        self._patience = Patience(self._call.start_timeout_s)
        self._due_by = time.monotonic() + self._patience.limit_s

    def _moments(self) -> list[float | None]:
        return [*super()._moments(), self._due_by]

    def _advance(self, now: float) -> None:
        if self._due_by is not None and now >= self._due_by:
            more_s = self._patience.renew()
            self._due_by = now + more_s if more_s > 0 else None
            # An end that was begun comes by itself.
            if self._due_by is None and self._ending.reason is None:
                self._refuse(
                    f"nothing came for {self._patience.limit_s:.3g} s: it is stopped, or hangs",
                    "let it go on (SIGCONT; 0 into its cgroup.freeze), or end the container",
                )
        super()._advance(now)

    def _on_terminal(self, descriptors: tuple[int, ...]) -> None:
        has_one = self.terminal.controller_fd >= 0
        if has_one or len(descriptors) != 1 or not is_controller(descriptors[0]):
            for descriptor in descriptors:
                os.close(descriptor)
            self._refuse(
                "what came in its place is not one controlling end",
                "who leads the command was tampered with: end the container",
            )
            return
        self._due_by = None
        self.terminal.attach(descriptors[0])
        self._init.let_start()
        super()._set_off()

    def _refuse(self, why: str, remedy: str) -> None:
        what = "the container did not hand over the terminal"
        self.wrong = TerminalError(what, why=why, remedy=remedy)
        self._hang_up()
