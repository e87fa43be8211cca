"""One output stream of a payload: the read end of its pipe, counted, capped, and passed on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
from typing import TYPE_CHECKING

from ocisbx.capture.sinks import NullSink, Sink
from ocisbx.errors import OcisbxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.result import Captured

# 256 KiB measured best (benchmarks/relay.py): at 64 KiB every buffer costs a switch between writer
# and relay, at 1 MiB the bytes have left the L2 cache before they are written on.
PIPE_BYTES = 256 * 1024
# pipe(7): a new pipe's capacity, 16 pages.
NEW_PIPE_BYTES = 64 * 1024


def grow_pipe(fd: int) -> None:
    """Enlarge a pipe to PIPE_BYTES where the kernel can and allows it (F_SETPIPE_SZ, pipe(7)).

    EPERM: the user's pipes hold more pages than pipe-user-pages-soft; the pipe works as it is.
    """
    command = getattr(fcntl, "F_SETPIPE_SZ", None)
    if command is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, command, PIPE_BYTES)


class OutputStream:
    """Owns the read end of a pipe and hands what arrives to a sink and a callback.

    Exactly the first `cap_bytes` are kept; what comes beyond is read (the payload never stalls
    on us) and counted in `total_bytes`. `limit_hit` turns True with the first byte beyond the cap.
    """

    def __init__(
        self,
        name: str,
        fd: int,
        cap_bytes: int,
        sink: Sink,
        *,
        on_data: Callable[[bytes], None] | None = None,
        on_limit: Callable[[], None] | None = None,
    ) -> None:
        """Takes ownership of `fd` and `sink`.

        `on_data` gets the bytes within the cap, as they arrive; `on_limit` is called once, when
        the first byte beyond the cap was read. What a callback raises comes out of `pump()`; the
        bytes are in the sink by then, the counters are right, and pumping can go on.
        """
        self.name = name
        self.cap_bytes = cap_bytes
        self.total_bytes = 0
        self.kept_bytes = 0
        self.limit_hit = False
        self._fd: int | None = fd
        self._sink = sink
        self._on_data = on_data
        self._on_limit = on_limit
        # Made for streams that fill their pipe; to clear it would cost the others more than all
        # that they write.
        self._buffer: memoryview | None = None
        # Safe: this open file description is ours alone, the payload has the other end's.
        os.set_blocking(fd, False)

    @property
    def closed(self) -> bool:
        """Whether all is done: the pipe is at its end and the sink has nothing pending."""
        return self._fd is None and not self._sink.pending

    @property
    def truncated(self) -> bool:
        return self.total_bytes > self.kept_bytes

    def fileno(self) -> int:
        """The pipe's read end, -1 after its end. To poll, use `watch()`."""
        return -1 if self._fd is None else self._fd

    def watch(self) -> tuple[int, int] | None:
        """The descriptor and poll mask to wait for now; None: nothing, it is `closed`.

        While the caller's own stdout cannot take more, that is what is waited for, and the
        payload's pipe fills up: back-pressure as in a plain pipeline.
        """
        if self._sink.pending:
            return self._sink.watch()
        return None if self._fd is None else (self._fd, select.POLLIN)

    def pump(self) -> None:
        """Move what is ready, at most PIPE_BYTES; never blocks; harmless when nothing is ready.

        Raises OcisbxError, once, when the sink cannot take the bytes; from then on the stream
        only counts. Raises what a callback raises.
        """
        if self._sink.pending and not self._pass_on(self._sink.flush):
            return
        if self._fd is None:
            return
        try:
            data = self._read(self._fd)
        except BlockingIOError:
            return
        if data:
            self._take(data)
        else:
            self._close_pipe()
            self._pass_on(self._sink.end)

    def drain(self) -> None:
        """Take what the pipe holds at this moment, then stop: for after the payload's end.

        A process that left the container with the pipe in its hands could go on writing for ever;
        the caller closes the stream after this instead of waiting for the end of the pipe. It also
        stops where the sink can take no more; the stream is not `closed` then, and can be pumped.
        """
        if self._fd is None:
            self.pump()
            return
        import termios  # noqa: PLC0415 -- for the end: supervisors wait without it

        waiting = fcntl.ioctl(self._fd, termios.FIONREAD, struct.pack("i", 0))
        goal_bytes = self.total_bytes + struct.unpack("i", waiting)[0]
        # One pump more than the goal needs: it sees the end of the pipe.
        while True:
            before_bytes = self.total_bytes
            self.pump()
            if self.total_bytes == before_bytes or before_bytes >= goal_bytes:
                return

    def finish(self, *, keep: bool = False) -> Captured:
        """Close the pipe and hand over what was captured; once. Raises nothing of its own."""
        self._close_pipe()
        sink, self._sink = self._sink, NullSink()
        return sink.finish(keep=keep, total_bytes=self.total_bytes, truncated=self.truncated)

    def close(self) -> None:
        """Give up the pipe and the sink (a capture file is removed); idempotent."""
        self._close_pipe()
        sink, self._sink = self._sink, NullSink()
        sink.close()

    def _read(self, fd: int) -> memoryview:
        if self._buffer is None:
            return memoryview(os.read(fd, PIPE_BYTES))
        return self._buffer[: os.readv(fd, [self._buffer])]

    def _take(self, data: memoryview) -> None:
        size = len(data)
        keep = min(size, max(0, self.cap_bytes - self.total_bytes))
        self.total_bytes += size
        try:
            if keep:
                self._keep(data[:keep])
        finally:
            if keep < size and not self.limit_hit:
                self.limit_hit = True
                if self._on_limit is not None:
                    self._on_limit()
        if self._buffer is None and size >= NEW_PIPE_BYTES and self._fd is not None:
            # Only streams that fill their pipe: all pipes of a user share pipe-user-pages-soft,
            # and past it every new pipe of theirs shrinks to two pages.
            self._buffer = memoryview(bytearray(PIPE_BYTES))
            grow_pipe(self._fd)

    def _keep(self, data: memoryview) -> None:
        # The callback's copy is made first: the buffer may only be reused when the sink is done.
        copy = bytes(data) if self._on_data is not None else b""
        self._pass_on(lambda: self._sink.write(data))
        self.kept_bytes += len(data)
        if self._on_data is not None:
            self._on_data(copy)

    def _pass_on(self, step: Callable[[], None]) -> bool:
        """Run one step of the sink; whether it has nothing pending afterwards."""
        try:
            step()
        except OcisbxError:
            self._sink.close()
            self._sink = NullSink()
            self.cap_bytes = self.kept_bytes
            self._on_limit = None
            raise
        if self._sink.broken:
            # Nobody reads what comes: without its reader the payload gets SIGPIPE, as it would
            # in a plain pipeline.
            self._close_pipe()
        return not self._sink.pending

    def _close_pipe(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
