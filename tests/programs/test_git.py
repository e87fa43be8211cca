"""git, in a repository made inside and in one that was there before."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.box import Box
    from tests.programs.conftest import Work

pytestmark = pytest.mark.runtime

# Neither the user's configuration nor the machine's: there is none in a sandbox.
PERSON = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip

SUBJECTS = [
    "Merge branch 'feature' into trunk", "begin", "five", "four", "merged", "one", "three", "two",
]  # fmt: skip
# Of the file pushed from the clone, of the one amended and then changed in a worktree.
FILES = ["seven", "four", "unfinished", "six"]


def git(repository: Path, *words: str) -> str:
    """On the host."""
    command = ["git", "-C", str(repository), *words]
    return subprocess.run(command, env=PERSON, check=True, capture_output=True, text=True).stdout


def check(repository: Path, printed: str) -> None:
    """All of work.sh was done, and the host's git finds the same."""
    assert printed.splitlines() == [*SUBJECTS, *FILES, "v1"]
    assert sorted(git(repository, "log", "--format=%s", "other").splitlines()) == SUBJECTS
    assert git(repository, "status", "--porcelain") == ""


def test_a_new_repository(work: Work, box: Box) -> None:
    script = """
        mkdir new && cd new
        git init -q -b trunk
        git config user.name B
        git commit -q --allow-empty -m begin
        bash ../work.sh
    """
    check(box.workspace / "new", work("git", script, env={"set": PERSON}))


def test_a_repository_that_was_there(work: Work, box: Box) -> None:
    repository = box.workspace / "old"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "trunk")
    git(repository, "commit", "-q", "--allow-empty", "-m", "begin")
    check(repository, work("git", "cd old && bash ../work.sh", env={"set": PERSON}))
