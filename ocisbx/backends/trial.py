"""Trial: a runtime tried for real, with the default profile and the init's self-test, in 5 s (on a
slow machine in as many times more: probe.speed).

What came of it is remembered (`probe.remembered`), so that a call costs a trial only once for each
runtime, kernel and boot.
"""

from __future__ import annotations

import os
import time
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.backends.base import Call
from ocisbx.backends.lower import lower
from ocisbx.backends.oci import OciBackend
from ocisbx.config import Runtime, SandboxConfig
from ocisbx.container.merge import merge_preset
from ocisbx.container.resolve import resolve
from ocisbx.container.select import platforms
from ocisbx.errors import CgroupError, OcisbxError
from ocisbx.init.selftest import ARGV, SelfTest, parse_self_test
from ocisbx.outcome import Failure
from ocisbx.places import find_places
from ocisbx.probe.cgroups import doubted
from ocisbx.probe.gather import gather
from ocisbx.probe.remembered import TrialRecord, runtime_memory
from ocisbx.probe.speed import slowness
from ocisbx.quirks import find_quirks
from ocisbx.result import Termination

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ocisbx.host import Host, RuntimeBinary
    from ocisbx.plan import Plan

TRIAL_TIMEOUT_S = 5.0
# What a platform gets at least: a share is told in tenths of a second.
SHORTEST_S = 0.1
# A bundle, and what a runtime writes of its container, need less.
ROOM_BYTES = 1 << 20
# What it takes to say in whose words a start was given up.
SETTLE_S = 0.5

# What the payload must see of itself under the default profile, by name of `enforcement`: a field
# of SelfTest and its value.
EXPECTED: tuple[tuple[str, str, object], ...] = (
    ("seccomp", "seccomp", 2),
    ("no_new_privileges", "no_new_privs", True),
    *(
        ("capabilities", name, 0)
        for name in ("cap_eff", "cap_prm", "cap_inh", "cap_bnd", "cap_amb")
    ),
)
# What must be refused to it, by whatever errno.
REFUSED: tuple[tuple[str, str], ...] = (("seccomp", "personality"),)


class Trial(NamedTuple):
    """How it went: `words` are empty when it worked, else those of whoever refused, with `remedy`.

    `inside` holds the fields of SelfTest; empty where it did not come to it.
    """

    runtime: RuntimeBinary
    words: str = ""
    remedy: str = ""
    wall_s: float = 0.0
    inside: Mapping[str, Any] = MappingProxyType({})

    @property
    def works(self) -> bool:
        return not self.words


