"""A payload on a terminal: the runtime makes it and sends us its controlling end, which is then the
payload's stdin, stdout and stderr at once.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from ocisbx.backends.driven import Driven
from ocisbx.backends.execution import OciExecution
from ocisbx.backends.stdio import PayloadStdio, make_sink
from ocisbx.capture import InputFeeder, OutputStream
from ocisbx.errors import TerminalError
from ocisbx.init import protocol
from ocisbx.outcome import Failure, Reason, StartFailure
from ocisbx.result import Captured
from ocisbx.runtime.log import error_words
from ocisbx.terminal.console import ConsoleSocket
from ocisbx.terminal.device import (
    DEFAULT_SIZE,
    Size,
    get_modes,
    read_some,
    set_size,
    write_some,
)

if TYPE_CHECKING:
    from ocisbx.backends.base import Call
    from ocisbx.backends.driven import Watched
    from ocisbx.capture import Sink
    from ocisbx.result import ResourceUsage
    from ocisbx.terminal.transcript import Recorder

# After the payload's end: more than a terminal can hold (n_tty.c 4 KiB, its flip buffers 64 KiB).
DRAIN_BYTES = 1 << 20


class TerminalStream(OutputStream):
    """What a payload shows; the end is that nobody has its terminal open."""

    recorder: Recorder | None = None

    def drain(self) -> None:
        """Everything that the terminal holds: who wrote there is dead, so it is bounded."""
        goal_bytes = self.total_bytes + DRAIN_BYTES
        while True:
            before_bytes = self.total_bytes
            self.pump()
            if self.total_bytes == before_bytes or before_bytes >= goal_bytes:
                return

    def _read(self, fd: int) -> memoryview:
        data = read_some(fd)
        if data is None:
            raise BlockingIOError
        if self.recorder is not None:
            self.recorder.shown(data)
        return memoryview(data)


class TerminalFeeder(InputFeeder):
    """Types what the caller gives; at its end, what the terminal takes for the end of a file."""

    def __init__(self, fd: int, source: bytes | int, recorder: Recorder | None) -> None:
        """As InputFeeder; a source that is a terminal types that itself."""
        self._recorder = recorder
        self._last = b"\n"
        self._ended = isinstance(source, int) and os.isatty(source)
        super().__init__(fd, source)

    def _put(self, fd: int, data: memoryview) -> int:
        # Before: what is typed may change it.
        hidden = self._recorder is not None and self._hides_input(fd)
        written = write_some(fd, data)
        if written is None:
            raise BrokenPipeError
        if self._recorder is not None:
            self._recorder.typed(data[:written], hidden=hidden)
        if data and not written:
            raise BlockingIOError
        self._last = bytes(data[:written])[-1:] or self._last
        return written

    def _hides_input(self, fd: int) -> bool:
        """Whether what is typed now is not shown, a password."""
        return get_modes(fd).hides_input

    def _end(self) -> None:
        if self._ended or self._fd is None:
            self.close()
            return
        self._ended = True
        # A first one sends a line that is not ended; the next is the end (termios(3), VEOF).
        end = self._end_of_file()
        self._rest = memoryview(end if self._last == b"\n" else end * 2)

    def _end_of_file(self) -> bytes:
        assert self._fd is not None
        return get_modes(self._fd).end_of_file


class TerminalStdio(PayloadStdio):
    """A terminal in place of pipes; there is none before the runtime has sent it."""

    is_terminal = True
    controller_fd = -1
    shown_bytes = 0
    _sink: Sink | None = None

    def _open(self, call: Call, directory: str, prefix: str) -> None:
        self._call = call
        self._sink = (
            None
            if call.holds_terminal
            else make_sink(call, call.stdout, directory, f"{prefix}stdout")
        )

    def attach(self, controller_fd: int) -> None:
        """The terminal is there; takes ownership.

        Raises:
            OcisbxError: the caller's input is not open.
        """
        self.controller_fd = controller_fd
        os.set_blocking(controller_fd, False)
        self._set_first_size()
        if self._sink is None:
            return
        sink, self._sink = self._sink, None
        stream = TerminalStream(
            "stdout",
            os.dup(controller_fd),
            self._cap_bytes,
            sink,
            on_data=self._call.on_stdout,
            on_limit=self._on_limit,
        )
        stream.recorder = self._call.recorder
        self.streams.append(stream)
        if self._call.stdin is not None:
            self.feeder = self._feed(self._call.stdin)

    def _feed(self, source: bytes | int) -> TerminalFeeder:
        return TerminalFeeder(os.dup(self.controller_fd), source, self._call.recorder)

    def _set_first_size(self) -> None:
        set_size(self.controller_fd, Size(*(self._call.size or DEFAULT_SIZE)))

    def count(self, size: int) -> bool:
        """So many bytes more were read by a caller that holds the terminal; whether that is more
        than may be."""
        self.shown_bytes += size
        return self.shown_bytes > self._cap_bytes and self._on_limit is not None

    def finish(self, *, keep: bool) -> tuple[Captured, Captured]:
        """As PayloadStdio's; of what a caller has read by itself only how much it was."""
        if not self._call.holds_terminal:
            return super().finish(keep=keep)
        self.close()
        return Captured(total_bytes=self.shown_bytes), Captured()

    def close(self) -> None:
        """As PayloadStdio's."""
        super().close()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()
        descriptor, self.controller_fd = self.controller_fd, -1
        if descriptor >= 0:
            os.close(descriptor)


