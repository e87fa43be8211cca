"""A further command on a terminal that cannot leave its kernel: its leader passes on the bytes.

gVisor sends out no descriptor of its own. What is typed and shown goes through a socket pair, the
size over the command's channel; nobody outside can ask for the terminal's modes.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from ocisbx.backends.beside import SideExecution
from ocisbx.backends.terminal import OnTerminal, TerminalFeeder, TerminalStdio
from ocisbx.terminal.device import DEFAULT_SIZE, Size

if TYPE_CHECKING:
    from ocisbx.backends.base import Call

# What a terminal takes for the end of a file unless it is told otherwise (termios(3), VEOF).
END_OF_FILE = b"\x04"


class RelayedFeeder(TerminalFeeder):
    """Types through the socket."""

    def _hides_input(self, fd: int) -> bool:
        # Nobody here can ask: so all that is typed may be a password.
        del fd
        return True

    def _end_of_file(self) -> bytes:
        return END_OF_FILE


class RelayedStdio(TerminalStdio):
    """The driver's end of the socket in place of a controlling end."""

    def _open(self, call: Call, directory: str, prefix: str) -> None:
        super()._open(call, directory, prefix)
        ours, theirs = socket.socketpair()
        self.stdin = theirs.detach()
        self.attach(ours.detach())

    def _feed(self, source: bytes | int) -> RelayedFeeder:
        return RelayedFeeder(os.dup(self.controller_fd), source, self._call.recorder)

    def _set_first_size(self) -> None:
        # Over the channel, when there is one.
        return


class SideRelayedExecution(OnTerminal, SideExecution):
    """As SideExecution."""

    def _set_off(self) -> None:
        self._init.resize(*(self._call.size or DEFAULT_SIZE))
        self._init.let_start()
        super()._set_off()

    def _put_size(self, size: Size) -> None:
        self._init.resize(*size)
