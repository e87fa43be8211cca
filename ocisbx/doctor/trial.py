"""Trial: one runtime tried for real, with the default profile and the init, within 5 seconds."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ocisbx.config import Runtime, SandboxConfig
from ocisbx.errors import OcisbxError, RuntimeMissing
from ocisbx.probe.runtimes import find_runtimes, search_directories
from ocisbx.quirks import KNOWN_NAMES
from ocisbx.result import Enforced, Termination, describe_end
from ocisbx.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.host import Host, RuntimeBinary

TRIAL_TIMEOUT_S = 5.0
# The payload says what it sees of itself: whether a runtime ignores seccomp is tried, not read
# (linux.md 2.6, H8).
PAYLOAD = ("cat", "/proc/self/status")


@dataclass(frozen=True, slots=True)
class Trial:
    """How it went: `words` are empty when it worked, else those of whoever refused, with `remedy`.

    `status` holds the payload's own proc_pid_status(5), `enforcement` what its plan claimed.
    """

    runtime: RuntimeBinary
    words: str = ""
    remedy: str = ""
    wall_s: float = 0.0
    status: Mapping[str, str] = field(default_factory=dict)
    enforcement: Mapping[str, Enforced] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        return not self.words


def try_runtime(runtime: RuntimeBinary, *, timeout_s: float = TRIAL_TIMEOUT_S) -> Trial:
    """Run one container; never raises what ocisbx or the runtime has to say against it."""
    started = time.monotonic()
    try:
        config = SandboxConfig(
            workspace="none", timeout_s=timeout_s, runtime=Runtime(names=(runtime.path,))
        )
        sandbox = Sandbox(config, audit=False, start_timeout_s=timeout_s)
        sandbox.resolve()
        started = time.monotonic()
        result = sandbox.run(PAYLOAD)
    except OcisbxError as error:
        # "Ask the doctor" is no remedy for the doctor.
        remedy = "" if "ocisbx doctor" in error.remedy else error.remedy
        return Trial(runtime, str(error), remedy, wall_s=time.monotonic() - started)
    except OSError as error:
        # The kernel refused something in the middle of a launch: an answer too, not a crash.
        return Trial(runtime, str(error), wall_s=time.monotonic() - started)
    wall_s = time.monotonic() - started
    words = ""
    if result.termination is not Termination.EXITED or result.exit_code != 0:
        why = result.hint.why if result.hint else result.stderr.decode(errors="replace").strip()
        words = f"{PAYLOAD[0]} {describe_end(result)}" + (f": {why}" if why else "")
    status = parse_status(result.stdout.decode(errors="replace"))
    return Trial(runtime, words, wall_s=wall_s, status=status, enforcement=result.enforcement)


def parse_status(text: str) -> dict[str, str]:
    """`Name:\\tvalue` lines of proc_pid_status(5)."""
    rows = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, colon, value in rows if colon}


def strangers(host: Host) -> tuple[tuple[str, str], ...]:
    """(path, words) of programs that have a runtime's name and were not recognised as one."""
    known = {os.path.realpath(runtime.path) for runtime in host.runtimes}
    found = []
    for path in (f"{where}/{name}" for where in search_directories() for name in KNOWN_NAMES):
        real = os.path.realpath(path)
        if real in known or not os.access(path, os.X_OK):
            continue
        known.add(real)
        try:
            find_runtimes((path,))
        except RuntimeMissing as error:
            found.append((path, str(error)))
    return tuple(found)
