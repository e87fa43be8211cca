"""[filesystem]: what is denied cannot be written, read or come to be, by any way that we know."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx.backends.base import Call, Step
from ocisbx.errors import ConfigError, RuntimeFailed, Unsupported
from ocisbx.presets import PROTECTED
from ocisbx.result import EnforcementState
from ocisbx.sandbox import run_plan
from tests.box import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.box import Box

pytestmark = pytest.mark.runtime

ATTACKS = Path(__file__).with_name("path_attacks.py").read_text()
KEPT = "kept as it was\n"


def tree(root: Path) -> dict[str, str | None]:
    """Every name below `root`, with the text of files."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_text("latin-1")
        for path in sorted(root.rglob("*"))
    }


def fill(root: Path) -> None:
    for name in ("one/two/file", "one/two/directory/inner", "one/two/directory/deep/er"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(KEPT)


def attacked(box: Box, paths: list[str], **fields: Any) -> str:
    """What the attacks print; the payload's own leftovers are taken away."""
    result = box.python(ATTACKS, *paths, **fields)
    assert (result.exit_code, result.stderr) == (0, b""), result.stderr
    return result.stdout.decode()


def sweep(root: Path) -> None:
    for path in sorted(root.rglob("*spare*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for path in root.rglob("*.link"):
        path.unlink()


DENIED = ["one/two/file", "one/two/directory", "new", "one/two/new", "far/away/new"]


@pytest.mark.parametrize("place", ["workspace", "volume"])
def test_attacks(box: Box, place: str) -> None:
    fill(box.workspace)
    before = tree(box.workspace)
    if place == "workspace":
        fields: dict[str, Any] = {"filesystem": {"deny_write": DENIED}}
    else:
        denied = [f"{box.workspace}/{name}" for name in DENIED]
        fields = {
            "filesystem": {"deny_write": denied},
            "workspace": "none",
            "volumes": [f"{box.workspace}:/elsewhere"],
            "workdir": "/elsewhere",
        }
    assert attacked(box, DENIED, preset="yolo", isolation={"level": "restricted"}, **fields) == ""
    sweep(box.workspace)
    assert tree(box.workspace) == before


def test_the_attacks_work_without_rules(box: Box) -> None:
    """So that their failure above means something."""
    fill(box.workspace)
    done = attacked(box, ["one/two/file", "none", "new"], preset="yolo")
    for name in ("write", "append", "truncate", "rename over", "hard link", "move a parent away"):
        assert f"{name}: {box.workspace}/one/two/file\n" in done
    assert f"create: {box.workspace}/new\n" in done
    fill(box.workspace)
    (box.workspace / "top").write_text("")
    done = attacked(box, ["top", "one/two/directory"], preset="yolo")
    for name in ("create in it", "write in it", "remove in it", "link into it", "remove it all"):
        assert f"{name}: {box.workspace}/one/two/directory\n" in done


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


GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "PATH": os.environ["PATH"]}
ME = "git config --global user.name me; git config --global user.email me@example.org; set -e; "


def repository(path: Path) -> None:
    for words in (["init", "-q"], ["config", "user.name", "me"], ["config", "user.email", "m@e"],
                  ["commit", "-q", "--allow-empty", "-m", "first"]):  # fmt: skip
        subprocess.run(["git", *words], cwd=path, env=GIT, check=True, capture_output=True)


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


@pytest.mark.parametrize("preset", ["coding-agent", "balanced", "yolo"])
def test_git_on_the_host_runs_nothing_of_the_payload(box: Box, preset: str) -> None:
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


def test_git_init_works(box: Box) -> None:
    assert (
        box.text(ME + "git init -q .; git commit -q --allow-empty -m x; git log --format=%s")
        == "x\n"
    )
    # From then on it is protected.
    assert box.sh("echo x >.git/hooks/pre-commit").exit_code != 0


def test_what_nobody_may_read(box: Box) -> None:
    fill(box.workspace)
    (box.workspace / ".env").write_text("KEY=secret")
    (box.workspace / "link").symlink_to("one/two")
    rules = {"deny_read": ["one/two", "**/.env", "later", "/etc/ssl/certs"]}
    script = (
        "cat .env; ls one/two link link/ /etc/ssl/certs; cat one/two/file link/file; echo x >later;"
        "mv one gone; mv .env gone; mount --bind / one; ln .env x; chmod 777 .env one/two"
    )
    result = box.sh(script, filesystem=rules)
    assert "secret" not in result.stdout.decode()
    assert KEPT not in result.stdout.decode()
    listed = result.stdout.decode().split()
    assert not {"file", "directory", "ca-certificates.crt"} & set(listed)
    assert box.text("cat one/two/file", workspace=str(box.workspace)) == KEPT
    assert not (box.workspace / "later").exists()
    with pytest.raises(Unsupported, match="symlink"):
        box.run(["true"], filesystem={"deny_write": ["link/file"]})


def test_the_innermost_rule_counts(box: Box) -> None:
    for name in ("a/b/c", "a/x", "outside"):
        (box.base / "ws" / name).mkdir(parents=True)
    outside = box.base / "outside"
    outside.mkdir()
    rules = {"deny_write": ["a", "a/b/c"], "allow_write": ["a/b", str(outside)]}
    script = (
        f"for d in a a/x a/b a/b/c {outside} .; do touch $d/f 2>/dev/null && echo $d; done; true"
    )
    assert box.text(script, filesystem=rules).split() == ["a/b", str(outside), "."]
    ro = f"{box.workspace}:ro"
    assert box.text(script, filesystem=rules, workspace=ro).split() == ["a/b", str(outside)]
    (box.workspace / ".vscode").mkdir()
    lifted = {"allow_write": [".vscode"]}
    assert box.text("touch .vscode/f; ls .vscode", filesystem=lifted) == "f\n"


def test_a_volume_nested_in_what_is_denied(box: Box) -> None:
    inner = box.base / "inner"
    inner.mkdir()
    (box.workspace / "data").mkdir()
    (box.workspace / "data" / "x").mkdir()
    fields = {"filesystem": {"deny_write": ["data"]}}
    volumes = [f"{inner}:{box.workspace}/data/x"]
    script = "touch data/x/f; touch data/g; ls data data/x"
    assert box.sh(script, volumes=volumes, **fields).stdout.decode() == "data:\nx\n\ndata/x:\nf\n"
    with pytest.raises(ConfigError, match="nothing can be mounted"):
        box.run(["true"], volumes=[f"{inner}:{box.workspace}/data/y"], **fields)


def test_links_are_said_and_refused(box: Box) -> None:
    fill(box.workspace)
    (box.workspace / "hard").hardlink_to(box.workspace / "one/two/file")
    (box.workspace / "soft").symlink_to("one/two/directory")
    for rule, word in (("one/two/file", "hard link"), ("one", "hard link"), ("soft", "symlink")):
        rules = {"deny_write": [rule]}
        with pytest.raises(Unsupported, match=word) as raised:
            box.run(["true"], filesystem=rules)
        assert "--allow-degraded filesystem" in raised.value.remedy
        result = box.sh(
            f"echo x >{rule}; echo x >{rule}/inner; mv one two; true",
            filesystem=rules,
            allow_degraded=["filesystem"],
        )
        entry = result.enforcement["filesystem"]
        assert entry.state is EnforcementState.PARTIAL
        assert word in entry.how
        assert (box.workspace / "one/two/directory/inner").read_text() == KEPT
        assert (box.workspace / "one/two/file").read_text() == KEPT


def test_globs_cover_what_comes_before_the_start(box: Box) -> None:
    """One Sandbox: its plan is not used again where a new path matches."""
    sandbox = box.sandbox(filesystem={"deny_write": ["**/*.lock", "d/**/x?"]})
    script = [
        "sh",
        "-c",
        "for f in a.lock d/e/b.lock d/e/x1 d/e/x12; do echo y >>$f && echo $f; done 2>&-; true",
    ]
    (box.workspace / "d/e").mkdir(parents=True)
    assert sandbox.run(script).stdout.split() == [b"a.lock", b"d/e/b.lock", b"d/e/x1", b"d/e/x12"]
    assert sandbox.run(script).stdout.split() == [b"d/e/x12"]


def test_two_calls_share_placeholders(box: Box) -> None:
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


@pytest.mark.parametrize("preset", ["coding-agent", "yolo"])
def test_code_of_ours_in_the_workspace(box: Box, preset: str) -> None:
    """A clone as the workspace: its payload cannot change what the next call runs."""
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


@pytest.fixture
def outside(box: Box) -> Iterator[Path]:
    path = box.base / "outside"
    path.mkdir()
    (path / "secret").write_text(KEPT)
    yield path
    assert tree(path) == {"secret": KEPT}


def test_a_symlink_that_comes_in_between_gives_nothing_away(box: Box, outside: Path) -> None:
    """Between the plan's check and the runtime's mounts: the runtime follows it."""
    (box.workspace / "a/b").mkdir(parents=True)
    (box.workspace / "a/b/f").write_text(KEPT)
    sandbox = box.sandbox(filesystem={"deny_write": ["a/b/f"]})
    plan = sandbox.resolve()

    def swap(step: Step) -> None:
        if step is Step.BUNDLE_MADE:
            (box.workspace / "a/b").rename(box.workspace / "c")
            (box.workspace / "a/b").symlink_to(outside)
            (outside / "f").write_text("")

    call = Call(
        argv=("sh", "-c", "echo y >a/b/secret; cat a/b/secret"), environment={}, on_step=swap
    )
    try:
        with pytest.raises(RuntimeFailed):
            run_plan(plan, call, audit=False)
    finally:
        (outside / "f").unlink()


def test_missing_and_unfit_allowances(box: Box) -> None:
    for path in ("nowhere", "/nowhere/at/all", "/", "/proc/sys", str(box.run_directory / "ocisbx")):
        with pytest.raises(ConfigError):
            box.run(["true"], filesystem={"allow_write": [path]})
    with pytest.raises(ConfigError, match="there is none"):
        box.run(["true"], workspace="none", filesystem={"deny_write": ["x"]})
    (box.workspace / "s/t").mkdir(parents=True)
    with pytest.raises(ConfigError, match="deny_read hides"):
        box.run(["true"], filesystem={"deny_read": ["s"], "allow_write": ["s/t"]})


def test_enforcement_tells(box: Box) -> None:
    entry = box.run(["true"]).enforcement["filesystem"]
    assert entry.state is EnforcementState.ENFORCED
    assert entry.requested == "what the preset coding-agent protects"
    assert "filesystem" not in box.run(["true"], preset="yolo").enforcement
