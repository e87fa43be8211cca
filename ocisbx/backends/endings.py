"""How a payload is ended (a schedule of ever harder steps, each certain to be reached), and what it
used.

Never by killing the runtime first: a killed runtime leaves its container running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.backends.base import START_TIMEOUT_S
from ocisbx.result import Pressure, ResourceUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.cgroup.box import Used
    from ocisbx.command import Status
    from ocisbx.init.protocol import Exited
    from ocisbx.outcome import Reason

# How long a SIGKILL inside, the container's end, and the runtime's own cleanup may each take.
SETTLE_S = 1.0


# Fields of ResourceUsage in seconds, by the counters of the cgroup.
COUNTED_S: dict[str, str] = {
    "cpu_user_s": "cpu_user_usec",
    "cpu_system_s": "cpu_system_usec",
    "cpu_throttled_s": "cpu_throttled_usec",
}
# In the order of Pressure's fields.
PRESSURES = ("cpu", "memory", "io")


class Patience:
    """How long a runtime may take to start the container: `given` seconds, or by this machine."""

    def __init__(self, given: float | None) -> None:
        self.limit_s = given or START_TIMEOUT_S
        self._renewable = given is None

    def renew(self) -> float:
        """The time is up: how many more seconds it gets. How slow this machine is, is measured
        only now, when a runtime is late."""
        if not self._renewable:
            return 0.0
        from ocisbx.probe.speed import slowness  # noqa: PLC0415 -- for who is late only

        passed_s, self.limit_s = self.limit_s, START_TIMEOUT_S * slowness()
        self._renewable = False
        return self.limit_s - passed_s


class Ways(NamedTuple):
    """What can be done about a payload, mildest first; each is called at most once."""

    terminate: Callable[[], None]
    kill_inside: Callable[[], None]
    kill_all: Callable[[], None]
    give_up: Callable[[], None]


class Escalation:
    """Steps that fall due one after the other; times are those of time.monotonic()."""

    def __init__(self, ways: Ways) -> None:
        self.reason: Reason | None = None
        self._ways = ways
        self._due: list[tuple[float, Callable[[], None]]] = []

    def begin(self, reason: Reason | None, now: float, grace_s: float) -> None:
        """Start ending it: SIGTERM now, SIGKILL after the grace (0: SIGKILL now).

        The first reason stands; being asked again only hurries.
        """
        self.reason = self.reason or reason
        if self._due:
            self._hurry(now)
            return
        kill_at = now + grace_s
        self._due = [
            (kill_at, self._ways.kill_inside),
            (kill_at + SETTLE_S, self._ways.kill_all),
            (kill_at + 2 * SETTLE_S, self._ways.give_up),
        ]
        if grace_s > 0:
            self._due.insert(0, (now, self._ways.terminate))

    def _hurry(self, now: float) -> None:
        late = [step for _, step in self._due if step is not self._ways.terminate]
        self._due = [(now + SETTLE_S * turn, step) for turn, step in enumerate(late)]

    @property
    def next_at(self) -> float | None:
        """When the next step falls due; None: nothing is."""
        return self._due[0][0] if self._due else None

    def advance(self, now: float) -> None:
        """Take every step that has fallen due."""
        while self._due and self._due[0][0] <= now:
            self._due.pop(0)[1]()

    def stop(self) -> None:
        """It has ended: nothing more is due."""
        self._due.clear()


def measured(
    exited: Exited | None,
    runtime: Status | None,
    used: Used | None,
    wall_s: float | None,
    *,
    runtime_inside: bool = False,
) -> ResourceUsage:
    """What the payload used, by its init and by its cgroup, and what its runtime used beside.

    The cgroup knows all that ran in it; the init only those that were waited for (getrusage(2)).
    `runtime_inside`: of a runtime in the same cgroup only what it used before the payload started
    can be told apart.
    """
    payload_s = user_s = system_s = None
    if exited is not None:
        total, wall_s = exited.total, exited.wall_ns / 1e9
        user_s, system_s = total.user_usec / 1e6, total.system_usec / 1e6
        payload_s = user_s + system_s
    told = ResourceUsage(
        wall_s=wall_s,
        cpu_user_s=user_s,
        cpu_system_s=system_s,
        runtime_cpu_s=_beside(runtime, payload_s),
    )
    if used is None:
        return told
    counted_s = _sum_s(used.since("cpu_user_usec"), used.since("cpu_system_usec"))
    payload_s = payload_s if counted_s is None else counted_s
    before = used.before
    runtime_s = (
        _sum_s(before.cpu_user_usec, before.cpu_system_usec)
        if runtime_inside
        else _beside(runtime, payload_s)
    )
    return told._replace(runtime_cpu_s=runtime_s, **_counted(used))


def since_hand_over(exited: Exited, spent: tuple[int, int], wall_s: float) -> Exited:
    """What a payload that ran before its call used since; `spent`: before, user and system time in
    microseconds."""
    total = exited.total
    total = total._replace(
        user_usec=max(0, total.user_usec - spent[0]),
        system_usec=max(0, total.system_usec - spent[1]),
    )
    return exited._replace(total=total, wall_ns=int(wall_s * 1e9))


def _beside(runtime: Status | None, payload_s: float | None) -> float | None:
    """The runtime's own time; the payload's is in its sum, through the init that it has waited for.

    All the payload's: what the init leaves behind, the kernel's end of its namespace waits for.
    """
    if runtime is None or payload_s is None:
        return None
    # One that was killed has waited for nobody.
    waited_s = payload_s if runtime.signal is None else 0.0
    return max(0.0, runtime.cpu_s - waited_s)


def _sum_s(*parts: int | None) -> float | None:
    """The sum in seconds, where a part is known."""
    known = [usec for usec in parts if usec is not None]
    return sum(known) / 1e6 if known else None


def _counted(used: Used) -> dict[str, Any]:
    """The fields of ResourceUsage that this cgroup could tell."""
    now = used.now
    found: dict[str, Any] = {
        field: seconds
        for field, counter in COUNTED_S.items()
        if (seconds := _seconds(used.since(counter))) is not None
    }
    pressure = (_seconds(used.since(f"pressure_{what}_usec")) for what in PRESSURES)
    return found | {
        "memory_peak_bytes": now.memory_peak_bytes,
        "pids_peak": now.pids_peak,
        "io_read_bytes": used.since("io_read_bytes"),
        "io_write_bytes": used.since("io_write_bytes"),
        "oom_kills": used.since("oom_kills"),
        "pressure": Pressure(*pressure),
    }


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / 1e6
