"""Who is attached to a terminal, or to the input, that this process holds: any number of people.

Each has a socket of their own. What is shown goes to all of them, what any of them types goes in,
and nobody waits for anybody: who does not read loses what came meanwhile, and is told so; who types
more than is read is not read from.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.background import frames
from ocisbx.errors import InvalidState, TerminalError
from ocisbx.terminal.device import SIZE_MAX, Size, get_modes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ocisbx.background.control import Events
    from ocisbx.terminal.transcript import Recorder

MAX_ATTACHED = 32
# For one who does not read, besides what the socket holds.
BACKLOG_BYTES = 1 << 20
# Of a line that is not ended, a prompt: it is shown to who comes.
LINE_BYTES = 1024
# For all of them together, when there is nothing more to be shown.
FAREWELL_S = 1.0
NOTHING = memoryview(b"")


class Resizing(NamedTuple):
    """How the terminal gets a size; by `nudge` for a moment, of which no transcript tells."""

    resize: Callable[[Size], None]
    nudge: Callable[[Size], None]


class Attachments:
    """Implements `terminal.transcript.Recorder`: what is shown is told."""

    def __init__(self, events: Events, picture: Callable[[], bytes] = bytes) -> None:
        """`picture`: what shows the screen to who comes to a program that fills it."""
        self._events = events
        self._transcript: Recorder | None = None
        self._picture = picture
        self._all: set[_Attached] = set()
        self._input_fd = -1
        self._is_watched = False
        self._line = b""
        self._size: Size | None = None
        self._resizing: Resizing | None = None
        self._on_left: Callable[[], None] = lambda: None

    def record(self, transcript: Recorder) -> None:
        """Have it told all that we are, and what those who are attached type at the terminal."""
        self._transcript = transcript

    def open(
        self,
        input_fd: int,
        resizing: Resizing | None = None,
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        """What is typed is written to `input_fd`, which never blocks and is ours from now on.
        `on_left`: somebody detached by their keys."""
        self._input_fd, self._resizing, self._on_left = input_fd, resizing, on_left

    def add(self, size: Sequence[int] | None) -> socket.socket:
        """Somebody more, whose end is returned; `size`: what they sit at.

        Raises:
            InvalidState: there are as many as may be, or no descriptor is left.
        """
        if len(self._all) >= MAX_ATTACHED:
            raise InvalidState(
                f"{MAX_ATTACHED} are attached to it already", remedy="let one of them detach"
            )
        try:
            attached, theirs = self._connect()
        except OSError as error:
            # It is theirs: the container must not feel it.
            raise InvalidState(
                "nobody more can attach to it",
                why=f"its process cannot open a connection: {error.strerror or error}",
                remedy="raise `ulimit -n` before it is started, or let one of them detach",
            ) from error
        self._all.add(attached)
        attached.show(self._line if len(self._line) <= LINE_BYTES else self._picture())
        if size is not None:
            self._size = Size(*size)
            self._redraw()
        return theirs

    @property
    def count(self) -> int:
        """How many are attached."""
        return len(self._all)

    # -------------------------------------------------------------------------- as a Recorder
    def shown(self, data: bytes | memoryview) -> None:
        """The program printed this."""
        data = bytes(data)
        if self._transcript is not None:
            self._transcript.shown(data)
        _, newline, rest = data.rpartition(b"\n")
        line = rest if newline else self._line + rest
        # Of a longer one, a picture perhaps, a part would show nothing.
        self._line = line[-LINE_BYTES - 1 :]
        for attached in list(self._all):
            attached.show(data)

    def typed(self, data: bytes | memoryview, *, hidden: bool) -> None:
        """By somebody who is not attached; none of those who are is told."""
        if self._transcript is not None:
            self._transcript.typed(data, hidden=hidden)

    def resized(self, size: Size) -> None:
        """None of those who are attached is told."""
        if self._transcript is not None:
            self._transcript.resized(size)

    # -------------------------------------------------------------------------------- the end
    def close(self, why: str = "") -> None:
        """Let everybody have what they have not seen, for a while, and tell them why it is over."""
        until = time.monotonic() + FAREWELL_S
        for attached in list(self._all):
            if why:
                attached.tell(frames.OVER + why.encode())
            attached.flush_until(until)
            self._drop(attached)
        if self._input_fd >= 0:
            self._watch_input(wanted=False)
            os.close(self._input_fd)
            self._input_fd = -1

    # ----------------------------------------------------------------------------------- below
    def _connect(self) -> tuple[_Attached, socket.socket]:
        """Their two ends. Raises OSError: nothing is left open."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(0)
        attached = _Attached(
            ours, _Owner(self._type, self._hear, on_caught_up=self._redraw, on_end=self._drop)
        )
        # Edges: the hang-up of one whose keys wait must not wake us again and again.
        edges = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET
        try:
            self._events.watch(ours.fileno(), attached.advance, edges)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return attached, theirs

    def _drop(self, attached: _Attached) -> None:
        if attached in self._all:
            self._all.remove(attached)
            self._events.forget(attached.fileno())
            attached.close()

    def _hear(self, frame: frames.Frame) -> None:
        size = frames.decode_size(frame.data) if frame.kind == frames.SIZED else None
        if size is not None and self._resizing is not None:
            self._size = Size(*size)
            self._resizing.resize(self._size)
        elif frame.kind == frames.LEFT:
            self._on_left()

    def _redraw(self) -> None:
        """Have a full-screen program draw all of it anew: as if its size had changed, and back."""
        if self._resizing is not None and self._size is not None:
            self._resizing.nudge(Size(self._size.rows % SIZE_MAX + 1, self._size.columns))
            self._resizing.resize(self._size)

    def _type(self, data: memoryview) -> memoryview:
        """Type as much as goes; the rest."""
        try:
            while data and self._input_fd >= 0:
                data = data[self._write(data) :]
        except BlockingIOError:
            self._watch_input(wanted=True)
            return data
        except (OSError, TerminalError):
            # Nobody reads there any more.
            return data[:0]
        return data[:0]

    def _write(self, data: memoryview) -> int:
        if self._transcript is None:
            return os.write(self._input_fd, data)
        # Before: what is typed may change it.
        hidden = get_modes(self._input_fd).hides_input
        size = os.write(self._input_fd, data)
        self._transcript.typed(data[:size], hidden=hidden)
        return size

    def _watch_input(self, *, wanted: bool) -> None:
        if wanted is self._is_watched:
            return
        self._is_watched = wanted
        if wanted:
            self._events.watch(self._input_fd, self._on_room, select.EPOLLOUT)
        else:
            self._events.forget(self._input_fd)

    def _on_room(self) -> None:
        self._watch_input(wanted=False)
        for attached in list(self._all):
            attached.advance()


