"""The payload's three descriptors: our ends, driven by the loop, and its ends, handed over once."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.capture import FileSink, ForwardSink, InputFeeder, OutputStream
from ocisbx.result import Captured

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.backends.ahead import Ahead
    from ocisbx.backends.base import Call
    from ocisbx.capture import Sink
    from ocisbx.plan import Plan


class Taken(NamedTuple):
    """Our ends of the pipes of a payload that runs already, by name, and what it is sent before its
    input."""

    ends: dict[str, int]
    letter: bytes


_all: weakref.WeakSet[PayloadStdio] = weakref.WeakSet()


class PayloadStdio:
    """Pipes for one payload. `stdin`, `stdout`, `stderr` are its ends until `release()`.

    A process that was forked from its driver has no end for writing: while it held a copy nobody
    would see the end of the stream.
    """

    # Whether the payload has the terminal that its runtime made instead.
    is_terminal = False

    def __init__(
        self,
        plan: Plan,
        call: Call,
        directory: str,
        on_limit: Callable[[], None],
        *,
        prefix: str = "",
        taken: Taken | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        """Make pipes, sinks and the input; captures lie in `directory`, their names after
        `prefix`. A call without a command has none of them. `taken`: a payload that runs already;
        `ahead`: pipes that were made for this one.

        Raises:
            OcisbxError: a capture file cannot be made, a descriptor of the caller's is not open.
        """
        # Whether stderr is stdout.
        self.combines = plan.combine
        self.stdin: int | None = None
        self.stdout: int | None = None
        self.stderr: int | None = None
        self.feeder: InputFeeder | None = None
        self.streams: list[OutputStream] = []
        self._captures = f"{call.keep_in or directory}/{prefix}"
        self._owner = plan.owner
        self._cap_bytes = plan.max_output_bytes
        self._on_limit = on_limit if plan.on_output_limit == "kill" else None
        self._taken = taken
        self._ahead = ahead
        _all.add(self)
        if not call.argv:
            return
        try:
            self._open(call, directory, prefix)
        except BaseException:
            self.close()
            raise

    def capture_path(self, stream: str) -> str:
        """Where the capture of `stdout` or `stderr` lies, once something came."""
        return self._captures + stream

    @property
    def closed(self) -> bool:
        """Whether every byte that was written has reached its sink."""
        return all(stream.closed for stream in self.streams)

    def release(self) -> None:
        """Close the payload's ends: the payload alone holds them now."""
        for name in ("stdin", "stdout", "stderr"):
            descriptor = getattr(self, name)
            if descriptor is not None:
                # Each is named until it goes: whoever forks in between closes the others.
                setattr(self, name, None)
                os.close(descriptor)

    def finish(self, *, keep: bool) -> tuple[Captured, Captured]:
        """What was captured of both streams; with combined streams the second is empty."""
        captured = [stream.finish(keep=keep) for stream in self.streams] or [Captured()]
        self.close()
        return captured[0], captured[1] if len(captured) > 1 else Captured()

    def close(self) -> None:
        """Give up whatever is open; idempotent."""
        self.release()
        if self.feeder is not None:
            self.feeder.close()
        for stream in self.streams:
            stream.close()
        while self._taken is not None and self._taken.ends:
            os.close(self._taken.ends.popitem()[1])

    def _open(self, call: Call, directory: str, prefix: str) -> None:
        self.stdout = self._output(
            "stdout", make_sink(call, call.stdout, directory, f"{prefix}stdout"), call.on_stdout
        )
        if not self.combines:
            self.stderr = self._output(
                "stderr",
                make_sink(call, call.stderr, directory, f"{prefix}stderr"),
                call.on_stderr,
            )
        if call.stdin is not None or self._taken is not None:
            self.stdin = self._input(b"" if call.stdin is None else call.stdin)

    def _output(self, name: str, sink: Sink, on_data: Callable[[bytes], None] | None) -> int | None:
        """The payload's end; None: it has it already."""
        theirs: int | None = None
        if self._taken is not None:
            ours = self._taken.ends.pop(name)
        else:
            ours, theirs = os.pipe() if self._ahead is None else self._ahead.pipe()
        self.streams.append(
            OutputStream(
                name, ours, self._cap_bytes, sink, on_data=on_data, on_limit=self._on_limit
            )
        )
        if theirs is not None:
            self._give(theirs)
        return theirs

    def _input(self, source: bytes | int) -> int | None:
        """As `_output`."""
        if self._taken is not None:
            self.feeder = InputFeeder(self._taken.ends.pop("stdin"), source, self._taken.letter)
            return None
        theirs, ours = os.pipe()
        self._give(theirs)
        try:
            self.feeder = InputFeeder(ours, source)
        except BaseException:
            os.close(theirs)
            raise
        return theirs

    def _give(self, descriptor: int) -> None:
        # A payload that is somebody else outside could not reopen its own /dev/stdout.
        if self._owner is not None:
            os.fchown(descriptor, *self._owner)


def make_sink(call: Call, forward: int | None, directory: str, name: str) -> Sink:
    """Where a stream of this call goes. Raises as PayloadStdio."""
    if forward is not None:
        return ForwardSink(forward)
    return FileSink(call.keep_in or directory, name, lasting=call.keep_in is not None)


def _after_fork() -> None:
    for stdio in list(_all):
        stdio.release()
        if stdio.feeder is not None:
            stdio.feeder.close()


os.register_at_fork(after_in_child=_after_fork)
