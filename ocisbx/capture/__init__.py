"""Moving a payload's bytes: its output into files or to the caller, the caller's input to it.

The driver's loop polls and this package does the moving; nothing here waits, sleeps (but
`reader.follow`) or starts a thread. `OutputStream` and `InputFeeder` are driven alike:

    while not stream.closed:
        fd, events = stream.watch()     # the one descriptor to wait for at this moment
        ...                             # select.poll on it, together with all the others
        stream.pump()                   # on any event, POLLHUP and POLLERR too

One `pump()` moves at most one buffer (`PIPE_BYTES`), so that no stream starves its neighbour.
The payload holds pipes only, never the file behind them: a file given as stdout can be rewritten,
truncated, chmod-ed and read back through /proc/self/fd/1, whatever it was opened with.
"""

from __future__ import annotations

from ocisbx.capture.feeder import Input, InputFeeder, check_input
from ocisbx.capture.forward import ForwardSink
from ocisbx.capture.reader import Renderer, follow, head, read_at, render, tail
from ocisbx.capture.sinks import FileSink, NullSink, Sink
from ocisbx.capture.stream import PIPE_BYTES, OutputStream

__all__ = [
    "PIPE_BYTES",
    "FileSink",
    "ForwardSink",
    "Input",
    "InputFeeder",
    "NullSink",
    "OutputStream",
    "Renderer",
    "Sink",
    "check_input",
    "follow",
    "head",
    "read_at",
    "render",
    "tail",
]