class _Owner(NamedTuple):
    """Whom one of them tells: `on_typed` returns what cannot be typed now."""

    on_typed: Callable[[memoryview], memoryview]
    on_frame: Callable[[frames.Frame], None]
    on_caught_up: Callable[[], None]
    on_end: Callable[[_Attached], None]


class _Attached:
    """One of them. Nothing here waits but `flush_until`."""

    def __init__(self, connection: socket.socket, owner: _Owner) -> None:
        self._socket = connection
        self._owner = owner
        self._typed = NOTHING
        self._queue: deque[bytearray] = deque()
        self._queued_bytes = 0
        self._lost_bytes = 0
        self._missed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def show(self, data: bytes) -> None:
        """They see this; where too much waits for them, they lose the oldest of that."""
        for piece in frames.pieces(frames.SHOWN, data):
            self._enqueue_shown(piece)
        while self._queued_bytes > BACKLOG_BYTES:
            oldest = self._queue.popleft()
            self._queued_bytes -= len(oldest)
            self._lost_bytes += len(oldest) - len(frames.SHOWN)
        self._flush()

    def tell(self, packet: bytes) -> None:
        """This packet, after those before it."""
        self._queue.append(bytearray(packet))
        self._queued_bytes += len(packet)
        self._flush()

    def advance(self) -> None:
        """Go on with whatever can be: what they have not seen, and what they say."""
        self._flush()
        try:
            self._hear()
        except EOFError:
            self._owner.on_end(self)

    def flush_until(self, until: float) -> None:
        """Wait until they have it all, or until then."""
        poller = select.poll()
        poller.register(self._socket, select.POLLOUT)
        while not self._flush() and (left_s := until - time.monotonic()) > 0:
            poller.poll(left_s * 1000 + 1)

    def close(self) -> None:
        self._socket.close()

    def _enqueue_shown(self, piece: bytes) -> None:
        """Into the last packet while it has room: of single bytes each would cost fifty."""
        last = self._queue[-1] if self._queue else bytearray()
        data = memoryview(piece)[len(frames.SHOWN) :]
        if last.startswith(frames.SHOWN) and len(last) + len(data) <= frames.PACKET_BYTES:
            last += data
            self._queued_bytes += len(data)
        else:
            self._queue.append(bytearray(piece))
            self._queued_bytes += len(piece)

    def _flush(self) -> bool:
        """Whether all is sent; where they are gone, there is nothing to send."""
        try:
            if self._lost_bytes:
                self._socket.send(frames.encode_lost(self._lost_bytes))
                self._lost_bytes = 0
                self._missed = True
            while self._queue:
                self._socket.send(self._queue[0])
                self._queued_bytes -= len(self._queue.popleft())
            if self._missed:
                self._missed = False
                self._owner.on_caught_up()
        except BlockingIOError:
            return False
        except OSError:
            # Their hang-up is heard by who reads.
            self._queue.clear()
            self._queued_bytes = self._lost_bytes = 0
        return True

    def _hear(self) -> None:
        """Raises EOFError: they are gone."""
        while True:
            if self._typed:
                self._typed = self._owner.on_typed(self._typed)
            if self._typed:
                if self._is_hung_up():
                    self._hear_last_words()
                    raise EOFError
                return
            packet = self._receive()
            if packet is None:
                return
            if not packet:
                raise EOFError
            frame = frames.split(packet)
            if frame.kind == frames.TYPED:
                self._typed = memoryview(frame.data)
            else:
                self._owner.on_frame(frame)

    def _hear_last_words(self) -> None:
        """What they typed is not taken any more, but whether they left by their keys counts."""
        while packet := self._receive():
            frame = frames.split(packet)
            if frame.kind == frames.LEFT:
                self._owner.on_frame(frame)

    def _receive(self) -> bytes | None:
        """The next packet; None: there is none now; empty: they are gone."""
        for _ in range(2):
            try:
                return self._socket.recv(frames.PACKET_BYTES)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                # Told once, when they left before they had read all; what they said is still there.
                continue
        return b""

    def _is_hung_up(self) -> bool:
        poller = select.poll()
        poller.register(self._socket, 0)
        return bool(poller.poll(0))
