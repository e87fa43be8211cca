"""What a trial finds out: the platform, what a runtime ignores, one that hangs; and what
is believed of what is remembered of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.backends.trial import Trial, Trier
from ocisbx.errors import RuntimeMissing, Unsupported
from ocisbx.host import RuntimeBinary
from ocisbx.places import find_places
from tests.box import FOUND
from tests.runtimes.stage import CRUN, FLAG, MARK, NEW_RUNSC, OLD_RUNSC, ROOT, RUNC, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.runtime


# -------------------------------------------------------------------------------------- platforms
def test_systrap_is_tried_first(stage: Stage) -> None:
    result = stage.sandbox(NEW_RUNSC).run(["true"])
    assert result.runtime.platform == "systrap"
    assert result.enforcement["kernel"].how.startswith("gVisor (systrap): ")


@pytest.mark.parametrize("platform", ["systrap", "ptrace"])
def test_a_platform_that_is_asked_for(stage: Stage, platform: str) -> None:
    assert stage.sandbox(NEW_RUNSC, platform=platform).run(["true"]).runtime.platform == platform


def test_ptrace_comes_after_a_systrap_that_fails_and_its_words_are_kept(stage: Stage) -> None:
    check = 'case "$*" in *=systrap*) echo "unable to attach: EPERM" >&2; exit 1;; esac'
    path = stage.wrap(NEW_RUNSC, check)
    result = stage.sandbox(path).run(MARK)
    assert result.runtime.platform == "ptrace"
    assert "not systrap: " in result.enforcement["kernel"].how
    assert "unable to attach: EPERM" in result.enforcement["kernel"].how
    # Two trials and a run; from now on systrap is not tried again.
    assert stage.starts() == 3
    assert stage.sandbox(path).run(["true"]).runtime.platform == "ptrace"
    assert stage.starts() == 1
    with pytest.raises(RuntimeMissing, match="unable to attach: EPERM"):
        stage.sandbox(path, platform="systrap").run(["true"])


def test_the_gvisor_of_2022_runs_on_ptrace(stage: Stage) -> None:
    result = stage.sandbox(OLD_RUNSC).run(MARK)
    assert (result.exit_code, result.runtime.platform) == (0, "ptrace")
    assert "unknown platform: systrap" in result.enforcement["kernel"].how


def test_kvm_is_tried_only_when_it_is_asked_for(stage: Stage) -> None:
    """Here it fails in the wrapper's words, as everything does."""
    stage.flag.touch()
    path = stage.wrap(NEW_RUNSC)
    with pytest.raises(RuntimeMissing):
        stage.sandbox(path).run(["true"])
    asked = (stage.base / "wrapped.log").read_text()
    assert "--platform=systrap" in asked
    assert "--platform=ptrace" in asked
    assert "--platform=kvm" not in asked
    with pytest.raises(RuntimeMissing):
        stage.sandbox(path, platform="kvm").run(["true"])
    new = (stage.base / "wrapped.log").read_text().removeprefix(asked)
    assert "--platform=kvm" in new
    assert "--platform=systrap" not in new


def test_no_runtime_with_that_platform(stage: Stage) -> None:
    with pytest.raises(RuntimeMissing, match="platform kvm asked for") as raised:
        stage.sandbox(RUNC, platform="kvm").run(["true"])
    assert "--runtime runsc" in raised.value.remedy


