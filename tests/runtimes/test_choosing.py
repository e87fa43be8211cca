"""Runtimes are chosen by trying them: what fails is passed over, what breaks later is given up for
another, never for less, and nothing of it is felt by the payload."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

import ocisbx
from ocisbx.backends.compile import survey
from ocisbx.errors import OcisbxError, RuntimeFailed, RuntimeMissing
from ocisbx.result import EnforcementState
from tests.runtimes.stage import CRUN, MARK, NEW_RUNSC, ROOT, RUNC, Stage

pytestmark = pytest.mark.runtime


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


def test_a_pool_goes_on_the_same_way(stage: Stage) -> None:
    """With a container that is started ahead as with one that is started for its call."""
    stumbles = stage.wrap(RUNC, 'if [ -e "{flag}" ]; then rm "{flag}"; exit 1; fi')
    sandbox = stage.sandbox(stumbles, CRUN)
    sandbox.run(MARK)
    stage.flag.touch()
    with ocisbx.Pool(sandbox.config, 1) as pool:
        assert pool.run(MARK).runtime.path == stumbles
    assert not stage.flag.exists()
    breaks = stage.wrap(RUNC, name="breaks")
    alone = stage.sandbox(stage.wrap(RUNC, name="alone"))
    for one in (stage.sandbox(breaks), alone):
        one.run(MARK)
    stage.flag.touch()
    with ocisbx.Pool(stage.sandbox(breaks, CRUN).config, 1) as pool:
        assert pool.run(MARK).runtime.path == CRUN
    with pytest.raises(RuntimeFailed, match="the flag is up"), ocisbx.Pool(alone.config, 1):
        pass
    assert stage.ran() == 5


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
    sandbox = stage.sandbox(stage.wrap(RUNC, kill), CRUN, timeout_s=5)
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
