"""A git worktree as a session's workspace, made for it and taken away with it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from typing import TYPE_CHECKING, Self

from ocisbx import command
from ocisbx.bundle.directory import remove_tree
from ocisbx.bundle.owner import read_regular
from ocisbx.bundle.record import read_records
from ocisbx.bundle.view import write_file
from ocisbx.errors import ConfigError, OcisbxError
from ocisbx.places import ensure, find_places, trusted
from ocisbx.probe.programs import find_program
from ocisbx.values import show

if TYPE_CHECKING:
    from ocisbx.bundle.record import Record
    from ocisbx.config import SandboxConfig

GIT_TIMEOUT_S = 120.0
NOTE_FILE = "worktree.json"
# Beside a worktree that no session has yet; locked as long as somebody is to give it to one.
INTENT = ".intent"
# How old one is that nobody will write any more.
UNWRITTEN_S = 60.0
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
        self._intent = -1

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
        write_file(f"{directory}/{NOTE_FILE}", self._as_note(), 0o600)
        self._forget_intent()

    def _as_note(self) -> bytes:
        return json.dumps({"repository": self.repository, "name": self.name}).encode()

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
        """Make it, on a branch of its own from the repository's HEAD; `note` or `remove` is owed.

        Raises:
            OcisbxError: git cannot make it; nothing is left.
        """
        ensure(find_places().worktrees)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._intent = os.open(self.path + INTENT, flags, 0o600)
        try:
            fcntl.flock(self._intent, fcntl.LOCK_EX)
            os.write(self._intent, self._as_note())
            self._ask("worktree", "add", "--quiet", "-b", self.branch, self.path, "HEAD")
        except BaseException:
            self.remove()
            raise

    def _forget_intent(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path + INTENT)
        descriptor, self._intent = self._intent, -1
        if descriptor >= 0:
            os.close(descriptor)

    def remove(self) -> None:
        """Take it away, with what was not committed; its branch too, where nothing was."""
        if not self._run("worktree", "remove", "--force", "--force", self.path).status.ok:
            # A payload may have changed what git knows of it.
            if os.path.lexists(self.path):
                remove_tree(self.path)
            self._run("worktree", "prune")
        if self._run("merge-base", "--is-ancestor", self.branch, "HEAD").status.ok:
            self._run("branch", "--quiet", "-D", self.branch)
        self._forget_intent()

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


def forget_worktrees() -> None:
    """Remove those that were made for a session that never came to be: their maker was killed."""
    place = find_places().worktrees
    for name in os.listdir(place) if trusted(place) else ():
        if name.endswith(INTENT):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, OcisbxError):
                _forget(f"{place}/{name}")


def _forget(intent: str) -> None:
    descriptor = os.open(intent, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(descriptor).st_nlink:
            # Its maker came to the end meanwhile.
            return
        if text := os.read(descriptor, 1 << 16):
            raw = json.loads(text)
            made = Worktree(raw["repository"], raw["name"])
            if made.path + INTENT != intent:
                return
            if not any(_may_have(record, made) for record in read_records()):
                made.remove()
        elif time.time() - os.fstat(descriptor).st_mtime > UNWRITTEN_S:
            os.unlink(intent)
    finally:
        os.close(descriptor)


def _may_have(record: Record, made: Worktree) -> bool:
    """Whether this session works there. A maker that was killed before it left a note has left none
    to tell: then it is asked again by the next `gc`."""
    if os.path.exists(f"{record.path}/{NOTE_FILE}"):
        noted = Worktree.noted(record.path)
        return noted is not None and noted.name == made.name
    unknown = record.is_session and record.supervisor.alive()
    return unknown or record.workdir.startswith(made.path)
