"""classify() over every combination of evidence: whose failure, and what was the payload's end."""

from __future__ import annotations

import errno
import itertools

import pytest

from ocisbx.outcome import (
    NOT_EXECUTABLE_ERRNOS,
    NOT_FOUND_ERRNOS,
    REASON_TERMINATIONS,
    STAGES,
    End,
    Evidence,
    Failure,
    Reason,
    StartFailure,
    Verdict,
    classify,
)
from ocisbx.result import SHELL_EXIT_CODES
from ocisbx.result import Termination as T

EXITED = [End(code, None) for code in (0, 1, 2, 124, 125, 126, 127, 130, 137, 141, 255)]
SIGNALED = [End(None, number) for number in (1, 2, 6, 9, 11, 15, 31, 64)]
# What a runtime returns says nothing about a payload whose init has reported.
RUNTIME_STATUSES = (None, 0, 1, 125, 126, 127, 137, 255, -9, -15)
RUNTIME_WORDS = ("", "executable file not found in $PATH", "out of memory", "no such file")


@pytest.mark.parametrize("end", [*EXITED, *SIGNALED], ids=repr)
@pytest.mark.parametrize("reason", [None, *Reason])
def test_a_payloads_own_end_stands(end: End, reason: Reason | None) -> None:
    """Also when the driver wanted to end it, unless its signal reached the payload in its life."""
    expected = (
        Verdict(T.SIGNALED, signal=end.signal)
        if end.signal is not None
        else Verdict(T.EXITED, exit_code=end.exit_code)
    )
    for status, words in itertools.product(RUNTIME_STATUSES, RUNTIME_WORDS):
        evidence = Evidence(
            ready=True, report=end, reason=reason, runtime_status=status, runtime_error=words
        )
        assert classify(evidence) == expected


@pytest.mark.parametrize("end", [*EXITED, *SIGNALED], ids=repr)
@pytest.mark.parametrize("reason", list(Reason))
def test_what_the_driver_ended_is_the_drivers_doing(end: End, reason: Reason) -> None:
    hit = End(end.exit_code, end.signal, signals_delivered=1)
    for oom, pids in itertools.product((False, True), repeat=2):
        evidence = Evidence(
            ready=True, report=hit, reason=reason, runtime_status=0, oom_killed=oom,
            pids_limit_hit=pids,
        )  # fmt: skip
        assert classify(evidence) == Verdict(REASON_TERMINATIONS[reason])


# (end, oom_killed, pids_limit_hit) -> verdict
LIMITS = [
    (End(None, 9), True, False, Verdict(T.OOM_KILLED, signal=9)),
    (End(None, 9), True, True, Verdict(T.OOM_KILLED, signal=9)),
    (End(None, 9), False, False, Verdict(T.SIGNALED, signal=9)),
    (End(None, 15), True, False, Verdict(T.SIGNALED, signal=15)),
    (End(137, None), True, False, Verdict(T.EXITED, exit_code=137)),
    (End(0, None), True, False, Verdict(T.EXITED, exit_code=0)),
    (End(0, None), False, True, Verdict(T.EXITED, exit_code=0)),
    (End(2, None), False, True, Verdict(T.PIDS_LIMIT, exit_code=2)),
    (End(None, 6), False, True, Verdict(T.PIDS_LIMIT, signal=6)),
]


@pytest.mark.parametrize(("end", "oom", "pids", "verdict"), LIMITS)
def test_limits(end: End, oom: bool, pids: bool, verdict: Verdict) -> None:  # noqa: FBT001 -- columns
    evidence = Evidence(
        ready=True, report=end, runtime_status=0, oom_killed=oom, pids_limit_hit=pids
    )
    assert classify(evidence) == verdict


# (oom_killed, pids_limit_hit) -> verdict, of an init that started the payload and fell silent
SILENT = [
    (False, False, T.SIGNALED),
    (False, True, T.PIDS_LIMIT),
    (True, False, T.OOM_KILLED),
    (True, True, T.OOM_KILLED),
]


@pytest.mark.parametrize(("oom", "pids", "termination"), SILENT)
def test_a_limit_that_ended_everything_inside(oom: bool, pids: bool, termination: T) -> None:  # noqa: FBT001 -- columns
    evidence = Evidence(
        ready=True, started=True, runtime_status=1, oom_killed=oom, pids_limit_hit=pids
    )
    assert classify(evidence) == Verdict(termination, signal=9)


