"""A further command on a terminal: its leader makes one inside and sends us the controlling end."""

from __future__ import annotations

import os

from ocisbx.backends.beside import SideExecution
from ocisbx.backends.terminal import OnTerminal
from ocisbx.errors import TerminalError
from ocisbx.terminal.console import is_controller


class SideTerminalExecution(OnTerminal, SideExecution):
    """As SideExecution. The command waits until its terminal has a size."""

    def _set_off(self) -> None:
        # Not before the terminal is there.
        return

    def _on_terminal(self, descriptors: tuple[int, ...]) -> None:
        has_one = self.terminal.controller_fd >= 0
        if has_one or len(descriptors) != 1 or not is_controller(descriptors[0]):
            for descriptor in descriptors:
                os.close(descriptor)
            self.wrong = TerminalError(
                "the container did not hand over the terminal",
                why="what came in its place is not one controlling end",
                remedy="who leads the command was tampered with: end the container",
            )
            self._hang_up()
            return
        self.terminal.attach(descriptors[0])
        self._init.let_start()
        super()._set_off()
