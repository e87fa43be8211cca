"""At most so many sandboxes of one user at once, over all its processes: flock'd slots [49].

`slots/` has a file for each sandbox that runs under a cap, and flock(2) on that file is the slot.
The kernel lets go of it when the driver dies, however it dies: no count outlives what it counts.
Who looks for a slot holds the lock of the directory, so that no two count at the same time, and
callers with different caps count the same sandboxes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shlex
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.audit import redact
from ocisbx.bundle.owner import read_owner
from ocisbx.errors import BundleError, ConfigError, InvalidState, OcisbxError
from ocisbx.places import ensure, find_places
from ocisbx.quantities import UNLIMITED, parse_sandboxes
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.bundle.owner import Owner

    Pause = Callable[[float], None]
    Tell = Callable[[str], None]

CAP_VARIABLE = "OCISBX_MAX_SANDBOXES"
# A slot that comes free is seen after half of it. No longer pauses for who has waited longer: those
# who come later would overtake it.
FIRST_PAUSE_S = 0.005
PAUSE_S = 0.05
# Hundreds of threads that wait look together no more often than this, as far as one of them does
# not sleep past its turn for it.
EACH_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.5
# Silence up to then.
TELL_AFTER_S = 2.0
# The directory's lock is held for microseconds, unless its holder was stopped just then.
STUCK_AFTER_S = 20.0
STUCK_PAUSE_S = 0.001
# A slot is never waited for, nor followed, nor becomes a terminal of ours: whatever it is.
FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What the process or the host is short of: nothing is wrong with the slots.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
ID_BYTES = 64
SHOWN_HOLDERS = 3


_waiting: set[object] = set()


class Cap(NamedTuple):
    """`most` sandboxes at once; `said`: what asked for that. `wait_s` None: without end."""

    most: int
    said: str
    wait_s: float | None


class Slot:
    """A slot that is held: until `release`, or this process's death."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Whether the host had time to change since the caller looked at it.
        self.waited = False

    def note(self, container_id: str) -> None:
        """Write whose it is, for those who are refused; a full disk is no reason to fail."""
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, container_id.encode(), 0)

    def release(self) -> None:
        # Closing alone would not do where a child was forked meanwhile, which has it open too.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def find_cap(most: int | None, wait_s: float | None) -> Cap | None:
    """The lower one of the configuration's cap and the environment's; None: there is none.

    Raises:
        ConfigError: the environment's is no number.
    """
    text = os.environ.get(CAP_VARIABLE, "")
    try:
        ceiling = parse_sandboxes(text) if text else UNLIMITED
    except ConfigError as error:
        what = f"{CAP_VARIABLE}: {error.what}"
        raise ConfigError(what, why=error.why, remedy=f"unset {CAP_VARIABLE}") from None
    if ceiling != UNLIMITED and (most is None or ceiling < most):
        return Cap(ceiling, CAP_VARIABLE, wait_s)
    return None if most is None else Cap(most, "--max-sandboxes, concurrency.max", wait_s)


@contextlib.contextmanager
def hold_slot(cap: Cap, pause: Pause = time.sleep, tell: Tell | None = None) -> Iterator[Slot]:
    """Hold a slot. `pause` sleeps while there is none, and raises to give up; `tell` is told once
    when it takes long.

    Raises:
        InvalidState: as many as may run did, for `cap.wait_s`.
        OcisbxError: the directory of slots, or a slot, cannot be used.
    """
    ensure(find_places().runtime)
    slot = _wait(ensure(find_places().slots), cap, pause, tell)
    try:
        yield slot
    finally:
        slot.release()


def _wait(directory: str, cap: Cap, pause: Pause, tell: Tell | None) -> Slot:
    slot = take(directory, cap.most, pause)
    if slot is not None:
        return slot
    me = object()
    _waiting.add(me)
    try:
        slot = _look_again(directory, cap, pause, tell)
    finally:
        _waiting.discard(me)
    slot.waited = True
    return slot


def _look_again(directory: str, cap: Cap, pause: Pause, tell: Tell | None) -> Slot:
    started = time.monotonic()
    pause_s = FIRST_PAUSE_S
    slot = None
    while slot is None:
        waited_s = time.monotonic() - started
        left_s = LONGEST_PAUSE_S if cap.wait_s is None else cap.wait_s - waited_s
        if left_s <= 0:
            raise _refusal(directory, cap)
        if tell is not None and waited_s >= TELL_AFTER_S:
            tell(f"ocisbx: waiting for a slot: {_rule(cap)} (ocisbx ps lists them)")
            tell = None
        # From half of it to one and a half: those who wait do not all look at once.
        jitter = 0.5 + os.urandom(1)[0] / 256
        crowd_s = min(EACH_PAUSE_S * len(_waiting), LONGEST_PAUSE_S)
        pause(min(max(pause_s, crowd_s) * jitter, left_s))
        pause_s = min(2 * pause_s, PAUSE_S)
        slot = take(directory, cap.most, pause)
    return slot


