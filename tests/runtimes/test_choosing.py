"""Runtimes are chosen by trying them: what fails is passed over, what ignores the configuration is
refused, what breaks later is given up for another, and nothing of it is felt by the payload.

What fails here is a script that wraps a real runtime, as a broken installation would behave.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx.backends.compile import survey
from ocisbx.backends.trial import Trier
from ocisbx.errors import OcisbxError, RuntimeFailed, RuntimeMissing, Unsupported
from ocisbx.host import RuntimeBinary
from ocisbx.places import find_places
from ocisbx.quirks import parse_version
from ocisbx.result import EnforcementState
from tests.box import FOUND, SYSTRAP_SINCE

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.runtime

ROOT = Path(__file__).resolve().parents[2]
RUNC = next(found.path for found in FOUND if found.name == "runc")
CRUN = next(found.path for found in FOUND if found.name == "crun")


def runsc(*, old: bool) -> str:
    """gVisor with systrap, or from before it."""
    versions = {f.path: parse_version(f.version) for f in FOUND if f.name == "runsc"}
    # One that tells no version was built from a recent module.
    return next(p for p, v in versions.items() if (bool(v) and v < SYSTRAP_SINCE) is old)


NEW_RUNSC, OLD_RUNSC = runsc(old=False), runsc(old=True)

# Everything but `--version` fails while the flag is up; each verb that got further is written down.
WRAPPER = """\
#!/bin/sh
[ "$1" = --version ] && {told}
echo "$*" >> "{log}"
{check}
exec "{real}" "$@"
"""
FLAG = '[ ! -e "{flag}" ] || {{ echo "the flag is up" >&2; exit 1; }}'

# A runtime that says yes to its config.json and does something else.
FORGER = """\
#!/usr/bin/python3 -I
import json, os, sys
real, arguments = {real!r}, sys.argv[1:]
if "--bundle" in arguments:
    path = arguments[arguments.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        config = json.load(file)
    {forge}
    with open(path, "w") as file:
        json.dump(config, file)
os.execv(real, [real, *arguments])
"""


@dataclass
class Stage:
    """Directories of one's own, and programs that wrap runtimes."""

    base: Path

    @property
    def flag(self) -> Path:
        return self.base / "flag"

    @property
    def workspace(self) -> Path:
        return self.base / "ws"

    def program(self, name: str, text: str) -> str:
        path = self.base / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def wrap(
        self, real: str, check: str = FLAG, name: str = "wrapped", version: str | None = None
    ) -> str:
        """A program that is `real`, under a version of its own where one is given."""
        text = WRAPPER.format(
            real=real,
            told=f'exec "{real}" "$@"' if version is None else f"{{ echo {version}; exit; }}",
            check=check.format(flag=self.flag),
            log=self.base / f"{Path(name).name}.log",
        )
        return self.program(name, text)

    def forge(self, forge: str) -> str:
        return self.program("forger", FORGER.format(real=RUNC, forge=forge))

    def starts(self, name: str = "wrapped") -> int:
        """How many containers the wrapper was asked for since the last question."""
        log = self.base / f"{name}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return sum(" run " in line for line in lines)

    def sandbox(self, *names: str, **fields: Any) -> ocisbx.Sandbox:
        runtime = {"names": names, "platform": fields.pop("platform", None)}
        return ocisbx.Sandbox(workspace=str(self.workspace), runtime=runtime, **fields)

    def ran(self) -> int:
        """How often MARK was executed."""
        log = self.workspace / "ran"
        return len(log.read_text().splitlines()) if log.exists() else 0


MARK = ["sh", "-c", "echo once >> ran; cat"]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(tmp_path)
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        place = tmp_path / name
        place.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(place))
    made.workspace.mkdir()
    return made


