"""One thread that drives all executions of this process that nobody else waits for."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from ocisbx.command import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.backends.terminal import OnTerminal

    # Told how an execution ended: None, or what its loop raised.
    OnEnd = Callable[[BaseException | None], None]


class Keeper:
    """Drives what it is given to its end, in a thread that lives as long as there is some.

    A process that was forked from this one has nothing to keep.
    """

    def __init__(self) -> None:
        self._start_empty()

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[OnTerminal, OnEnd] = {}
        self._thread: threading.Thread | None = None
        self._wake = -1

    def keep(self, execution: OnTerminal, on_end: OnEnd) -> None:
        """From now on it is the thread's, which calls `on_end` when there is a verdict."""
        with self._lock:
            if self._thread is None:
                self._start_thread()
            self._kept[execution] = on_end
            os.eventfd_write(self._wake, 1)

    def _start_thread(self) -> None:
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            # It waits for the lock, which who asked for it holds.
            self._thread = threading.Thread(target=self._drive, name="ocisbx-keeper", daemon=True)
            self._thread.start()
        except BaseException:
            os.close(self._wake)
            self._thread, self._wake = None, -1
            raise

    def forget(self) -> None:
        """After a fork: the thread is the parent's, and its lock may be held for ever."""
        if self._wake >= 0:
            os.close(self._wake)
        self._start_empty()

    def _drive(self) -> None:
        while (kept := self._all()) is not None:
            by_fd = {fd: one for one in kept for fd in one.speakers}
            poller = select.poll()
            for fd in (self._wake, *by_fd):
                poller.register(fd, select.POLLIN)
            due_at = min((one.due_at for one in kept), default=float("inf"))
            left_s = min(LOOK_S, due_at - time.monotonic())
            came = [fd for fd, _ in poller.poll(max(0.0, left_s) * 1000 + 1)]
            if self._wake in came:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            heard = {by_fd[fd] for fd in came if fd in by_fd}
            now = time.monotonic()
            for one in kept:
                if one in heard or one.due_at <= now:
                    self._attend(one)

    def _all(self) -> list[OnTerminal] | None:
        """What there is to drive; None: nothing, and the thread ends."""
        with self._lock:
            if self._kept:
                return list(self._kept)
            os.close(self._wake)
            self._thread, self._wake = None, -1
            return None

    def _attend(self, execution: OnTerminal) -> None:
        error: BaseException | None = None
        try:
            execution.attend()
        except BaseException as raised:  # noqa: BLE001 -- handed to whoever waits
            error = raised
        if execution.verdict is None and error is None:
            return
        with self._lock:
            on_end = self._kept.pop(execution)
        try:
            on_end(error)
        except Exception:  # noqa: BLE001 -- what somebody's callback raises ends no other terminal
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))


KEEPER: Final = Keeper()
os.register_at_fork(after_in_child=KEEPER.forget)
