"""What presets protect, in a workspace that git and the host use, and what that leaves there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ocisbx
from ocisbx.errors import Unsupported
from ocisbx.presets import PROTECTED
from ocisbx.result import EnforcementState
from tests.box import eventually
from tests.contract.conftest import of_each_kind
from tests.trees import GIT, KEPT, ME, attacked, repository, sweep, tree

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime


def test_the_preset_protects_what_the_host_runs(box: Box) -> None:
    """Names at the top of the workspace, missing all of them."""
    names = [one.pattern for one in PROTECTED if one.missing == "" and one.pattern.startswith(".")]
    names.remove(".git/hooks")
    (box.workspace / "f").write_text(KEPT)
    (box.workspace / "d").mkdir()
    done = attacked(box, ["f", "d", *names])
    assert not [line for line in done.splitlines() if line.split("/")[-1] in names], done
    sweep(box.workspace)
    assert not {path.name for path in box.workspace.iterdir()} & set(names)


def test_git_works_in_a_protected_repository(box: Box) -> None:
    repository(box.workspace)
    origin = box.base / "origin"
    origin.mkdir()
    repository(origin)
    result = box.sh(
        "set -e; echo 1 >f; git add f; git commit -qm second; git branch other; "
        "git checkout -q other; echo 2 >f; git commit -qam third; git checkout -q -; "
        "echo 3 >f; git stash -q; git stash pop -q; git checkout -q f; git merge -q other; "
        f"git fetch -q {origin} HEAD; git tag v1; git gc -q; git branch -D other; "
        "git worktree add -q w; git -C w status -s; git worktree remove w; git log --format=%s",
        volumes=[f"{origin}:ro"],
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout.decode().splitlines()[-3:] == ["third", "second", "first"]
    assert not (box.workspace / ".git" / "commondir").exists()


HOOK = "printf '#!/bin/sh\\ntouch {0}/PWNED\\n' >{1}; chmod +x {1}"
GIT_ATTACKS = (
    HOOK.format("$PWD", ".git/hooks/pre-commit"),
    "git config core.fsmonitor 'touch PWNED'",
    "printf '[core]\\nfsmonitor = touch PWNED\\n' >>.git/config",
    "mv .git .git2; cp -r .git2 .git; git config core.fsmonitor 'touch PWNED'",
    "cp -r .git e; git config -f e/config core.fsmonitor 'touch PWNED'; echo ../e >.git/commondir",
    "rm -rf .git/hooks; mkdir .git/hooks; " + HOOK.format("$PWD", ".git/hooks/pre-commit"),
    "rm .git/config; printf '[core]\\nfsmonitor = touch PWNED\\n' >.git/config",
)


@of_each_kind
@pytest.mark.parametrize("preset", ["coding-agent", "balanced", "yolo"])
def test_git_on_the_host_runs_nothing_of_the_payload(box: Box, preset: str) -> None:
    if box.lacks("network host") and preset in ("balanced", "yolo"):
        with pytest.raises(Unsupported, match="network host"):
            box.run(["true"], preset=preset)
        return
    pwned = []
    for number, script in enumerate(GIT_ATTACKS):
        workspace = box.workspace / f"r{number}"
        workspace.mkdir()
        repository(workspace)
        box.sh(script, workspace=str(workspace), preset=preset)
        for words in (["status"], ["commit", "-q", "--allow-empty", "-m", "x"]):
            subprocess.run(
                ["git", *words], cwd=workspace, env=GIT, check=False, capture_output=True
            )
        pwned.append((workspace / "PWNED").exists())
    assert pwned == [preset == "yolo"] * len(GIT_ATTACKS)


FILE_ATTACKS = (
    "echo gitdir: $PWD/evil >.git",
    "echo gitdir: $PWD/evil >evil/new; mv -f evil/new .git",
    "rm -f .git; mkdir .git; cp -r evil/. .git",
    "mv .git old; cp -r evil .git",
)


@of_each_kind
def test_a_linked_worktree(box: Box) -> None:
    """Its .git is a file that names the repository: another one would name its own hooks."""
    origin = box.base / "origin"
    origin.mkdir()
    repository(origin)
    add = ["git", "worktree", "add", "-q", str(box.workspace), "-b", "linked"]
    subprocess.run(add, cwd=origin, env=GIT, check=True)
    before = (box.workspace / ".git").read_text()
    assert box.text("git log --format=%s", volumes=[f"{origin}:ro"]) == "first\n"
    for script in FILE_ATTACKS:
        evil = "git init -q evil; git config -f evil/.git/config core.fsmonitor 'touch PWNED'; "
        box.sh(f"{evil} mv evil/.git e; rm -rf evil; mv e evil; {script}")
        shown = subprocess.run(
            ["git", "status", "--porcelain"], cwd=box.workspace, env=GIT, check=True,
            capture_output=True,
        )  # fmt: skip
        assert shown.stdout.decode() == "?? evil/\n"
        shutil.rmtree(box.workspace / "evil")
    assert (box.workspace / ".git").read_text() == before
    assert os.listdir(box.workspace) == [".git"]


def test_git_init_works(box: Box) -> None:
    assert (
        box.text(ME + "git init -q .; git commit -q --allow-empty -m x; git log --format=%s")
        == "x\n"
    )
    # From then on it is protected.
    assert box.sh("echo x >.git/hooks/pre-commit").exit_code != 0


def test_two_calls_share_placeholders(box: Box) -> None:
    if box.lacks("statx(2) as coreutils 9 calls it"):
        # Its ls and touch fail before they try anything.
        return
    sandbox = box.sandbox(filesystem={"deny_write": ["later"]})
    wait = ["sh", "-c", "echo up; read x; touch later/x .vscode/x; ls -A"]
    read, write = os.pipe()
    try:
        with sandbox.start(wait, input=read) as first:
            while not first.logs():
                assert first.poll() is None
            assert (
                box.text("ls -d later .vscode", filesystem={"deny_write": ["later"]})
                == ".vscode\nlater\n"
            )
            # Its end leaves them to the first.
            assert (box.workspace / "later").is_dir()
            os.write(write, b"\n")
            result = first.wait()
    finally:
        os.close(read)
        os.close(write)
    assert result is not None
    assert b"Read-only" in result.stderr
    assert list(box.workspace.iterdir()) == []


def test_placeholders_that_the_host_fills_stay(box: Box) -> None:
    with box.sandbox().start(["sleep", "60"]) as running:
        while not (box.workspace / ".vscode").is_dir():
            assert running.poll() is None
        (box.workspace / ".vscode" / "settings.json").write_text("{}")
        (box.workspace / ".idea").rmdir()
        (box.workspace / ".idea").write_text("mine")
        running.kill()
    assert tree(box.workspace) == {".idea": "mine", ".vscode": None, ".vscode/settings.json": "{}"}


def test_own_empty_directories_stay(box: Box) -> None:
    (box.workspace / ".vscode").mkdir()
    assert box.sh("touch .vscode/x").exit_code != 0
    assert list(box.workspace.iterdir()) == [box.workspace / ".vscode"]


def ocisbx_command(box: Box, *words: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "ocisbx", *words],
        cwd=box.workspace,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in ran.stderr
    return ran


def test_a_kept_bundle_holds_the_same(box: Box) -> None:
    repository(box.workspace)
    before = tree(box.workspace)
    script = "echo x >.vscode; echo x >.git/config; mv .git away; echo . >.git/commondir; true"
    words = ["--runtime", box.runtime.path, "--", "sh", "-c", script]
    bundle = f"{box.base}/bundle"
    for ran in (
        ocisbx_command(box, "run", "--keep-bundle", bundle, *words),
        ocisbx_command(box, "bundle", "run", bundle),
    ):
        refused = [line for line in ran.stderr.splitlines() if not line.startswith("ocisbx: note")]
        assert (ran.returncode, len(refused)) == (0, 4), ran.stderr
        assert tree(box.workspace) == before
    line = ocisbx_command(box, "bundle", "rerun", bundle).stdout.splitlines()[-1]
    ran = subprocess.run(["sh", "-c", line], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    # The bare runtime leaves what was missing; git takes no notice of it.
    left = tree(box.workspace)
    assert left.pop(".git/commondir") == "."
    assert {name for name in left if name not in before} >= {".vscode", ".envrc"}
    assert {name: left[name] for name in before} == before
    status = ["git", "status", "--short"]
    assert subprocess.check_output(status, cwd=box.workspace, env=GIT) == b""


@of_each_kind
@pytest.mark.parametrize("cleaner", ["gc", "the next call"])
def test_a_killed_driver_leaves_what_others_remove(box: Box, cleaner: str) -> None:
    repository(box.workspace)
    before = tree(box.workspace)
    words = ["run", "--runtime", box.runtime.path, "--", "sleep", "60"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ocisbx", *words], cwd=box.workspace
    ) as driver:
        assert eventually((box.workspace / ".git/commondir").exists)
        # One call ends beside it, and leaves its placeholders.
        assert box.run(["true"]).exit_code == 0
        assert (box.workspace / ".vscode").is_dir()
        driver.kill()
    assert tree(box.workspace) != before
    if cleaner != "gc":
        assert box.run(["true"]).exit_code == 0
        assert tree(box.workspace) == before
    assert eventually(lambda: ocisbx_command(box, "gc").returncode == 0 and not box.left())
    assert tree(box.workspace) == before


CODE = Path(ocisbx.__file__).parent


@of_each_kind
@pytest.mark.parametrize("preset", ["coding-agent", "yolo"])
def test_code_of_ours_in_the_workspace(box: Box, preset: str) -> None:
    """A clone as the workspace: its payload cannot change what the next call runs."""
    if box.lacks("network host") and preset == "yolo":
        return
    shutil.copytree(CODE, box.workspace / "ocisbx", ignore=shutil.ignore_patterns("__pycache__"))
    (box.workspace / "tools").mkdir()
    for name in ("tools/run", "pyproject.toml"):
        (box.workspace / name).write_text(KEPT)
    names = "ocisbx/errors.py ocisbx/json.py tools/run pyproject.toml .runtimes/crun"
    script = (
        f"mkdir -p .runtimes; for f in {names} src.py; do touch $f 2>&- && echo $f; done; "
        "mv ocisbx away 2>&- && echo moved; true"
    )
    words = ["run", "--preset", preset, "--runtime", box.runtime.path, "--", "sh", "-c", script]
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "ocisbx", *words],
        cwd=box.workspace,
        env=os.environ | {"PYTHONPATH": str(box.workspace)},
        check=False,
        capture_output=True,
        text=True,
    )
    free = ["src.py"] if preset != "yolo" else [*names.split(), "src.py", "moved"]
    assert ran.stdout.split() == free, ran.stderr


def test_enforcement_tells(box: Box) -> None:
    entry = box.run(["true"]).enforcement["filesystem"]
    assert entry.state is EnforcementState.ENFORCED
    assert entry.requested == "what the preset coding-agent protects"
    if not box.lacks("network host"):
        assert "filesystem" not in box.run(["true"], preset="yolo").enforcement