class OnTerminal(Driven):
    """What executions have in common whose stdio is a terminal."""

    @property
    def terminal(self) -> TerminalStdio:
        """Its stdio."""
        assert isinstance(self.stdio, TerminalStdio)
        return self.stdio

    def wait_started(self) -> None:
        """Drive it until its payload runs, or never will."""
        while self.verdict is None and not self._started:
            self._turn(None)

    @property
    def due_at(self) -> float:
        """When it has to be attended to, whatever is heard until then (time.monotonic())."""
        return min((at for at in self._moments() if at is not None), default=float("inf"))

    def end_output(self) -> None:
        """More was shown than may be; from any thread."""
        self._wishes.add(lambda: self.end_now(Reason.OUTPUT))

    def resize(self, size: Size) -> None:
        """From any thread, as long as the terminal is there."""
        self._wishes.add(lambda: self._set_size(size, self._call.recorder))

    def nudge(self, size: Size) -> None:
        """As `resize`, for a moment: no recorder is told."""
        self._wishes.add(lambda: self._set_size(size, None))

    def _set_size(self, size: Size, recorder: Recorder | None) -> None:
        if self.terminal.controller_fd >= 0 and self.verdict is None:
            self._put_size(size)
            if recorder is not None:
                recorder.resized(size)

    def _put_size(self, size: Size) -> None:
        set_size(self.terminal.controller_fd, size)


class TerminalExecution(OnTerminal, OciExecution):
    """As OciExecution, for a payload on a terminal.

    A runtime that detaches has ended by then: the container's end is that of its init.
    """

    _console: ConsoleSocket | None = None
    _terminal_wrong = ""

    def start(self) -> None:
        """As OciExecution's. Raises TerminalError: there is no place for the console socket."""
        self._console = ConsoleSocket(self._bundle.path)
        super().start()

    def close(self) -> None:
        """As OciExecution's."""
        super().close()
        self._close_console()

    def usage(self) -> ResourceUsage:
        """As OciExecution's."""
        told = super().usage()
        if not self._detaches or self._child is None or self._child.status is None:
            return told
        # It has not waited for the payload, whose time is not in its own.
        return told._replace(runtime_cpu_s=self._child.status.cpu_s)

    @property
    def _detaches(self) -> bool:
        return self._client.quirks.terminal_detaches

    @property
    def _console_address(self) -> str | None:
        if self._console is None:
            return None
        # Of a user namespace of its own, as the cell's, it may not look at our descriptors.
        long = self._client.quirks.connects_to_long_paths
        return self._console.path if long else self._console.address

    @property
    def _runtime_is_gone(self) -> bool:
        assert self._child is not None
        status = self._child.status
        return status is not None and not (self._detaches and status.ok)

    def _watched(self) -> Watched:
        found = super()._watched()
        listening = [] if self._console is None else self._console.descriptors()
        return found | dict.fromkeys(listening, (select.POLLIN, self._take_console))

    def _take_console(self) -> None:
        # The init may have said in the same turn that it is there.
        if self._console is None:
            return
        try:
            self._console.take(self.runtime_pid)
        except TerminalError as error:
            self._refuse(error)

    def _on_ready(self, pid: int) -> None:
        assert self._console is not None
        try:
            self.terminal.attach(self._console.finish(self.runtime_pid))
        except TerminalError as error:
            self._init.meet(pid)
            self._refuse(error)
            return
        self._close_console()
        super()._on_ready(pid)

    def _refuse(self, error: TerminalError) -> None:
        self._terminal_wrong = str(error)
        self._close_console()
        self._give_up()

    def _close_console(self) -> None:
        console, self._console = self._console, None
        if console is not None:
            console.close()

    def _conclude(self) -> None:
        super()._conclude()
        if not isinstance(self.verdict, Failure):
            return
        report = self._report
        if isinstance(report, StartFailure) and report.stage == protocol.Stage.TERMINAL:
            self.failure = TerminalError
        if self.terminal.controller_fd >= 0 and not self._terminal_wrong:
            return
        self.failure = TerminalError
        words = error_words(
            self._bundle.log, self._printed, cause_first=self._client.quirks.cause_first
        )
        why = "; ".join(filter(None, (self._terminal_wrong, self._given_up, words)))
        self.verdict = Failure(
            "the runtime did not hand over the terminal", why or self.verdict.why
        )
