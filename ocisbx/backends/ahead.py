"""What the next command of a container needs of the kernel, made while the one before it runs.

A short command leaves its driver idle for most of its time, on a processor that nobody else needs:
what is made then is not in the way of the next one (man/design/0015-who-runs-first.md).
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import TYPE_CHECKING

from ocisbx.init import wire

if TYPE_CHECKING:
    from ocisbx.backends.channel import Pair

# A command's stdout and stderr.
PIPES = 2

_all: weakref.WeakSet[Ahead] = weakref.WeakSet()


class Ahead:
    """Pipes and a channel for one command. Thread-safe: each is handed out once."""

    def __init__(self, channels: int = 1) -> None:
        """`channels`: 0 where a command needs none of its own."""
        self._most_channels = channels
        self._pipes: list[tuple[int, int]] = []
        self._channels: list[Pair] = []
        self._closed = False
        _all.add(self)

    def __del__(self) -> None:
        self.forget()

    def make(self) -> None:
        """Have them there; nothing where descriptors are few: what runs may still need some."""
        try:
            while len(self._pipes) < PIPES:
                self._pipes.append(os.pipe())
            while len(self._channels) < self._most_channels:
                self._channels.append(wire.report_socketpair())
            last = os.dup(self._pipes[-1][1])
            os.close(last)
        except (OSError, IndexError):
            # None is left, or another thread has taken one already.
            self.forget()
            return
        if self._closed or last > os.sysconf("SC_OPEN_MAX") // 2:
            self.forget()

    def pipe(self) -> tuple[int, int]:
        """Both ends of a pipe. Raises OSError."""
        try:
            return self._pipes.pop()
        except IndexError:
            return os.pipe()

    def channel(self) -> Pair:
        """As `wire.report_socketpair`."""
        try:
            return self._channels.pop()
        except IndexError:
            return wire.report_socketpair()

    def close(self) -> None:
        """Give up what nobody needed, for good."""
        self._closed = True
        self.forget()

    def forget(self) -> None:
        """Give it up, for now."""
        # Another thread may take the last one.
        with contextlib.suppress(IndexError):
            while True:
                for descriptor in self._pipes.pop():
                    os.close(descriptor)
        with contextlib.suppress(IndexError):
            while True:
                for end in self._channels.pop():
                    end.close()


def _after_fork() -> None:
    # One that both processes used would mix up their commands.
    for ahead in list(_all):
        ahead.forget()


os.register_at_fork(after_in_child=_after_fork)