# ---------------------------------------------------------------------------------- what is ignored
FORGERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "seccomp": ('config["linux"].pop("seccomp", None)', {"isolation": {"seccomp": "none"}}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_runtime_that_ignores_what_it_is_told(stage: Stage, name: str) -> None:
    """Refused for what asks for it, with a sound one beside it passed over, and else used."""
    forge, without = FORGERIES[name]
    path = stage.forge(forge)
    with pytest.raises(Unsupported, match=f"^{name} cannot be enforced here") as raised:
        stage.sandbox(path).run(MARK)
    assert f"it ignores {name}" in raised.value.why
    assert stage.ran() == 0
    assert stage.sandbox(path, RUNC).run(MARK).runtime.path == RUNC
    assert stage.sandbox(path, **without).run(MARK).runtime.path == path
    assert stage.ran() == 2


def test_a_runtime_without_no_new_privs_starts_nothing(stage: Stage) -> None:
    """Landlock needs it (landlock_restrict_self(2)): the init starts nothing without."""
    path = stage.forge('config["process"]["noNewPrivileges"] = False')
    with pytest.raises(RuntimeMissing, match="Landlock cannot be set up"):
        stage.sandbox(path).run(MARK)
    assert stage.ran() == 0


def test_a_runtime_that_gives_capabilities_is_never_used(stage: Stage) -> None:
    forge = 'config["process"]["capabilities"] = {"bounding": ["CAP_CHOWN"]}'
    path = stage.forge(forge)
    with pytest.raises(Unsupported, match=r"^capabilities cannot be enforced here"):
        stage.sandbox(path).run(MARK)
    with pytest.raises(Unsupported, match=r"^capabilities cannot be enforced here"):
        stage.sandbox(path, isolation={"level": "privileged"}).run(MARK)
    assert stage.ran() == 0


# ----------------------------------------------------------------------------------------- trials
def tried(path: str, timeout_s: float, name: str = "runc", version: str = "1.5.3") -> Trial:
    runtime = RuntimeBinary(name=name, path=path, version=version)
    return Trier(timeout_s=timeout_s).try_runtime(runtime)


HANGS = 'case "$*" in *" run "*) exec sleep 60;; esac'


def test_a_runtime_that_hangs_is_given_up(stage: Stage) -> None:
    trial = tried(stage.wrap(RUNC, HANGS), 0.5)
    assert not trial.works
    assert "had not started the container after 0.5 s" in trial.words
    assert os.listdir(find_places().bundles) == []


def test_the_platforms_of_a_runtime_share_its_time(stage: Stage) -> None:
    trial = tried(stage.wrap(NEW_RUNSC, HANGS), 1.0, "runsc", "release-20260905.0")
    assert "after 0.5 s" in trial.runtime.passed_over
    assert "had not started the container after 0." in trial.words
    assert stage.starts() == 2


def test_a_runtime_that_never_ends_is_given_up(stage: Stage) -> None:
    """The payload has ended long before it does."""
    lingers = 'case "$*" in *" run "*) "{real}" "$@"; exec sleep 60;; esac'
    trial = tried(stage.wrap(RUNC, lingers.replace("{real}", RUNC)), 5.0)
    assert trial.words == "it had not ended after 5 s"
    assert os.listdir(find_places().bundles) == []


def test_a_trial_tells_what_the_payload_saw(stage: Stage) -> None:
    for found in FOUND:
        trial = Trier(again=True).try_runtime(found)
        assert trial.works, trial
        assert trial.runtime.ignores == ()
        assert trial.inside["cap_eff"] == 0
    assert os.listdir(find_places().bundles) == []
    assert os.listdir(stage.workspace) == []


# --------------------------------------------------------------------------------------- memory
MAPPED = ("unshare", "--map-root-user", "--map-auto")


def test_a_memory_of_somebody_elses_is_not_believed(stage: Stage) -> None:
    """In a user namespace with two ids, where root can read what the other one owns."""
    stage.sandbox(RUNC).run(["true"])
    code = (
        "import os, sys; from ocisbx.probe.remembered import RuntimeMemory; path = sys.argv[1];"
        "print(RuntimeMemory(path).version(sys.argv[2]));"
        "os.chown(path, 1, 1);"
        "print(open(path).read()[:1], RuntimeMemory(path).version(sys.argv[2]))"
    )
    done = subprocess.run(
        [*MAPPED, sys.executable, "-c", code, f"{find_places().cache}/runtimes.json", RUNC],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    believed, disbelieved = done.stdout.splitlines()
    assert believed.startswith("('runc', ")
    assert disbelieved == "{ None"


def test_a_plan_rests_on_the_runtimes_that_might_be_taken(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before the chosen one, itself, and of its name all, since the newest is taken."""
    first, chosen, later = (
        stage.wrap(real, name=name, check="exit 1" if name == "first" else FLAG)
        for real, name in ((CRUN, "first"), (RUNC, "chosen"), (NEW_RUNSC, "later"))
    )
    for path, holds in ((later, True), (chosen, False), (first, False)):
        plan = stage.sandbox(first, chosen, later).resolve()
        assert plan.runtime.path == chosen
        os.utime(path)
        assert plan.holds() is holds
    older = stage.wrap(RUNC, name="bin/runc", version="runc version 1.0.1")
    monkeypatch.setenv("PATH", f"{os.path.dirname(older)}:{os.environ['PATH']}")
    plan = stage.sandbox("runc").resolve()
    assert plan.runtime.path != older
    os.utime(older)
    assert not plan.holds()


def _garble(path: Path) -> None:
    path.write_text('{"rows": 7', encoding="utf-8")


def _open(path: Path) -> None:
    path.chmod(0o644)


@pytest.mark.parametrize("damage", [_garble, _open, os.unlink])
def test_a_memory_that_is_damaged_is_made_again(
    stage: Stage, damage: Callable[[Path], None]
) -> None:
    path = Path(find_places().cache, "runtimes.json")
    wrapped = stage.wrap(RUNC)
    code = "import ocisbx, sys; ocisbx.run(['true'], runtime={'names': sys.argv[1:]})"

    def call() -> None:
        subprocess.run(
            [sys.executable, "-P", "-c", code, wrapped],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=stage.workspace,
            check=True,
            timeout=60,
        )

    call()
    assert stage.starts() == 2
    call()
    assert stage.starts() == 1
    damage(path)
    call()
    assert stage.starts() == 2
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["rows"]
