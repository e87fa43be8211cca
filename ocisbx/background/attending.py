"""A step of a script that needs a person: who attaches gets the program's terminal meanwhile."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Self

from ocisbx.background.attached import Attached
from ocisbx.background.attaching import Attachments, Resizing
from ocisbx.background.control import Control, Events
from ocisbx.background.packets import error_document
from ocisbx.errors import InvalidState, OcisbxError
from ocisbx.expect.screen import last_bytes
from ocisbx.terminal.device import DEFAULT_SIZE, READ_BYTES, get_size, set_size

if TYPE_CHECKING:
    from ocisbx.background.control import Answer
    from ocisbx.expect.handover import Handle
    from ocisbx.expect.screen import View
    from ocisbx.expect.terminal import Terminal
    from ocisbx.terminal.device import Size

# What is looked through for the line at which the program waits.
RECENT_BYTES = 1 << 14


class Attending:
    """While it is open `ocisbx attach ID` finds the terminal. The step is done when somebody leaves
    by their keys, and when the program has ended.

    Nothing that is typed passes through the terminal's transcript; what is printed goes on to the
    script.
    """

    def __init__(self, terminal: Terminal, handle: Handle) -> None:
        """Raises OcisbxError: there is no place for the socket, or no descriptor is left."""
        self._terminal = terminal
        self._raw = terminal.raw
        self._handle = handle
        self._why = ""
        size = get_size(self._raw.fileno())
        # The program may have set what no terminal can be given back.
        self._size = size if all(size) else DEFAULT_SIZE
        try:
            self._open()
        except OSError as error:
            raise OcisbxError(
                "nobody can be brought to the terminal",
                why=f"this process cannot open what that takes: {error.strerror or error}",
                remedy="raise `ulimit -n`, or free some of its descriptors",
            ) from error

    def _open(self) -> None:
        """Be there for who comes. Raises OSError, OcisbxError: nothing is left open."""
        terminal = self._terminal
        with contextlib.ExitStack() as stack:
            self._events = Events()
            stack.callback(self._events.close)
            self._people = Attachments(self._events, lambda: paint(terminal.screen()))
            self._people.shown(last_bytes(terminal.spawn.tail, RECENT_BYTES))
            resizing = Resizing(self._resize, self._nudge)
            self._people.open(os.dup(self._raw.fileno()), resizing, self._on_left)
            stack.callback(self._people.close)
            self._events.watch(self._raw.fileno(), self._read)
            self._control = Control(terminal.id, self._events, self._answer)
            stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._people.close(self._why or "nobody is waited for any more")
        self._control.close()
        self._events.close()
        if not self._raw.is_over:
            self._resize(self._size)

    def fileno(self) -> int:
        """Readable when there is something to do in `turn`."""
        return self._events.fileno()

    @property
    def is_over(self) -> bool:
        """Whether the step is."""
        return not self._handle.private

    @property
    def count(self) -> int:
        """How many people are there."""
        return self._people.count

    def sit(self, size: Size | None) -> Attached:
        """Somebody in this very process."""
        return Attached(self._people.add(size))

    def leave(self) -> None:
        """Who sits in this process has left by their keys: it is over, whatever waits."""
        self.turn()
        self._on_left()
        self._settle()

    def turn(self, timeout_s: float = 0.0) -> None:
        """Pass on what is there, or comes in time; once it is over, nothing."""
        if self.is_over:
            return
        self._events.turn(timeout_s)
        if not self._why and self._raw.has_ended:
            # One whose terminal somebody holds open elsewhere is not heard to end.
            self._read()
        self._settle()

    def _settle(self) -> None:
        if self._why and not self.is_over:
            self._handle.done()
            self._people.close(self._why)

    def _read(self) -> None:
        data = self._raw.read_some(READ_BYTES)
        if data:
            self._people.shown(data)
            self._handle.feed(data)
        elif data is not None:
            self._events.forget(self._raw.fileno())
            self._why = "the program has ended"

    def _resize(self, size: Size) -> None:
        self._raw.resize(*size)

    def _nudge(self, size: Size) -> None:
        set_size(self._raw.fileno(), size)

    def _on_left(self) -> None:
        self._why = self._why or "the script goes on"

    def _answer(self, verb: str, members: dict[str, Any], answer: Answer) -> None:
        try:
            if verb != "attach":
                raise InvalidState(
                    f"{self._terminal.id} is not in the background",
                    why=f"process {os.getpid()} drives it by a script, and waits for a person",
                )
            theirs = self._people.add(members["size"])
        except InvalidState as error:
            answer({"error": error_document(error)})
            return
        with theirs:
            told = {"terminal": True, "message": self._handle.message}
            answer({"ok": told}, theirs.fileno())


def paint(view: View) -> bytes:
    """What brings this screen, without its colours, onto a terminal."""
    row, column = view.cursor
    text = "\r\n".join(view.lines)
    return f"\x1b[H\x1b[2J{text}\x1b[{row + 1};{column + 1}H".encode()