# ------------------------------------------------------------------------- passed over, and known
def test_auto_passes_over_one_that_fails(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells the newest version of the fastest, so it is tried first; then it is remembered, in
    the process and for the next one."""
    stage.flag.touch()
    path = stage.wrap(CRUN, name="bin/crun", version="crun version 99.1")
    monkeypatch.setenv("PATH", f"{stage.base}/bin:/usr/bin:/bin")
    result = stage.sandbox("auto").run(MARK)
    assert (result.exit_code, stage.ran()) == (0, 1)
    assert result.runtime.path != path
    assert result.runtime.requested == "auto"
    assert stage.starts("crun") == 1
    assert stage.sandbox("auto").run(["true"]).runtime == result.runtime
    code = "import ocisbx; print(ocisbx.run(['true'], workspace='none').runtime.path)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == result.runtime.path
    assert stage.starts("crun") == 0


def test_a_list_is_tried_in_its_order(stage: Stage) -> None:
    stage.flag.touch()
    first = stage.wrap(RUNC)
    result = stage.sandbox(first, "/nowhere/runc", CRUN, RUNC).run(MARK)
    assert (result.exit_code, stage.ran()) == (0, 1)
    assert result.runtime.path == CRUN
    assert result.runtime.requested == f"{first},/nowhere/runc,{CRUN},{RUNC}"


def test_none_of_a_list_works(stage: Stage) -> None:
    """Each is tried once, named and quoted."""
    stage.flag.touch()
    paths = [stage.wrap(real, name=name) for real, name in ((RUNC, "one"), (CRUN, "two"))]
    with pytest.raises(RuntimeMissing) as raised:
        stage.sandbox(*paths, "/nowhere/runc").run(MARK)
    for words in (*paths, "the flag is up", "/nowhere/runc does not exist"):
        assert words in raised.value.why
    assert "--runtime auto" in raised.value.remedy
    assert (stage.starts("one"), stage.starts("two")) == (1, 1)
    assert stage.ran() == 0


def test_what_failed_is_tried_again_when_nothing_else_is_left(stage: Stage) -> None:
    """Whatever cured it, its file is the same."""
    stage.flag.touch()
    path = stage.wrap(RUNC)
    with pytest.raises(RuntimeMissing):
        stage.sandbox(path).run(MARK)
    stage.flag.unlink()
    assert stage.sandbox(path).run(MARK).exit_code == 0
    assert stage.starts() == 3


def test_nothing_is_tried_for_what_is_only_shown(stage: Stage) -> None:
    path = stage.wrap(RUNC)
    config = ocisbx.SandboxConfig(workspace="none", runtime={"names": [path]})
    assert survey(config, may_try=False).runtimes[0].path == path
    assert stage.starts() == 0


# ------------------------------------------------------------------------------- broken meanwhile
def test_a_choice_that_breaks_gives_way_to_the_next(stage: Stage) -> None:
    """Forgotten, probed once more, given up; the payload runs once and reads all of its input."""
    sandbox = stage.sandbox(stage.wrap(RUNC), CRUN)
    assert sandbox.run(MARK, input=b"first").stdout == b"first"
    assert stage.starts() == 2
    stage.flag.touch()
    result = sandbox.run(MARK, input=b"x" * 300_000)
    assert (result.exit_code, result.runtime.path) == (0, CRUN)
    assert result.stdout == b"x" * 300_000
    assert (stage.starts(), stage.ran()) == (2, 2)
    assert sandbox.run(MARK, input=b"third").runtime.path == CRUN
    assert (stage.starts(), stage.ran()) == (0, 3)


def test_a_stumble_costs_one_more_attempt(stage: Stage) -> None:
    """It works again when it is probed, so it is used again."""
    once = 'if [ -e "{flag}" ]; then rm "{flag}"; exit 1; fi'
    path = stage.wrap(RUNC, once)
    sandbox = stage.sandbox(path, CRUN)
    sandbox.run(MARK)
    assert stage.starts() == 2
    stage.flag.touch()
    result = sandbox.run(MARK, input=b"all of it")
    assert (result.runtime.path, result.stdout) == (path, b"all of it")
    assert (stage.starts(), stage.ran()) == (3, 2)


def test_the_only_one_that_breaks_is_probed_once_more_and_quoted(stage: Stage) -> None:
    sandbox = stage.sandbox(path := stage.wrap(RUNC))
    sandbox.run(MARK)
    stage.starts()
    stage.flag.touch()
    with pytest.raises(RuntimeFailed, match="the flag is up") as raised:
        sandbox.run(MARK)
    assert path in raised.value.remedy
    assert (stage.starts(), stage.ran()) == (2, 1)
    stage.flag.unlink()
    assert sandbox.run(MARK).runtime.path == path
    assert stage.ran() == 2


def test_the_command_line_goes_on_with_another(stage: Stage) -> None:
    """Its plan lies on disk; its input is a pipe, which nobody can read twice."""
    names = ["--runtime", stage.wrap(RUNC), "--runtime", CRUN]
    words = ["run", "-i", *names, "--workspace", str(stage.workspace), "--", *MARK]

    def call(text: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ocisbx", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    assert call("first") == "first"
    assert stage.starts() == 2
    stage.flag.touch()
    assert call("second") == "second"
    assert stage.starts() == 2
    # The plan that was kept is the second one's.
    assert call("third") == "third"
    assert (stage.starts(), stage.ran()) == (0, 3)


def test_a_payload_that_fails_is_no_failure_of_its_runtime(stage: Stage) -> None:
    path = stage.wrap(RUNC)
    sandbox = stage.sandbox(path, CRUN)
    assert sandbox.run(["sh", "-c", "echo once >> ran; exit 3"]).exit_code == 3
    assert sandbox.run(["no such program"]).termination == "not_found"
    assert sandbox.run(["sh", "-c", "kill -KILL $$"]).signal == 9
    assert (stage.starts(), stage.ran()) == (4, 1)


def test_a_runtime_that_dies_under_its_payload_is_not_replaced(stage: Stage) -> None:
    """What has begun is never begun again, however it ends."""
    kill = (
        'case "$*" in *" run "*) "REAL" "$@" & if [ -e "{flag}" ]; then '
        'while [ ! -e "WS/ran" ]; do sleep 0.02; done; kill -KILL $!; fi; wait $!; exit;; esac'
    )
    kill = kill.replace("REAL", RUNC).replace("WS", str(stage.workspace))
    sandbox = stage.sandbox(stage.wrap(RUNC, kill), CRUN, timeout_s=20)
    assert sandbox.run(["true"]).exit_code == 0
    stage.flag.touch()
    with contextlib.suppress(OcisbxError):
        assert sandbox.run(["sh", "-c", "echo once >> ran; sleep 30"]).exit_code is None
    assert (stage.starts(), stage.ran()) == (3, 1)


# ------------------------------------------------------------------------------------ own kernels
def test_never_from_a_kernel_of_ones_own_to_the_hosts(stage: Stage) -> None:
    """A gVisor that breaks is an error, in the first call and in the next, until it is mended."""
    sandbox = stage.sandbox(path := stage.wrap(NEW_RUNSC), RUNC)
    first = sandbox.run(MARK)
    assert (first.runtime.path, first.enforcement["kernel"].actual) == (path, "own")
    stage.flag.touch()
    for _ in range(2):
        with pytest.raises(RuntimeFailed, match="the flag is up"):
            sandbox.run(MARK)
    assert stage.ran() == 1
    stage.flag.unlink()
    assert sandbox.run(MARK).runtime.path == path


def test_a_list_that_names_the_hosts_kernel_may_begin_there(stage: Stage) -> None:
    """Said in the list, and told in the result."""
    stage.flag.touch()
    result = stage.sandbox(stage.wrap(NEW_RUNSC, name="bin/runsc"), RUNC).run(MARK)
    assert result.runtime.path == RUNC
    kernel = result.enforcement["kernel"]
    assert (kernel.requested, kernel.actual, kernel.state) == (
        "own",
        "shared",
        EnforcementState.UNSUPPORTED,
    )


def test_locked_down_takes_another_gvisor(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "runsc version release-20991231.0"
    path = stage.wrap(NEW_RUNSC, name="bin/runsc", version=told)
    monkeypatch.setenv("PATH", f"{stage.base}/bin:/usr/bin:/bin")
    sandbox = ocisbx.Sandbox(preset="locked-down", workspace=str(stage.workspace))
    assert sandbox.run(["true"]).runtime.path == path
    stage.flag.touch()
    result = sandbox.run(["true"])
    assert (result.runtime.name, result.runtime.requested) == ("runsc", "strongest")
    assert result.runtime.path != path
    assert result.enforcement["kernel"].actual == "own"


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
    "no_new_privileges": (
        'config["process"]["noNewPrivileges"] = False',
        {"isolation": {"no_new_privileges": False}},
    ),
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


def test_a_runtime_that_gives_capabilities_is_never_used(stage: Stage) -> None:
    forge = 'config["process"]["capabilities"] = {"bounding": ["CAP_CHOWN"]}'
    path = stage.forge(forge)
    with pytest.raises(Unsupported, match=r"^capabilities cannot be enforced here"):
        stage.sandbox(path).run(MARK)
    with pytest.raises(Unsupported, match=r"^capabilities cannot be enforced here"):
        stage.sandbox(path, isolation={"level": "privileged"}).run(MARK)
    assert stage.ran() == 0


# ----------------------------------------------------------------------------------------- trials
def tried(path: str, timeout_s: float, name: str = "runc", version: str = "1.5.3") -> Any:
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
    trial = tried(stage.wrap(RUNC, lingers.replace("{real}", RUNC)), 1.0)
    assert trial.words == "it had not ended after 1 s"
    assert os.listdir(find_places().bundles) == []


def test_a_trial_tells_what_the_payload_saw(stage: Stage) -> None:
    for found in FOUND:
        trial = Trier(again=True).try_runtime(found)
        assert trial.works, trial
        assert trial.runtime.ignores == ()
        assert trial.inside["CapEff"] == "0000000000000000"
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