@pytest.mark.parametrize("number", sorted(errno.errorcode))
@pytest.mark.parametrize("stage", [*STAGES, 99])
def test_a_payload_that_never_ran(number: int, stage: int) -> None:
    found = classify(Evidence(ready=True, report=StartFailure(stage, number), runtime_status=1))
    if stage == 4 and number in NOT_FOUND_ERRNOS:
        assert found == Verdict(T.NOT_FOUND)
    elif stage == 4 and number in NOT_EXECUTABLE_ERRNOS:
        assert found == Verdict(T.NOT_EXECUTABLE)
    else:
        assert isinstance(found, Failure)
        assert found.what
        assert found.why


def test_the_two_sets_are_apart() -> None:
    assert not NOT_FOUND_ERRNOS & NOT_EXECUTABLE_ERRNOS
    for number in (errno.ENOMEM, errno.EAGAIN, errno.E2BIG, errno.EMFILE, errno.EIO):
        assert number not in NOT_FOUND_ERRNOS | NOT_EXECUTABLE_ERRNOS


@pytest.mark.parametrize("status", RUNTIME_STATUSES)
@pytest.mark.parametrize("words", RUNTIME_WORDS)
def test_without_a_report_it_is_the_runtimes_failure(status: int | None, words: str) -> None:
    """Never a payload's end: 126, 127 and 137 of a runtime are its own."""
    before = classify(Evidence(runtime_status=status, runtime_error=words))
    assert isinstance(before, Failure)
    assert before.what == "the runtime could not start the container"
    assert words in before.why
    after = classify(Evidence(ready=True, runtime_status=status, runtime_error=words))
    assert isinstance(after, Failure)
    assert after.what == "the container was killed from outside before its payload ended"


SHORT = [
    (Evidence(oom_killed=True), "it was killed for memory: "),
    (Evidence(pids_limit_hit=True), "it hit the limit of processes: "),
]


@pytest.mark.parametrize(("evidence", "words"), SHORT)
def test_a_limit_that_the_runtime_itself_ran_into(evidence: Evidence, words: str) -> None:
    """No end of the payload either: that never ran."""
    found = classify(evidence._replace(runtime_status=1, runtime_error="cannot fork"))
    assert found == Failure("the runtime could not start the container", f"{words}cannot fork")


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("ready", [False, True])
def test_without_a_report_a_reason_of_the_drivers_stands(reason: Reason, ready: object) -> None:
    evidence = Evidence(ready=bool(ready), reason=reason, runtime_status=-9)
    assert classify(evidence) == Verdict(REASON_TERMINATIONS[reason])


@pytest.mark.parametrize("status", RUNTIME_STATUSES)
def test_a_container_killed_while_its_payload_ran(status: int | None) -> None:
    """The kernel ends all of a container with its init: SIGKILL, whatever the runtime returns."""
    evidence = Evidence(ready=True, started=True, runtime_status=status)
    assert classify(evidence) == Verdict(T.SIGNALED, signal=9)


# A runtime that carries no report: its status is all there is (a shell's 128+N).
STATUSES = [
    (0, Verdict(T.EXITED, exit_code=0)),
    (127, Verdict(T.EXITED, exit_code=127)),
    (128, Verdict(T.EXITED, exit_code=128)),
    (137, Verdict(T.SIGNALED, signal=9)),
    (143, Verdict(T.SIGNALED, signal=15)),
]


@pytest.mark.parametrize(("status", "verdict"), STATUSES)
def test_runtimes_without_a_report(status: int, verdict: Verdict) -> None:
    assert classify(Evidence(ready=True, runtime_status=status, reports=False)) == verdict


def test_exit_codes_of_the_shell() -> None:
    """interface.md, `Exit code of run`."""
    assert SHELL_EXIT_CODES == {
        T.TIMED_OUT: 124, T.NOT_EXECUTABLE: 126, T.NOT_FOUND: 127, T.CANCELLED: 130,
        T.OOM_KILLED: 137, T.OUTPUT_LIMIT: 141,
    }  # fmt: skip
    assert set(T) - set(SHELL_EXIT_CODES) == {T.EXITED, T.SIGNALED, T.PIDS_LIMIT}
