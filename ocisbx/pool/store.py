"""Store: the members that wait, and the threads that start, check and see them off."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.command import LOOK_S
from ocisbx.errors import InvalidState, OcisbxError
from ocisbx.pool.demand import BackOff, Bounds, Demand
from ocisbx.pool.member import Member, retire_all

if TYPE_CHECKING:
    from collections.abc import Callable

# How often those that wait are looked at.
REVIEW_S = 5.0
# Of two calls in a row the second is not to wait for the first one's successor, and a short call
# has the processors for itself.
QUIET_S = 0.003
BEGIN_S = 0.05
MOST_THREADS = 4


class Ended(NamedTuple):
    """A member that has had its command, and what is still to be written of that."""

    member: Member
    line: Callable[[], None] | None

    def write(self) -> None:
        if self.line is not None:
            self.line()

    def see_off(self) -> None:
        self.write()
        self.member.retire()


class Store:
    """Thread-safe. `make` starts a member; it is called in threads of the store, and in the
    caller's where none is ready."""

    def __init__(
        self, make: Callable[[], Member], bounds: Bounds, *, max_age_s: float, idle_s: float
    ) -> None:
        self._make = make
        self._bounds = bounds
        self._max_age_s = max_age_s
        self._idle_s = idle_s
        # To see one off is waiting for the most part: others are started meanwhile.
        self._most_starting = os.cpu_count() or 1
        self._renew()

    def _renew(self) -> None:
        now = time.monotonic()
        lock = threading.RLock()
        # A member is there, or none is coming; and: the threads have something to do.
        self._arrived = threading.Condition(lock)
        self._work_to_do = threading.Condition(lock)
        self._waiting: deque[Member] = deque()
        self._ended: deque[Ended] = deque()
        self._starting = 0
        self._busy = 0
        self._quiet_at = 0.0
        self._look_at = now + REVIEW_S
        self._closed = False
        self._demand = Demand(self._bounds, self._idle_s, now)
        self._back_off = BackOff()
        self._threads: list[threading.Thread] = []

    # ----------------------------------------------------------------------------- for callers
    def open(self) -> None:
        """Start the first member here, and let threads start the others; nothing, where that was
        done before.

        Raises:
            InvalidState: it was closed.
            OcisbxError: it cannot be started; nothing is left.
        """
        with self._arrived:
            self._check_open()
            if self._threads:
                return
        self._add(self._start_one())
        self._run_threads()

    def take(self) -> Member:
        """A sound member that nobody else has. `put_back` is owed for it; it counts as used then,
        or with `note_use`, for who has it for long.

        Raises:
            InvalidState: the pool was closed.
            OcisbxError: there is none, and none can be started.
        """
        with self._arrived:
            now = time.monotonic()
            self._check_open()
            self._busy += 1
            self._quiet_at = now + BEGIN_S
        try:
            member = self._find()
        except BaseException:
            with self._arrived:
                self._busy -= 1
            raise
        # Only now: what cannot start even one is not to be tried again and again.
        self._run_threads()
        return member

    def note_use(self, member: Member) -> None:
        """Count one that was taken as used; once."""
        with self._arrived:
            if member.is_counted:
                return
            member.is_counted = True
            now = time.monotonic()
            self._demand.note_call(now)
            if 2 * len(self._waiting) < self._demand.wanted(now):
                # As many more may be asked for before this one's call is over.
                self._work_to_do.notify()

    def put_back(self, member: Member, line: Callable[[], None] | None = None) -> None:
        """It has had its command: what is left of it is taken away, later; before that `line` is
        called."""
        with self._arrived:
            self.note_use(member)
            self._busy -= 1
            if not self._busy:
                self._quiet_at = time.monotonic() + QUIET_S
        self._see_off(member, line)

    def close(self) -> None:
        """End all that wait, and wait until all that is left of them is gone. Idempotent."""
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()
            self._work_to_do.notify_all()
        for thread in self._threads:
            thread.join()
        with self._arrived:
            waiting, ended = [*self._waiting], [*self._ended]
            self._waiting.clear()
            self._ended.clear()
        for one in ended:
            one.write()
        retire_all([*waiting, *(one.member for one in ended)])

    def counts(self) -> tuple[int, int, int]:
        """How many wait, are being started, and have a command."""
        with self._arrived:
            return len(self._waiting), self._starting, self._busy

    def after_fork(self) -> None:
        """In the child: the members are the parent's; the first call starts some of its own."""
        closed = self._closed
        for member in (*self._waiting, *(one.member for one in self._ended)):
            member.forget()
        self._renew()
        self._closed = closed

    # ------------------------------------------------------------------------------- in between
    def _check_open(self) -> None:
        if self._closed:
            raise InvalidState("the pool was closed", remedy="make another one")

    def _find(self) -> Member:
        while (member := self._next()) is not None:
            if member.age_s < self._max_age_s and member.is_sound():
                return member
            self._see_off(member)
        return self._start_one()

    def _next(self) -> Member | None:
        """The one that waits longest; None: there is none, and none is coming."""
        with self._arrived:
            while not self._waiting and self._starting and not self._closed:
                self._arrived.wait(LOOK_S)
            self._check_open()
            if not self._waiting:
                return None
            return self._waiting.popleft()

    def _see_off(self, member: Member, line: Callable[[], None] | None = None) -> None:
        ended = Ended(member, line)
        with self._arrived:
            if not self._closed:
                self._ended.append(ended)
                self._work_to_do.notify()
                return
        # Of the threads none is left.
        ended.write()
        retire_all([member])

    def _add(self, member: Member) -> None:
        with self._arrived:
            self._waiting.append(member)
            self._arrived.notify()

    def _start_one(self) -> Member:
        started = time.monotonic()
        try:
            member = self._make()
        except OcisbxError:
            with self._arrived:
                self._back_off.note_failure(time.monotonic())
            raise
        with self._arrived:
            self._back_off.note_success()
            self._demand.note_start(time.monotonic() - started)
        return member

    # ------------------------------------------------------------------------------- the threads
    def _run_threads(self) -> None:
        with self._arrived:
            if self._threads or self._closed:
                return
            count = min(MOST_THREADS, 2 * self._most_starting, self._bounds.most)
            self._threads = [
                threading.Thread(target=self._work, name="ocisbx-pool", daemon=True)
                for _ in range(count)
            ]
            for thread in self._threads:
                thread.start()

    def _work(self) -> None:
        while (task := self._wait_for_task()) is not None:
            # What cannot be started is told to whoever asks next; what cannot be removed is gc's.
            with contextlib.suppress(OcisbxError):
                task()

    def _wait_for_task(self) -> Callable[[], None] | None:
        """What is to be done next; None: the pool was closed."""
        with self._arrived:
            while not self._closed:
                now = time.monotonic()
                if self._ended and not self._must_wait(now):
                    return self._ended.popleft().see_off
                if self._may_start(now):
                    self._starting += 1
                    return self._fill
                if (superfluous := self._superfluous(now)) is not None:
                    return superfluous.retire
                self._work_to_do.wait(self._pause_s(now))
        return None

    def _must_wait(self, now: float) -> bool:
        """Whether a call that has just begun, or may follow at once, needs the processors more."""
        many = 2 * len(self._ended) > max(2, self._demand.wanted(now))
        return bool(self._waiting) and now < self._quiet_at and not many

    def _may_start(self, now: float) -> bool:
        wanted = self._demand.wanted(now)
        if len(self._waiting) + self._starting >= wanted or self._back_off.holds(now):
            return False
        if self._starting >= self._most_starting:
            return False
        return 2 * len(self._waiting) < wanted or not self._must_wait(now)

    def _superfluous(self, now: float) -> Member | None:
        """One that is too old, or beyond what is wanted, or does nothing any more."""
        if not self._waiting:
            return None
        oldest = self._waiting[0]
        if oldest.age_s >= self._max_age_s or len(self._waiting) > self._demand.wanted(now):
            return self._waiting.popleft()
        if now < self._look_at:
            return None
        for member in self._waiting:
            # A runtime that has missed its container's end holds the init's socket open.
            if not member.is_sound():
                self._waiting.remove(member)
                return member
        self._look_at = now + REVIEW_S
        return None

    def _pause_s(self, now: float) -> float:
        moments = [max(now, self._look_at) if self._waiting else now + REVIEW_S]
        if now < self._quiet_at:
            moments.append(self._quiet_at)
        if self._back_off.holds(now):
            moments.append(self._back_off.until)
        if self._waiting:
            moments.append(self._waiting[0].born_s + self._max_age_s)
            if now < (idle_at := self._demand.idle_at()):
                moments.append(idle_at)
        return max(0.0005, min(moments) - now)

    def _fill(self) -> None:
        try:
            self._add(self._start_one())
        finally:
            with self._arrived:
                self._starting -= 1
                self._arrived.notify_all()
