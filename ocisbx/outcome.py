"""classify(): from evidence to a verdict, or to whose failure it was. Pure, tested as a table.

Nothing that the payload printed or returned is looked at: its end is known from the init's report,
which the payload can neither read nor write (ocisbx-init(7)).
"""

from __future__ import annotations

import errno
import os
from enum import StrEnum
from typing import NamedTuple

from ocisbx.result import Termination


class Reason(StrEnum):
    """Why the driver itself ended the payload."""

    TIMEOUT = "timeout"
    OUTPUT = "output"
    CANCEL = "cancel"


REASON_TERMINATIONS: dict[Reason, Termination] = {
    Reason.TIMEOUT: Termination.TIMED_OUT,
    Reason.OUTPUT: Termination.OUTPUT_LIMIT,
    Reason.CANCEL: Termination.CANCELLED,
}

# execve(2): what says that there is nothing by this name (the program, or the interpreter that
# its first line names)...
NOT_FOUND_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
# ... and what says that it is there and cannot run.
NOT_EXECUTABLE_ERRNOS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EISDIR,
        errno.ENOEXEC,
        errno.EINVAL,
        errno.ELIBBAD,
        errno.ETXTBSY,
    }
)

# What runsc returns for a failure of its own (runsc/cmd/util, Fatalf).
RUNTIME_FAILED = 128

STAGES: dict[int, str] = {
    1: "a process cannot be started in the container",
    2: "the payload's descriptors cannot be set up",
    3: "the working directory cannot be entered",
    4: "the command cannot be executed",
    5: "Landlock cannot be set up",
    6: "the command cannot become that user: the container has not the right to change ids",
    7: "the command cannot have the terminal",
}


class End(NamedTuple):
    """The init's report of the payload's end: an exit code or a signal, never both."""

    exit_code: int | None
    signal: int | None
    # Signals of the driver that reached the payload while it lived.
    signals_delivered: int = 0


class StartFailure(NamedTuple):
    """The init's report that the payload never ran: at which stage, and the errno."""

    stage: int
    errno: int


class Evidence(NamedTuple):
    """All that is known once the runtime has ended (statuses: exit code, or -signal)."""

    ready: bool = False
    started: bool = False
    report: End | StartFailure | None = None
    reason: Reason | None = None
    runtime_status: int | None = None
    runtime_error: str = ""
    # The runtime cannot carry our socket: its own exit status is the payload's (runsc of 2022).
    reports: bool = True
    # Where nothing is reported: how many of the driver's signals the runtime took on.
    signals_sent: int = 0
    oom_killed: bool = False
    pids_limit_hit: bool = False


class Verdict(NamedTuple):
    """The payload's end."""

    termination: Termination
    exit_code: int | None = None
    signal: int | None = None


class Failure(NamedTuple):
    """Not the payload's doing: what failed, and in whose words."""

    what: str
    why: str


def classify(evidence: Evidence) -> Verdict | Failure:
    """Decide what happened; a reason of the driver's stands only where it reached the payload."""
    report = evidence.report
    if report is None and not evidence.reports:
        report = _from_status(evidence)
    if isinstance(report, StartFailure):
        return _start_failure(report)
    if isinstance(report, End):
        return _end(report, evidence)
    if evidence.reason is not None:
        return Verdict(REASON_TERMINATIONS[evidence.reason])
    if evidence.oom_killed and (evidence.ready or not evidence.reports):
        return Verdict(Termination.OOM_KILLED, signal=9)
    if evidence.started:
        # The init died without a word. Only a SIGKILL ends it, and everything inside with it;
        # nobody but the payload (its init's limits, memory) or somebody outside sends one. A kernel
        # in user space dies so of the limit on processes, when it is refused a thread.
        hit = evidence.pids_limit_hit
        return Verdict(Termination.PIDS_LIMIT if hit else Termination.SIGNALED, signal=9)
    return _runtime_failure(evidence)


def _end(end: End, evidence: Evidence) -> Verdict:
    if evidence.reason is not None and end.signals_delivered:
        return Verdict(REASON_TERMINATIONS[evidence.reason])
    failed = end.exit_code != 0
    if evidence.oom_killed and end.signal == 9:
        return Verdict(Termination.OOM_KILLED, signal=9)
    if evidence.pids_limit_hit and failed:
        return Verdict(Termination.PIDS_LIMIT, end.exit_code, end.signal)
    if end.signal is not None:
        return Verdict(Termination.SIGNALED, signal=end.signal)
    return Verdict(Termination.EXITED, exit_code=end.exit_code)


def _from_status(evidence: Evidence) -> End | None:
    status = evidence.runtime_status
    if status is None or status < 0:
        return None
    if status == RUNTIME_FAILED and evidence.runtime_error:
        return None
    # A shell's habit, shared by every runtime: 128+N for a payload that signal N killed. What a
    # payload returns by itself above 128 cannot be told from it on such a runtime.
    if status > 128:
        return End(None, status - 128, evidence.signals_sent)
    return End(status, None, evidence.signals_sent)


def _start_failure(failure: StartFailure) -> Verdict | Failure:
    if failure.stage == 4 and failure.errno in NOT_FOUND_ERRNOS:
        return Verdict(Termination.NOT_FOUND)
    if failure.stage == 4 and failure.errno in NOT_EXECUTABLE_ERRNOS:
        return Verdict(Termination.NOT_EXECUTABLE)
    what = STAGES.get(failure.stage, "the payload was not started")
    return Failure(what, os.strerror(failure.errno))


def _runtime_failure(evidence: Evidence) -> Failure:
    status = evidence.runtime_status
    if status is None:
        ended = "it did not end"
    elif status < 0:
        ended = f"it was killed by signal {-status}"
    else:
        ended = f"it ended with {status}"
    what = (
        "the container was killed from outside before its payload ended"
        if evidence.ready
        else "the runtime could not start the container"
    )
    why = evidence.runtime_error or ended
    if evidence.oom_killed:
        why = f"it was killed for memory: {why}"
    elif evidence.pids_limit_hit:
        why = f"it hit the limit of processes: {why}"
    return Failure(what, why)
