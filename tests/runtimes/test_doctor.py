"""doctor and features on this machine, and on the same machine with something taken away.

What is taken away is taken in a user and mount namespace of a child process: nothing of the
machine changes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx import doctor
from ocisbx.doctor.examine import collect, judge, look
from ocisbx.doctor.trial import try_runtime
from ocisbx.host import RuntimeBinary
from ocisbx.places import find_places
from ocisbx.quirks import KNOWN_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.runtime

ROOT = Path(__file__).resolve().parents[2]
REPORT = (
    "import json; from ocisbx import doctor; found = doctor.examine();"
    "print(json.dumps([doctor.exit_code(found), [f.to_dict() for f in found]]))"
)


TAKEN = ("unshare", "-Ur", "-m", "sh", "-ec")


def within(setup: str, environment: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """doctor's exit code and its findings by name, after `setup` in namespaces of their own."""
    private = (*TAKEN, setup + '\nexec "$@"', "sh") if setup else ()
    done = subprocess.run(
        [*private, sys.executable, "-c", REPORT],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, findings = json.loads(done.stdout)
    return code, {finding["name"]: finding for finding in findings}


def program(path: Path, script: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory that nobody else uses at the same time."""
    place = tmp_path / "run"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    return place


def left_over() -> list[str]:
    return os.listdir(find_places().bundles)


@pytest.mark.usefixtures("own_place")
def test_this_machine_is_told_as_it_is() -> None:
    """Each runtime works; what is said of limits is what the hierarchy allows."""
    seen = collect()
    findings = judge(seen)
    assert left_over() == []
    assert seen.trials
    works = [finding.evidence for finding in findings if finding.name == "runtime-works"]
    assert [f"{t.runtime.path} " for t in seen.trials] == [text.split("(")[0] for text in works]
    assert all(trial.wall_s < 5 for trial in seen.trials)
    names = {finding.name for finding in findings}
    assert not names & {"runtime-fails", "profile-not-held", "user-namespaces", "init-unusable"}
    hybrid = seen.host.cgroups.hierarchy in ("hybrid", "v1", "none")
    assert not hybrid or "limits-not-held" in names
    weak = any(finding.severity is doctor.Severity.WEAKENS for finding in findings)
    assert doctor.exit_code(findings) == int(weak)
    assert doctor.render(findings).count("\n  seen ") == len(findings)


def test_the_payload_says_what_it_sees_of_itself() -> None:
    for runtime in look().runtimes:
        trial = try_runtime(runtime)
        assert (trial.words, trial.status["Seccomp"], trial.status["NoNewPrivs"]) == ("", "2", "1")


def test_without_any_runtime() -> None:
    paths = {os.path.realpath(runtime.path) for runtime in look().runtimes}
    covers = "\n".join(f"mount --bind /dev/null {path}" for path in sorted(paths))
    code, found = within(covers)
    assert code == 69
    assert found["runtime-missing"]["severity"] == "blocks"
    assert "crun" in found["runtime-missing"]["remedy"]


def test_without_user_namespaces() -> None:
    """user.max_user_namespaces counts for one user namespace and those below it."""
    code, found = within("echo 0 > /proc/sys/user/max_user_namespaces")
    assert code == 69
    assert found["user-namespaces"]["severity"] == "blocks"
    assert "ocisbx-cell" in found["user-namespaces"]["evidence"]
    assert "user.max_user_namespaces is 0" in found["user-namespaces"]["evidence"]
    assert found["runtime-fails"]["severity"] == "blocks"


def test_with_the_init_where_nothing_may_be_executed() -> None:
    place = ROOT / "ocisbx" / "init"
    covers = f'mount --bind "{place}" "{place}"\nmount -o remount,bind,noexec "{place}"'
    _, found = within(covers)
    assert found["init-unusable"]["evidence"] == (
        f"{place} lies on a file system that is mounted noexec"
    )


MOON = '{ echo "the moon is in the wrong phase" >&2; exit 1; }'


def test_a_runtime_that_fails_is_quoted(tmp_path: Path) -> None:
    path = program(tmp_path / "runc", f'[ "$1" = --version ] && echo runc version 1.5.3 || {MOON}')
    trial = try_runtime(RuntimeBinary(name="runc", path=path, version="1.5.3"))
    assert "the moon is in the wrong phase" in trial.words


def test_the_chosen_runtime_fails_and_another_works(tmp_path: Path) -> None:
    """It has the newest version, so `auto` takes it; the one that works is named instead."""
    script = f'[ "$1" = --version ] && echo crun version 99.1 || {MOON}'
    path = program(tmp_path / "bin" / "crun", script)
    code, found = within("", {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert code == 1
    failed = found["runtime-fails"]
    assert failed["evidence"].startswith(f"{path} (crun 99.1): ")
    assert failed["severity"] == "weakens"
    assert failed["remedy"].startswith("ocisbx run --runtime /")


@pytest.mark.usefixtures("own_place")
def test_a_runtime_that_hangs_is_given_up(tmp_path: Path) -> None:
    script = '[ "$1" = --version ] && { echo "runc version 1.5.3"; exit; }\nexec sleep 60'
    path = program(tmp_path / "bin" / "runc", script)
    runtime = RuntimeBinary(name="runc", path=path, version="1.5.3")
    trial = try_runtime(runtime, timeout_s=0.5)
    assert "had not started the container after 0.5 s" in trial.words
    assert trial.wall_s < 5
    assert left_over() == []


def test_a_namesake_is_named_and_not_chosen(tmp_path: Path) -> None:
    path = program(tmp_path / "bin" / "youki", "echo I cook")
    _, found = within("", {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert found["runtime-unknown"]["evidence"].startswith(f"{path}: ")
    assert "I cook" in found["runtime-unknown"]["evidence"]
    assert found["runtime-unknown"]["severity"] == "informs"


def test_a_runtime_that_everybody_can_write(tmp_path: Path) -> None:
    original = next(r for r in look().runtimes if r.name in KNOWN_NAMES)
    copy = tmp_path / "bin" / original.name
    copy.parent.mkdir()
    shutil.copyfile(original.path, copy)
    copy.chmod(0o777)
    code, found = within("", {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert code == 1
    assert str(copy) in found["runtime-replaceable"]["evidence"]
    assert found["runtime-replaceable"]["severity"] == "weakens"


def test_features_describe_what_is_here() -> None:
    report = doctor.report()
    host = look()
    assert [row["path"] for row in report["runtimes"]] == [r.path for r in host.runtimes]
    assert all(row["usable"] for row in report["runtimes"])
    assert {row["path"] for row in report["auto"]} == {r.path for r in host.runtimes}
    assert report["host"]["user_namespaces"] == "yes"
    for row in report["runtimes"]:
        assert (row["features"] is None) == (row["features_missing"] != "")
        if row["features"] is not None:
            assert row["features"]["seccomp"] is True
    assert json.loads(json.dumps(report)) == json.loads(json.dumps(report, default=str))
    page = doctor.render_report(report)
    assert all(runtime.path in page for runtime in host.runtimes)
