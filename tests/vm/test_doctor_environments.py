"""`ocisbx doctor` and `run --memory` where limits hold, and where the remedy is needed first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vm.environments import PYTHON, forget_other, last_json, other_user, run_in

__all__ = ["other_user"]

RUN = f"cd /tmp; {PYTHON} -m ocisbx run --workspace none --memory 96M --json -- true"
DOCTOR = f"cd /tmp; {PYTHON} -m ocisbx doctor --json"


def findings(name: str) -> dict[str, dict[str, str]]:
    done = run_in(name, DOCTOR)
    assert done.returncode in (0, 1), done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)}


def assert_runs_limited(found: dict[str, Any]) -> None:
    assert (found["termination"], found["exit_code"]) == ("exited", 0)
    assert found["enforcement"]["memory"]["state"] == "enforced"
    assert found["usage"]["memory_peak_bytes"] > 0


def test_doctor_says_what_holds_in_a_session() -> None:
    found = findings("ssh")
    assert "limits-not-held" not in found
    assert "a login session's scope" in found["limits-held"]["evidence"]
    assert "cpu, cpuset, io, memory, pids" in found["limits-held"]["consequence"]
    assert found["limits-held"]["remedy"] == ""
    assert "user-namespaces" not in found
    assert_runs_limited(last_json(run_in("ssh", RUN).stdout))


@pytest.mark.parametrize(
    ("name", "seen"),
    [("service without manager", "a cgroup that root owns"), ("su", "another user")],
)
def test_what_doctor_says_pasted_works(name: str, seen: str) -> None:
    forget_other()
    refused = run_in(name, RUN)
    assert refused.returncode == 125
    assert "memory cannot be enforced here" in refused.stderr
    assert "enable-linger" in refused.stderr
    told = findings(name)["limits-not-held"]
    assert seen in told["evidence"]
    done = run_in(name, f"{told['remedy']}\n{RUN}")
    assert done.returncode == 0, done.stderr
    assert_runs_limited(last_json(done.stdout))
