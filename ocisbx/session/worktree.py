"""A git worktree as a session's workspace, made for it and taken away with it."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Self

from ocisbx import command
from ocisbx.bundle.directory import remove_tree
from ocisbx.bundle.owner import read_regular
from ocisbx.bundle.view import write_file
from ocisbx.errors import ConfigError, OcisbxError
from ocisbx.places import ensure, find_places
from ocisbx.probe.programs import find_program
from ocisbx.values import show

if TYPE_CHECKING:
    from ocisbx.config import SandboxConfig

GIT_TIMEOUT_S = 120.0
NOTE_FILE = "worktree.json"
# What of a repository's directory decides what git runs, or takes for its configuration.
PROTECTED = ("config", "config.worktree", "hooks", "info")


class Worktree:
    """`path` is there from `add` to `remove`. What was committed in it stays in the repository, on
    the branch ocisbx/NAME; what was not is gone with it."""

    def __init__(self, repository: str, name: str = "") -> None:
        """`name`: of one that is there already.

        Raises:
            ConfigError: that is no git repository, or one without a commit; there is no git.
        """
        self._git = find_program("git")
        if self._git is None:
            raise ConfigError("a worktree needs git", remedy="install git")
        self.repository = os.path.abspath(repository)
        self.name = name or secrets.token_hex(5)
        self.branch = f"ocisbx/{self.name}"
        self.path = f"{find_places().worktrees}/{self.name}"

    @classmethod
    def of(cls, repository: str) -> Self:
        """A new one; nothing is made yet. Raises ConfigError, as above."""
        made = cls(repository)
        if not made._run("rev-parse", "--git-dir").status.ok:
            raise ConfigError(f"{show(repository)} is no git repository", remedy="git init there")
        if not made._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}").status.ok:
            raise ConfigError(f"{show(repository)} has no commit", remedy="commit something first")
        return made

    @classmethod
    def noted(cls, directory: str) -> Self | None:
        """The one that was noted in this directory of ours; None: none was."""
        try:
            raw = json.loads(read_regular(f"{directory}/{NOTE_FILE}"))
            repository, name = raw["repository"], raw["name"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        # It is ours to remove.
        return cls(repository, name) if str(name).isalnum() else None

    def note(self, directory: str) -> None:
        """Leave word of it for who takes it away. Raises OSError."""
        text = json.dumps({"repository": self.repository, "name": self.name})
        write_file(f"{directory}/{NOTE_FILE}", text.encode(), 0o600)

    def within(self, config: SandboxConfig) -> SandboxConfig:
        """The configuration with what the worktree needs: itself as the workspace, and what it
        shares with the repository, but for what git runs on the host by it."""
        common = self._ask("rev-parse", "--path-format=absolute", "--git-common-dir")
        said = config.said()
        own = said.get("filesystem", {})
        protected = [f"{self.path}/.git", *(f"{common}/{name}" for name in PROTECTED)]
        denied = [*own.get("deny_write", ()), *protected]
        shared = {"source": common, "target": common}
        return config.updated(
            {
                "workspace": self.path,
                "volumes": [*said.get("volumes", ()), shared],
                "filesystem": {**own, "deny_write": denied},
            }
        )

    def add(self) -> None:
        """Make it, on a branch of its own from the repository's HEAD. Raises OcisbxError."""
        ensure(find_places().worktrees)
        self._ask("worktree", "add", "--quiet", "-b", self.branch, self.path, "HEAD")

    def remove(self) -> None:
        """Take it away, with what was not committed; its branch too, where nothing was."""
        if not self._run("worktree", "remove", "--force", "--force", self.path).status.ok:
            # A payload may have changed what git knows of it.
            if os.path.lexists(self.path):
                remove_tree(self.path)
            self._run("worktree", "prune")
        if self._run("merge-base", "--is-ancestor", self.branch, "HEAD").status.ok:
            self._run("branch", "--quiet", "-D", self.branch)

    def _ask(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if not done.status.ok:
            words = done.stderr.decode(errors="replace").strip()
            raise OcisbxError(f"git {arguments[0]} failed", why=words[-500:] or str(done.status))
        return done.stdout.decode(errors="surrogateescape").strip()

    def _run(self, *arguments: str) -> command.Completed:
        assert self._git is not None
        # What a payload could have written there is not run: hooks and file system monitors.
        safe = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
        return command.run(
            [self._git, *safe, "-C", self.repository, *arguments], timeout_s=GIT_TIMEOUT_S
        )
