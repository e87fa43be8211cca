"""Our end of the socket to a container's init (ocisbx-init(7)), and the init itself."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import weakref
from typing import TYPE_CHECKING, Any

from ocisbx.init import protocol, wire

if TYPE_CHECKING:
    from ocisbx.backends.stdio import PayloadStdio

    Pair = tuple[socket.socket, socket.socket]


_channels: weakref.WeakSet[InitChannel] = weakref.WeakSet()


class InitChannel:
    """Orders to the init, and its reports; silent where nobody is there any more.

    A process that was forked from its driver has none of them: while it held a copy the init would
    not hear the driver's end.
    """

    def __init__(self) -> None:
        _channels.add(self)
        # Process 1 of the container, as we number it; 0 before it is there, and where none is told.
        self.pid = 0
        self._pidfd = -1
        self._socket: socket.socket | None = None
        self._orders: socket.socket | None = None
        self._going = False
        # What it can, and whether it was told to end when it has reported.
        self.features = 0
        self._ends = False
        # Signals for a payload that has not been started yet: it gets them as soon as it is.
        self._held: list[tuple[int, protocol.Target]] = []

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def handle(self) -> int:
        """A pidfd of `pid`; negative where there is none."""
        return self._pidfd

    def fileno(self) -> int:
        assert self._socket is not None
        return self._socket.fileno()

    def connect(self, pair: Pair | None = None) -> socket.socket:
        """Open it, by this pair of `wire.report_socketpair` or one of its own; what is returned is
        the init's end."""
        ours, theirs = wire.report_socketpair() if pair is None else pair
        self._socket = ours
        ours.settimeout(0)
        return theirs

    def adopt(self, ours: socket.socket) -> None:
        """Go on with one that somebody else has opened; the init has said there that it waits."""
        self._socket = ours
        ours.settimeout(0)

    def receive(self) -> wire.Received | None:
        """The next report; None: the other end was closed.

        Raises:
            BlockingIOError: there is none now.
        """
        assert self._socket is not None
        try:
            return wire.receive(self._socket)
        except ConnectionResetError:
            return None

    def meet(self, pid: int) -> None:
        """The init has said that it is there; `pid` 0: in a pid namespace that we do not see."""
        self.pid = max(0, pid)
        if pid > 0:
            with contextlib.suppress(ProcessLookupError):
                self._pidfd = os.pidfd_open(pid)

    def go(
        self,
        stdio: PayloadStdio,
        command: wire.Command | None = None,
        *,
        ends: bool = False,
    ) -> bool:
        """Let it start its payload, or this command, with these descriptors; False: it is not
        there any more. `ends`: with the payload's report it ends by itself, if it can."""
        assert self._socket is not None
        # That of a bundle that is kept may be an older one.
        ends = ends and bool(self.features & protocol.FEATURES)
        given: Any = {
            "stdin": stdio.stdin,
            "stdout": stdio.stdout,
            "stderr": stdio.stderr,
            "combine": stdio.combines,
        }
        try:
            if command is None:
                wire.send_go(self._socket, **given, terminal=stdio.is_terminal, ends=ends)
            else:
                wire.send_run(self._socket, command, **given)
        except (BrokenPipeError, ConnectionResetError):
            return False
        self._ends = ends
        self.started()
        return True

    def resize(self, rows: int, columns: int) -> None:
        """Of a terminal that is relayed."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                wire.send_resize(self._socket, rows, columns)

    def let_start(self) -> None:
        """The command has its terminal."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                wire.send_go(self._socket, terminal=True)

    def started(self) -> None:
        """It has been told: signals that came before are sent now."""
        self._going = True
        held, self._held = self._held, []
        for number, target in held:
            self.send(number, target)

    def send(self, number: int, target: protocol.Target) -> None:
        """Have it signal the payload, or all that runs inside."""
        if self._socket is None:
            return
        if not self._going:
            self._held.append((number, target))
            return
        with contextlib.suppress(OSError):
            wire.send_signal(self._socket, number, target)

    def end(self) -> None:
        """The go-ahead for its end, once its report was received."""
        if self._socket is not None and not self._ends:
            try:
                wire.send_end(self._socket)
            except OSError:
                return

    def share(self) -> int:
        """Where others may order further commands (`wire.send_run` with a channel).

        Raises:
            OSError: the init is gone; no descriptor is left.
        """
        assert self._socket is not None
        if self._orders is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, contextlib.ExitStack() as unused:
                unused.enter_context(ours)
                ours.settimeout(0)
                wire.send_listen(self._socket, theirs.fileno())
                unused.pop_all()
            self._orders = ours
        return self._orders.fileno()

    def end_sending(self) -> None:
        """Hang up as far as the other end can tell; its own end is still heard."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """The kernel ends a pid namespace with its process 1 (pid_namespaces(7))."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def hang_up(self) -> bool:
        """Close the socket: an init that still lives takes it as the driver's end, and ends. False:
        it was closed before."""
        if self._socket is None:
            return False
        self._socket.close()
        self._socket = None
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        return True

    def close(self) -> None:
        self.hang_up()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _after_fork() -> None:
    for channel in list(_channels):
        channel.close()


os.register_at_fork(after_in_child=_after_fork)