class Trier:
    """Tries runtimes on this host; looks at it once, when the first has to be tried.

    `again` believes nothing that is remembered; without `may_try` nothing else counts.
    `timeout_s` is for one runtime, whatever the number of its platforms; None: TRIAL_TIMEOUT_S, by
    the machine's speed.
    """

    def __init__(
        self, *, again: bool = False, may_try: bool = True, timeout_s: float | None = None
    ) -> None:
        self._again = again
        self._may_try = may_try
        self._given_timeout_s = timeout_s
        self._host: Host | None = None
        self._doubts = False
        # By path and platform: what this one has tried itself, which stands.
        self._made: dict[tuple[str, str | None], TrialRecord] = {}

    def doubt(self) -> None:
        """From now on a remembered failure is tried again: it may have been helped since."""
        self._doubts = True

    def try_runtime(self, runtime: RuntimeBinary, platform: str | None = None) -> Trial:
        """The runtime with what is known of it, platform by platform until one works."""
        if runtime.trouble:
            return Trial(runtime, runtime.trouble, runtime.remedy)
        passed: list[str] = []
        trial = Trial(runtime, "it has no platform to try")
        tried = platforms(runtime, platform)
        started = time.monotonic()
        for number, one in enumerate(tried):
            share_s = partial(self._share_s, started, len(tried) - number)
            record = self._record(runtime, one, share_s)
            trial = Trial(
                _annotated(runtime, one, record, "; ".join(passed)),
                words=record.words,
                remedy=record.remedy,
                wall_s=record.wall_s,
                inside=record.inside,
            )
            if trial.works:
                break
            passed.append(f"{one}: {record.words}")
        return trial

    def _share_s(self, started: float, sharers: int) -> float:
        """What one of so many platforms gets of the time that is left."""
        left_s = started + self._timeout_s - time.monotonic()
        return round(max(SHORTEST_S, left_s) / sharers, 1)

    @property
    def _timeout_s(self) -> float:
        given = self._given_timeout_s
        return TRIAL_TIMEOUT_S * slowness() if given is None else given

    def _record(
        self, runtime: RuntimeBinary, platform: str | None, share_s: Callable[[], float]
    ) -> TrialRecord:
        """How it did before, or does now."""
        key = (runtime.path, platform)
        if key in self._made:
            return self._made[key]
        memory = runtime_memory()
        known = None if self._again else memory.trial(runtime.path, platform)
        if known is not None and _tells(known) and not (self._doubts and known.words):
            return known
        if not self._may_try:
            return TrialRecord("", "", 0.0, 0.0, {})
        started = time.monotonic()
        words, remedy, inside = "", "", None
        try:
            words, inside = self._run(runtime, platform, share_s())
        except OcisbxError as error:
            # "Ask the doctor" is no remedy for the doctor.
            words, remedy = str(error), "" if "ocisbx doctor" in error.remedy else error.remedy
        except OSError as error:
            # The kernel refused something in the middle of a launch: an answer too.
            words = str(error)
        seen = {} if inside is None else inside._asdict()
        made = TrialRecord(words, remedy, time.monotonic() - started, time.time(), seen)
        # A full disk says nothing of the runtime.
        if not words or _has_room():
            memory.put_trial(runtime.path, platform, made)
            memory.save()
        self._made[key] = made
        return made

    def plan(self, runtime: RuntimeBinary, platform: str | None) -> Plan:
        """What a trial runs: the default preset, without a workspace.

        Raises:
            OcisbxError: this host cannot run it.
        """
        config = SandboxConfig(
            workspace="none", timeout_s=self._timeout_s, runtime=Runtime(names=(runtime.path,))
        )
        if self._host is None:
            self._host = gather(merge_preset(config))
        one = runtime.model_copy(update={"platform": platform, "trouble": "", "ignores": ()})
        host = self._host.model_copy(update={"runtimes": (one,)})
        return lower(config, resolve(config, host), host)

    def _run(
        self, runtime: RuntimeBinary, platform: str | None, timeout_s: float
    ) -> tuple[str, SelfTest | None]:
        try:
            return self._tested(self.plan(runtime, platform), timeout_s)
        except CgroupError as error:
            # The host's trouble, and none of the runtime's.
            with doubted(f"{error.what}: {error.why}"):
                self._host = None
                plan = self.plan(runtime, platform)
            return self._tested(plan, timeout_s)

    def _tested(self, plan: Plan, timeout_s: float) -> tuple[str, SelfTest | None]:
        call = Call(argv=ARGV, environment={}, start_timeout_s=timeout_s)
        with OciBackend().launch(plan, call) as execution:
            verdict = execution.wait(timeout_s + SETTLE_S)
            if verdict is None:
                return f"it had not ended after {timeout_s:g} s", None
            captured, _ = execution.stdio.finish(keep=False)
        if isinstance(verdict, Failure):
            return f"{verdict.what}: {verdict.why}", None
        if verdict.termination is not Termination.EXITED or verdict.exit_code != 0:
            shown = captured.read()[-200:]
            return f"the self-test ended: {verdict.termination}, {shown!r}", None
        return "", parse_self_test(captured.read())


def _has_room() -> bool:
    """Whether a start that failed had room for what it writes."""
    try:
        info = os.statvfs(os.path.dirname(find_places().runtime))
    except OSError:
        return False
    return info.f_bavail * info.f_frsize >= ROOM_BYTES and (info.f_favail > 0 or not info.f_files)


def _tells(record: TrialRecord) -> bool:
    """Whether it is a failure, or a whole self-test of this version."""
    return bool(record.words) or set(record.inside) == set(SelfTest._fields)


def _annotated(
    runtime: RuntimeBinary, platform: str | None, record: TrialRecord, passed_over: str
) -> RuntimeBinary:
    return runtime.model_copy(
        update={
            "platform": platform,
            "passed_over": passed_over,
            "trouble": record.words,
            "remedy": record.remedy,
            "ignores": _ignored(runtime, record),
            "landlock_abi": record.inside.get("landlock"),
        }
    )


def _ignored(runtime: RuntimeBinary, record: TrialRecord) -> tuple[str, ...]:
    """What it said yes to and did not do: seen by the payload, not read from a version."""
    if record.words or not record.inside:
        return ()
    untold = find_quirks(runtime.name, runtime.version).untold
    names = [
        name
        for name, field, wanted in EXPECTED
        if record.inside.get(field) != wanted and field not in untold
    ]
    names += [name for name, field in REFUSED if record.inside.get(field) == 0]
    return tuple(dict.fromkeys(names))
