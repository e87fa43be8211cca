"""`ocisbx attach`: a person's terminal at a container in the background, until they detach."""

from __future__ import annotations

import os
import select
from enum import Enum
from typing import TYPE_CHECKING

from ocisbx.background import frames
from ocisbx.background.attached import Attached
from ocisbx.bundle.record import State
from ocisbx.capture import ForwardSink
from ocisbx.cli.containers import find, tell_end
from ocisbx.cli.logs import FOLLOW_S, one_word, show, sizes
from ocisbx.cli.options import Option, Syntax, parse, wants_help
from ocisbx.cli.output import printable, say
from ocisbx.cli.run import Interrupts
from ocisbx.errors import InvalidState
from ocisbx.terminal.detach import DEFAULT_KEYS, DetachKeys
from ocisbx.terminal.local import STDIN, STDOUT, LocalTerminal, size_of

if TYPE_CHECKING:
    from ocisbx.background.container import Container
    from ocisbx.terminal.device import Size

ATTACH = Syntax(
    "ocisbx attach [--detach-keys KEYS] [--no-stdin] ID|NAME",
    "Sit down at a container in the background: see what it prints from now on, and\n"
    "type where it has a terminal (run -d -t) or was started with -i at one. Several\n"
    "may at once. Exit codes as `run`; 0 when you detach: the container goes on.",
    (
        Option(("--detach-keys",), "one", "KEYS", f"by which you leave ({DEFAULT_KEYS})"),
        Option(("--no-stdin",), "flag", "", "type nothing; Ctrl-C leaves"),
    ),
    ("ocisbx run -d -t --name work -- bash", "ocisbx attach work"),
)
READ_BYTES = 1 << 16


class Parting(Enum):
    """Why it is over: by the keys, because nobody is there any more, with the program."""

    DETACHED = 1
    GONE = 2
    ENDED = 3


def attach_main(arguments: list[str]) -> int:
    """Relay until the end, and end as the payload does; or until they detach."""
    parsed = parse(ATTACH, arguments)
    if wants_help(ATTACH, parsed):
        return 0
    keys = DetachKeys(parsed.options.get("detach-keys", DEFAULT_KEYS))
    container = find(one_word(ATTACH, parsed.words))
    if (state := container.state) is not State.RUNNING:
        raise InvalidState(
            f"{parsed.words[0]} is not running: it is {state.value}",
            remedy="ocisbx logs shows what it has printed",
        )
    with Interrupts():
        parting = _attach(container, keys, types="no-stdin" not in parsed.options)
    if parting is not Parting.ENDED:
        return 0
    result = container.wait()
    assert result is not None
    tell_end(result)
    return result.shell_exit_code


def _attach(container: Container, keys: DetachKeys, *, types: bool) -> Parting:
    offsets = sizes(container)
    told, attached = Attached.to(container.id, size_of(STDOUT))
    if attached is None:
        show(container, offsets, follow=True)
        return Parting.ENDED
    with attached:
        if not told["terminal"]:
            feeder = _Feeder(attached, types=types)
            show(container, offsets, follow=True, pause=feeder.pause)
            return Parting.ENDED
        parting = Relay(attached, keys, types=types).run()
    if parting is Parting.DETACHED:
        say(f"ocisbx: detached, {printable(container.name or container.id)} goes on")
    return parting


class Relay:
    """Between the caller's terminal and one that another process holds."""

    def __init__(self, attached: Attached, keys: DetachKeys, *, types: bool) -> None:
        self.message = ""
        """Why it was over, where that was said."""
        self._attached = attached
        self._keys = keys
        self._types = types
        self._sink = ForwardSink(STDOUT)
        self._local = LocalTerminal(self._follow, types=types, sees=True)

    def run(self) -> Parting:
        """Relay until one of them ends. Raises BrokenPipeError: nobody reads what is shown."""
        try:
            with self._local:
                self._local.take()
                while (parting := self._turn()) is None:
                    pass
                while self._sink.pending:
                    self._drain()
        finally:
            self._sink.close()
        return parting

    def _follow(self, size: Size) -> None:
        self._attached.resize(size)

    def _turn(self) -> Parting | None:
        poller = select.poll()
        if self._sink.pending:
            # What the terminal does not take yet holds back nothing but itself.
            poller.register(*self._watched_sink())
            poller.register(self._attached, self._attached.events & ~select.POLLIN)
        else:
            poller.register(self._attached, self._attached.events)
        if self._types and (self._attached.has_room or self._local.types):
            poller.register(STDIN, select.POLLIN)
        ready = dict(poller.poll())
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

    def _drain(self, patience_ms: int | None = None) -> None:
        poller = select.poll()
        poller.register(*self._watched_sink())
        poller.poll(patience_ms)
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


class _Feeder:
    """Passes on the caller's input, while something else shows what is printed."""

    def __init__(self, attached: Attached, *, types: bool) -> None:
        self._attached = attached
        self._types = types

    def pause(self) -> None:
        """Wait for some, or a moment."""
        poller = select.poll()
        if self._types and self._attached.has_room:
            poller.register(STDIN, select.POLLIN)
        if not self._attached.has_room:
            poller.register(self._attached, select.POLLOUT)
        if poller.poll(FOLLOW_S * 1000) and self._types and self._attached.has_room:
            data = os.read(STDIN, READ_BYTES)
            self._types = bool(data)
            self._attached.type(data)
        self._attached.flush()