def take(directory: str, most: int, pause: Pause = time.sleep) -> Slot | None:
    """A slot, where fewer than `most` are held.

    Raises:
        OcisbxError: a slot cannot be used, or the directory's lock does not come free.
    """
    try:
        gate = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError as error:
        remedy = f"chmod 700 {shlex.quote(directory)}"
        what = f"{directory} cannot be read"
        raise OcisbxError(what, why=error.strerror or "", remedy=remedy) from error
    try:
        _enter(gate, directory, pause)
        try:
            return _pick(gate, directory, most)
        finally:
            # As in Slot.release.
            fcntl.flock(gate, fcntl.LOCK_UN)
    finally:
        os.close(gate)


def _enter(gate: int, directory: str, pause: Pause) -> None:
    """Lock the directory, without hanging on a process that was stopped while it had the lock."""
    deadline = time.monotonic() + STUCK_AFTER_S
    while not _lock(gate):
        if time.monotonic() > deadline:
            raise OcisbxError(
                f"{directory} has been locked for {STUCK_AFTER_S:g} s",
                why="who counts your sandboxes in it was stopped meanwhile",
                remedy="lslocks -o PID,PATH tells who: continue it (kill -CONT PID) or end it",
            )
        pause(STUCK_PAUSE_S)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pick(gate: int, directory: str, most: int) -> Slot | None:
    names = {name for name in os.listdir(gate) if name.isdecimal()}
    held = 0
    for name in names:
        descriptor = _open(gate, directory, name)
        if not _lock(descriptor):
            os.close(descriptor)
            held += 1
            if held == most:
                return None
        elif len(names) <= most:
            # The others are fewer than `most`, whether held or not.
            return Slot(descriptor)
        else:
            # Of a time with a higher cap.
            os.unlink(name, dir_fd=gate)
            os.close(descriptor)
    unused = next(name for name in map(str, itertools.count()) if name not in names)
    descriptor = _open(gate, directory, unused, os.O_CREAT | os.O_EXCL)
    # Nobody else opens slots without the directory's lock.
    _lock(descriptor)
    return Slot(descriptor)


def _open(gate: int, directory: str, name: str, new: int = 0) -> int:
    """A slot's file, which has to be a file of ours."""
    try:
        descriptor = os.open(name, FLAGS | new, 0o600, dir_fd=gate)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        raise _unusable(f"{directory}/{name}", error.strerror or "", new=bool(new)) from error
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
        os.close(descriptor)
        why = f"owner {info.st_uid}, mode {stat.filemode(info.st_mode)}"
        raise _unusable(f"{directory}/{name}", why)
    if new:
        # Whatever the caller's umask.
        os.fchmod(descriptor, 0o600)
    return descriptor


def _unusable(path: str, why: str, *, new: bool = False) -> OcisbxError:
    if new:
        remedy = "make room there, or make it writable; or run without a cap"
        return OcisbxError(f"the slot {path} cannot be made", why=why, remedy=remedy)
    return OcisbxError(
        f"the slot {path} is not a file that you own and may write",
        why=why,
        remedy=f"remove it: rm -rf {shlex.quote(path)}",
    )


def _rule(cap: Cap) -> str:
    return f"no more than {cap.most} of your sandboxes may run at once"


def _refusal(directory: str, cap: Cap) -> InvalidState:
    owners = _holders(directory)
    shown = [f"{one.id} {show(shlex.join(redact(one.command)))}" for one in owners[:SHOWN_HOLDERS]]
    if more := cap.most - len(shown):
        shown.append(f"{more} more" if shown else f"{more} that are starting or ending")
    free = f"no slot came free in {cap.wait_s:g} s" if cap.wait_s else "no slot is free"
    return InvalidState(
        f"{free}: {_rule(cap)} ({cap.said})",
        why=", ".join(shown),
        remedy="wait longer for one to end (--wait SECONDS, concurrency.wait_s), end one of them "
        "(ocisbx ps lists them), or allow more",
    )


def _holders(directory: str) -> list[Owner]:
    """Who is known of the sandboxes that hold slots: the names in the others are of bundles that
    are gone."""
    found = []
    for name in os.listdir(directory):
        try:
            descriptor = os.open(f"{directory}/{name}", FLAGS)
            with os.fdopen(descriptor, "rb") as file:
                container_id = file.read(ID_BYTES).decode("ascii")
            if container_id.isalnum():
                owner = read_owner(f"{find_places().bundles}/{container_id}")
                found += [owner] if owner.alive() else []
        except (OSError, ValueError, BundleError):
            continue
    return sorted(found, key=lambda owner: owner.created_at)
