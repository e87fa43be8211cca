"""A git worktree as a session's workspace, made for it and taken away with it."""

from __future__ import annotations

import os
import secrets
from typing import Any

from ocisbx import command
from ocisbx.errors import ConfigError, OcisbxError
from ocisbx.places import ensure, find_places
from ocisbx.probe.programs import find_program

GIT_TIMEOUT_S = 120.0


class Worktree:
    """`path` is there from `add` to `remove`. What was committed in it stays in the repository, on
    the branch ocisbx/NAME; what was not is gone with it."""

    def __init__(self, repository: str) -> None:
        """Raises ConfigError: that is no git repository, or there is no git."""
        self._git = find_program("git")
        if self._git is None:
            raise ConfigError("a worktree needs git", remedy="install git")
        self._repository = os.path.abspath(repository)
        self._common = self._ask("rev-parse", "--path-format=absolute", "--git-common-dir")
        name = secrets.token_hex(5)
        self.branch = f"ocisbx/{name}"
        self.path = f"{find_places().state}/worktrees/{name}"

    def fields(self) -> dict[str, Any]:
        """What a configuration needs for it: the worktree, and what it shares with the repository,
        but for what git runs on the host by it."""
        protected = [f"{self._common}/{name}" for name in ("config", "hooks", "info")]
        return {
            "workspace": self.path,
            "volumes": [{"source": self._common, "target": self._common}],
            "filesystem": {"deny_write": [one for one in protected if os.path.exists(one)]},
        }

    def add(self) -> None:
        """Make it, on a branch of its own from the repository's HEAD. Raises OcisbxError."""
        ensure(find_places().state)
        ensure(os.path.dirname(self.path))
        self._ask("worktree", "add", "--quiet", "-b", self.branch, self.path, "HEAD")

    def remove(self) -> None:
        """Take it away, with what was not committed; its branch too, where nothing was."""
        self._ask("worktree", "remove", "--force", self.path)
        merged = self._run("merge-base", "--is-ancestor", self.branch, "HEAD")
        if merged.status.ok:
            self._ask("branch", "--quiet", "-D", self.branch)

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
            [self._git, *safe, "-C", self._repository, *arguments], timeout_s=GIT_TIMEOUT_S
        )
