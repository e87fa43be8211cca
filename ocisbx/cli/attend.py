"""`ocisbx expect`, where a person is needed: they sit here, or come by `ocisbx attach`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ocisbx.background.attending import Attending
from ocisbx.cli.output import printable, say
from ocisbx.cli.relay import Parting, Relay
from ocisbx.command import LOOK_S
from ocisbx.terminal.detach import DEFAULT_KEYS, DetachKeys
from ocisbx.terminal.local import STDIN, STDOUT, size_of

if TYPE_CHECKING:
    from ocisbx.expect.handover import Handle
    from ocisbx.expect.terminal import Terminal


def someone_sits_here() -> bool:
    """Whether who started us types, and sees what is printed."""
    return os.isatty(STDIN) and os.isatty(STDOUT)


class InPlace:
    """Implements `expect.handover.Attendant`: the person at our own terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def attend(self, handle: Handle) -> None:
        """Until they leave by the keys, or the program ends."""
        say(f"ocisbx: {printable(handle.message)}\n  {DEFAULT_KEYS} when it is done")
        with Attending(self._terminal, handle) as attending:
            with attending.sit(size_of(STDOUT)) as attached:
                parting = Relay(attached, DetachKeys(), types=True, beside=attending).run()
            if parting is Parting.GONE and not attending.is_over:
                handle.give_up("the person's terminal was hung up")
                return
            attending.leave()
        say("ocisbx: the script goes on")


class FromElsewhere:
    """Implements `expect.handover.Attendant`: somebody comes by `ocisbx attach`, in time."""

    def __init__(self, terminal: Terminal, wait_s: float) -> None:
        self._terminal = terminal
        self._wait_s = wait_s

    def attend(self, handle: Handle) -> None:
        """Until one leaves by the keys, the program ends, or nobody is there for too long."""
        with Attending(self._terminal, handle) as attending:
            say(
                f"ocisbx: a person is needed: {printable(handle.message)}\n"
                f"  remedy: ocisbx attach {self._terminal.id}"
            )
            alone_at = time.monotonic()
            while not attending.is_over:
                left_s = alone_at + self._wait_s - time.monotonic()
                attending.turn(min(LOOK_S, max(0.0, left_s)))
                if attending.count:
                    alone_at = time.monotonic()
                elif left_s <= 0 and not attending.is_over:
                    handle.give_up(f"nobody was there for {self._wait_s:g} s")
