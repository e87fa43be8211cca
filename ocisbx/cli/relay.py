"""Between the caller's terminal and one that somebody else holds, until they part."""

from __future__ import annotations

import os
import select
import time
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ocisbx.background import frames
from ocisbx.capture import ForwardSink
from ocisbx.command import LOOK_S
from ocisbx.terminal.local import STDIN, STDOUT, LocalTerminal

if TYPE_CHECKING:
    from ocisbx.background.attached import Attached
    from ocisbx.terminal.detach import DetachKeys
    from ocisbx.terminal.device import Size

READ_BYTES = 1 << 16
# How long what was shown last may take to be written when who sat there has left.
FAREWELL_S = 1.0


class Parting(Enum):
    """Why it is over: by the keys, because nobody is there any more, with the program."""

    DETACHED = 1
    GONE = 2
    ENDED = 3


class Beside(Protocol):
    """Something else that has to be attended to."""

    def fileno(self) -> int:
        """Readable when there is something to do."""

    def turn(self) -> None:
        """Do it, without waiting."""


class Relay:
    """Between the caller's terminal and one that another process holds."""

    def __init__(
        self, attached: Attached, keys: DetachKeys, *, types: bool, beside: Beside | None = None
    ) -> None:
        """`types`: the keys are passed on; `beside`: who holds the other one, in this process."""
        self.message = ""
        """Why it was over, where that was said."""
        self._attached = attached
        self._keys = keys
        self._types = types
        self._beside = beside
        self._sink = ForwardSink(STDOUT)
        self._local = LocalTerminal(self._follow, types=types, sees=True)
        # Of a signal, which comes in the middle of anything: what it tells is sent in our turn.
        self._size: Size | None = None
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def run(self) -> Parting:
        """Relay until one of them ends. Raises BrokenPipeError: nobody reads what is shown."""
        try:
            with self._local:
                self._local.take()
                while (parting := self._turn()) is None:
                    pass
            # Who left does not wait for a reader that has stopped.
            self._finish(None if parting is Parting.ENDED else FAREWELL_S)
        finally:
            self._sink.close()
            os.close(self._woken)
        return parting

    def _follow(self, size: Size) -> None:
        self._size = size
        os.eventfd_write(self._woken, 1)

    def _resize(self) -> None:
        os.eventfd_read(self._woken)
        size, self._size = self._size, None
        if size is not None:
            self._attached.resize(size)

    def _finish(self, patience_s: float | None) -> None:
        """Show what is left."""
        until = None if patience_s is None else time.monotonic() + patience_s
        while self._sink.pending and (until is None or time.monotonic() < until):
            self._drain(LOOK_S if patience_s is None else min(LOOK_S, patience_s))

    def _turn(self) -> Parting | None:
        poller = select.poll()
        if self._sink.pending:
            # What the terminal does not take yet holds back nothing but itself.
            poller.register(*self._watched_sink())
            if self._attached.events & select.POLLOUT:
                poller.register(self._attached, select.POLLOUT)
        else:
            poller.register(self._attached, self._attached.events)
        poller.register(self._woken, select.POLLIN)
        if self._beside is not None:
            poller.register(self._beside, select.POLLIN)
        if self._types and (self._attached.has_room or self._local.types):
            poller.register(STDIN, select.POLLIN)
        ready = dict(poller.poll(LOOK_S * 1000))
        if self._woken in ready:
            self._resize()
        if self._beside is not None:
            self._beside.turn()
        parting = self._read() if STDIN in ready else None
        self._attached.flush()
        if self._sink.pending:
            self._drain(0)
        elif parting is None and self._attached.fileno() in ready:
            parting = self._show()
        if self._sink.broken:
            raise BrokenPipeError
        return parting

    def _watched_sink(self) -> tuple[int, int]:
        watched = self._sink.watch()
        assert watched is not None
        return watched

    def _drain(self, patience_s: float) -> None:
        poller = select.poll()
        poller.register(*self._watched_sink())
        poller.poll(patience_s * 1000)
        self._sink.flush()

    def _read(self) -> Parting | None:
        """Pass on what is typed."""
        try:
            data = os.read(STDIN, READ_BYTES)
        except OSError:
            # It was hung up.
            data = b""
        if not data:
            self._types = False
            return Parting.GONE if self._local.types else None
        if not self._local.types:
            self._attached.type(data)
            return None
        data, leaves = self._keys.feed(data)
        if self._attached.has_room:
            self._attached.type(data)
        elif data:
            # Read all the same: these may be the keys by which they leave.
            self._write(b"\a")
        if leaves:
            self._attached.leave()
            return Parting.DETACHED
        return None

    def _show(self) -> Parting | None:
        """Pass on what is shown."""
        try:
            frame = self._attached.receive()
        except BlockingIOError:
            return None
        if frame is None:
            return Parting.ENDED
        if frame.kind == frames.SHOWN:
            self._write(frame.data)
        elif frame.kind == frames.LOST:
            # CAN ends an escape sequence that was cut (ECMA-48).
            size = frames.decode_lost(frame.data)
            self._write(b"\x18\r\nocisbx: %d bytes were not shown\r\n" % size)
        elif frame.kind == frames.OVER:
            self.message = frame.data.decode(errors="replace")
        return None

    def _write(self, data: bytes) -> None:
        if not self._sink.pending:
            self._sink.write(memoryview(data))
