"""A git worktree as the workspace: made, worked in, taken away, whatever a payload does to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx import Container, Session
from ocisbx.bundle.record import State
from ocisbx.session.session import remove
from tests.box import eventually
from tests.command_line import environment
from tests.command_line import ocisbx as command

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

COMMIT = """
echo new >file
git -c user.name=n -c user.email=e@example.org commit -qam work && echo wip >w
"""


def git(place: Path, *arguments: str) -> str:
    line = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments]
    done = subprocess.run(line, cwd=place, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(house: Box) -> Path:
    place = house.base / "repository"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "file").write_text("old\n")
    git(place, "add", "file")
    git(place, "commit", "-q", "-m", "first")
    return place


def test_committed_work_stays_on_the_branch(house: Box, repository: Path) -> None:
    with house.session(worktree=str(repository)) as session:
        assert session.workspace is not None
        made = Path(session.workspace)
        assert (made / "file").read_text() == "old\n"
        assert session.run(["cat", "file"]).stdout == b"old\n"
        done = session.run(COMMIT, shell=True)
        assert done.exit_code == 0, done.stderr
        assert (made / "w").read_text() == "wip\n"
    assert not made.exists()
    assert (repository / "file").read_text() == "old\n"
    (branch,) = git(repository, "branch", "--list", "ocisbx/*", "--format=%(refname:short)").split()
    assert git(repository, "show", f"{branch}:file") == "new"
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_what_was_not_committed_goes_with_its_branch(house: Box, repository: Path) -> None:
    with house.session(worktree=str(repository)) as session:
        assert session.run("echo x >file; echo y >z", shell=True).exit_code == 0
    assert git(repository, "branch", "--list", "ocisbx/*") == ""
    assert git(repository, "status", "--porcelain") == ""


def test_two_at_once_do_not_meet(house: Box, repository: Path) -> None:
    with (
        house.session(worktree=str(repository)) as one,
        house.session(worktree=str(repository)) as other,
    ):
        assert one.run("echo one >file", shell=True).exit_code == 0
        assert other.run(["cat", "file"]).stdout == b"old\n"


def test_where_there_is_nothing_to_start_from(house: Box, repository: Path) -> None:
    with pytest.raises(ocisbx.ConfigError, match="is no git repository"):
        house.session(worktree=str(house.workspace))
    with pytest.raises(ocisbx.ConfigError, match="is no git repository"):
        house.session(worktree=str(house.base / "none"))
    empty = house.base / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    with pytest.raises(ocisbx.ConfigError, match="has no commit"):
        house.session(worktree=str(empty))
    with pytest.raises(ocisbx.OcisbxError):
        house.session(worktree=str(repository), runtime={"names": ["/no/runtime"]}).open()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "branch", "--list", "ocisbx/*") == ""


HOSTILE = """
common=$(git rev-parse --path-format=absolute --git-common-dir)
own=$(git rev-parse --path-format=absolute --git-dir)
for place in $common $own; do
  mkdir -p $place/hooks
  for hook in post-checkout reference-transaction post-index-change; do
    printf '#!/bin/sh\\ntouch %s\\n' $MARK >$place/hooks/$hook && chmod +x $place/hooks/$hook
  done
  git config --file $place/config core.fsmonitor "touch $MARK"
  printf '[core]\\n fsmonitor = touch %s\\n' $MARK >$place/config.worktree
done
echo gitdir: /tmp >.git
touch $own/locked
echo /tmp >$own/commondir
rm -rf $own/HEAD $own/gitdir
true
"""


@pytest.mark.parametrize("prepared", [True, False], ids=["with hooks", "without"])
def test_nothing_of_it_is_run_on_the_host(house: Box, repository: Path, *, prepared: bool) -> None:
    hooks = repository / ".git" / "hooks"
    for one in hooks.glob("*"):
        one.unlink()
    mark = house.base / "ran"
    if prepared:
        (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / "post-checkout").chmod(0o755)
    else:
        hooks.rmdir()
    with house.session(worktree=str(repository)) as session:
        assert not mark.exists()
        session.run(HOSTILE, shell=True, env={"MARK": str(mark)})
        made = Path(session.workspace or "")
    assert not made.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "status", "--porcelain") == ""
    if prepared:
        (hooks / "post-checkout").unlink()
    git(repository, "checkout", "-q", "-b", "other")
    assert not mark.exists()


def test_it_goes_with_a_session_that_was_kept_or_whose_owner_was_killed(
    house: Box, repository: Path
) -> None:
    script = f"""
import os, sys, ocisbx
session = ocisbx.Session(worktree={str(repository)!r}, name=sys.argv[1], keep=sys.argv[1] == "kept")
session.open()
print(session.workspace, flush=True)
os.kill(os.getpid(), 9)
"""
    for name in ("kept", "orphan"):
        line = [sys.executable, "-c", script, name]
        done = subprocess.run(line, env=environment(house), check=False, stdout=subprocess.PIPE)
        place = Path(os.fsdecode(done.stdout.strip()))
        assert place.is_dir()
        if name == "kept":
            found = Session.find("kept")
            assert found.workspace == str(place)
            found.end()
        else:
            orphan = Container.find("orphan")
            assert eventually(lambda one=orphan: one.state is State.EXITED)  # type: ignore[misc]
            assert place.is_dir()
            remove(orphan)
        assert not place.exists()
    assert git(repository, "branch", "--list", "ocisbx/*") == ""


def test_it_is_removed_when_its_maker_was_killed_before_a_session_had_it(
    house: Box, repository: Path
) -> None:
    script = f"""
import os, sys
from ocisbx.session.worktree import Worktree
made = Worktree.of({str(repository)!r})
made.add()
print(made.path, flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""
    line = [sys.executable, "-c", script]
    with subprocess.Popen(
        line, env=environment(house), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as maker:
        assert maker.stdout is not None
        place = Path(os.fsdecode(maker.stdout.readline().strip()))
        assert command(house, "gc").returncode == 0
        assert place.is_dir()
        maker.communicate()
    assert place.is_dir()
    assert command(house, "gc").returncode == 0
    assert not place.exists()
    assert git(repository, "branch", "--list", "ocisbx/*") == ""


def test_its_own_configuration_stays_beside_it(house: Box, repository: Path) -> None:
    (house.workspace / "data").write_text("data\n")
    options: dict[str, Any] = {
        "volumes": [f"{house.workspace}:/data:ro"],
        "filesystem": {"deny_write": ["file"]},
    }
    with house.session(worktree=str(repository), **options) as session:
        assert session.run(["cat", "/data/data"]).stdout == b"data\n"
        assert session.run("echo x >file", shell=True).exit_code != 0
        assert session.run("echo x >other", shell=True).exit_code == 0
