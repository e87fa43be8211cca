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
from ocisbx.backends.trial import Trier
from ocisbx.cli.progress import Progress
from ocisbx.doctor.examine import collect, judge, look
from ocisbx.host import RuntimeBinary
from ocisbx.places import find_places
from ocisbx.quirks import KNOWN_NAMES
from tests.box import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.runtime

ROOT = Path(__file__).resolve().parents[2]
REPORT = (
    "import json; from ocisbx import doctor; found = doctor.examine();"
    "print(json.dumps([doctor.exit_code(found), [f.to_dict() for f in found]]))"
)


# Root's places have to be open to mapped ids, and pytest's directories are not.
AS_ROOT = ("unshare", "-Ur", "-m", "sh", "-ec",
           'mount -t tmpfs t /mnt; export XDG_RUNTIME_DIR=/mnt\n{}\nexec "$@"', "sh")  # fmt: skip
AS_USER = ("unshare", "-U", "-m", "--map-current-user", "--keep-caps", "sh", "-ec",
           '{}\nexec setpriv --inh-caps=-all --ambient-caps=-all "$@"', "sh")  # fmt: skip


def within(
    setup: str,
    environment: Mapping[str, str] | None = None,
    *,
    taken: tuple[str, ...] = AS_ROOT,
) -> tuple[int, dict[str, Any]]:
    """doctor's exit code and its findings by name, after `setup` in namespaces of their own."""
    private = [word.replace("{}", setup) for word in taken] if setup else []
    done = subprocess.run(
        [*private, sys.executable, "-c", REPORT],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, findings = json.loads(done.stdout)
    return code, {"all": findings, **{finding["name"]: finding for finding in findings}}


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


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return doctor.report()


@pytest.mark.usefixtures("own_place")
def test_this_machine_is_told_as_it_is() -> None:
    """Each runtime works; what is said of limits is what the hierarchy allows."""
    steps: list[str] = []
    seen = collect(steps.append)
    findings = judge(seen)
    assert left_over() == []
    assert {trial.runtime.name for trial in seen.trials} == set(KNOWN_NAMES)
    assert [step.rpartition("(")[2] for step in steps[1:]] == [
        f"{trial.runtime.path})" for trial in seen.trials
    ]
    told = [f for f in findings if f.name in ("runtime-works", "runtime-fails")]
    assert {finding.evidence.split(" (")[0]: finding.name for finding in told} == {
        trial.runtime.path: "runtime-works" for trial in seen.trials
    }
    names = {finding.name for finding in findings}
    assert not names & {"profile-not-held", "user-namespaces", "init-unusable", "own-kernel"}
    hybrid = seen.host.cgroups.hierarchy in ("hybrid", "v1", "none")
    assert not hybrid or "limits-not-held" in names
    weak = any(finding.severity is doctor.Severity.WEAKENS for finding in findings)
    assert doctor.exit_code(findings) == int(weak)
    assert doctor.render(findings).count("\n  seen ") == len(findings)
    # The newest that are to be had have no hole that our use of them reaches.
    reached = [finding.evidence for finding in findings if finding.name == "known-holes"]
    assert not any("/.runtimes/bin/" in evidence for evidence in reached)


def test_youki_comes_last(report: dict[str, Any]) -> None:
    row = next(row for row in report["runtimes"] if row["name"] == "youki")
    assert row["usable"]
    assert row["features"]["cgroup_kinds"] == ["v1", "v2", "systemd", "systemd_user"]
    assert report["auto"][-1]["path"] == row["path"]


def cover(*, but: str = "") -> str:
    """Shell that takes every runtime away, but for one."""
    paths = {os.path.realpath(runtime.path) for runtime in look().runtimes}
    kept = os.path.realpath(but)
    return "\n".join(f"mount --bind /dev/null {path}" for path in sorted(paths - {kept}))


def test_with_the_distributions_runc_alone() -> None:
    code, found = within(cover(but="/usr/sbin/runc"), taken=AS_USER)
    assert code == 1
    works = [finding for finding in found["all"] if finding["name"] == "runtime-works"]
    assert [
        "`--runtime auto` and `--runtime strongest`" in one["consequence"] for one in works
    ] == [True]
    assert found["own-kernel"]["severity"] == "informs"
    assert "runtime-fails" not in found


def test_without_any_runtime() -> None:
    code, found = within(cover())
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
    path = program(tmp_path / "runc", f'[ "$3" = --version ] && echo runc version 1.5.3 || {MOON}')
    trial = Trier(again=True).try_runtime(RuntimeBinary(name="runc", path=path, version="1.5.3"))
    assert "the moon is in the wrong phase" in trial.words


def test_one_that_fails_and_others_work(tmp_path: Path) -> None:
    """It has the newest version, so `auto` would take it, did it not fail."""
    script = f'[ "$3" = --version ] && echo crun version 99.1 || {MOON}'
    path = program(tmp_path / "bin" / "crun", script)
    _, found = within("", {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    failed = [finding for finding in found["all"] if finding["name"] == "runtime-fails"]
    moon = next(one for one in failed if one["evidence"].startswith(f"{path} (crun 99.1): "))
    assert "the moon is in the wrong phase" in moon["evidence"]
    assert moon["severity"] == "informs"


def test_what_takes_long_is_said_while_it_lasts(capfd: pytest.CaptureFixture[str]) -> None:
    with Progress(patience_s=0) as progress:
        progress.tell("one")
        assert eventually(lambda: "one" in capfd.readouterr().err)
        progress.tell("two")
    assert capfd.readouterr().err == "ocisbx: two\n"
    with Progress() as progress:
        progress.tell("three")
    assert capfd.readouterr().err == ""


def test_a_slow_runtime_is_named_on_stderr(tmp_path: Path) -> None:
    """On stdout nothing but the document."""
    script = '[ "$3" = --version ] && { echo runc version 99.1; exit; }; exec sleep 3'
    path = program(tmp_path / "bin" / "runc", script)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ocisbx", "features", "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"ocisbx: trying runc 99.1 ({path})\n" in done.stderr
    assert path in {row["path"] for row in json.loads(done.stdout)["runtimes"]}


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


def test_features_describe_what_is_here(report: dict[str, Any]) -> None:
    host = look()
    assert [row["path"] for row in report["runtimes"]] == [r.path for r in host.runtimes]
    usable = [row for row in report["runtimes"] if row["usable"]]
    assert {row["name"] for row in usable} == set(KNOWN_NAMES)
    orders = {name: [row["path"] for row in report[name]] for name in ("auto", "strongest")}
    assert set(orders["strongest"]) == {r.path for r in host.runtimes}
    gvisors = [r.path for r in host.runtimes if r.name == "runsc"]
    assert set(orders["strongest"][: len(gvisors)]) == set(gvisors)
    assert orders["strongest"][len(gvisors) :] == orders["auto"]
    assert report["host"]["user_namespaces"] == "yes"
    for row in report["runtimes"]:
        assert (row["features"] is None) == (row["features_missing"] != "")
        if row["features"] is not None and row["usable"]:
            # youki does not tell.
            assert row["features"]["seccomp"] is (None if row["name"] == "youki" else True)
    assert json.loads(json.dumps(report)) == json.loads(json.dumps(report, default=str))
    page = doctor.render_report(report)
    assert all(runtime.path in page for runtime in host.runtimes)


def test_features_tell_the_platform_and_why_not_the_one_before(report: dict[str, Any]) -> None:
    rows = [row for row in report["runtimes"] if row["name"] == "runsc"]
    old = [row for row in rows if row["version"].startswith("0.0~")]
    assert [(row["platform"], row["passed_over"] != "") for row in old] == [("ptrace", True)]
    assert "unknown platform: systrap" in old[0]["passed_over"]
    new = [row for row in rows if row not in old]
    assert {(row["platform"], row["passed_over"]) for row in new} == {("systrap", "")}


KEYS = {
    "host": "apparmor_restricts_user_namespaces cgroup_controllers cgroup_kill cgroup_parent "
    "cgroup_way cgroups kernel machine max_user_namespaces newuidmap own_cgroup "
    "recursive_read_only subordinate_gids subordinate_uids uid user_namespaces",
    "runtimes": "enforcement features features_missing ignores lacks name passed_over path "
    "platform quirks usable version wall_ms why_not",
    "auto": "path reason",
    "strongest": "path reason",
}


def test_the_keys_of_features_are_what_the_manual_says(report: dict[str, Any]) -> None:
    told = {key: value if isinstance(value, dict) else value[0] for key, value in report.items()
            if not isinstance(value, str)}  # fmt: skip
    assert {key: " ".join(sorted(value)) for key, value in told.items()} == KEYS
    manual = (ROOT / "ocisbx/man/ocisbx-features.1.md").read_text(encoding="utf-8")
    for key in ("auto_reason", "strongest_reason", *KEYS["runtimes"].split()):
        assert key in manual, key
