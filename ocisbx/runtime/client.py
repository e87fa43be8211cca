"""RuntimeClient: one method for each verb, each an argv that can be compared in a test."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx import command
from ocisbx.errors import InvalidState, RuntimeFailed, RuntimeMissing
from ocisbx.init import cell_path
from ocisbx.quirks import parse_version
from ocisbx.runtime.sealed import sealed_copy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ocisbx.quirks import Quirks

VERB_TIMEOUT_S = 30.0

CELL_ARGS: Mapping[str, tuple[str, ...]] = {"mount": ("-m",), "user": ("-u", "-m")}
# Where a sealed copy of the runtime stands in the child: above stdio and the init's socket.
SEALED_FD = 4
SOCKET_FD = 3


@cache
def _cell_closes() -> bool:
    """Whether it marks all that it inherits close-on-exec; before Linux 5.11 (close_range(2)), the
    first 4096."""
    return parse_version(os.uname().release) >= (5, 11)


class RuntimeClient(NamedTuple):
    """A runtime binary with the state directory (`--root`) and the log of one container.

    `cell`: the namespaces that it is started in (ocisbx-init(7)); every verb is, so that all see
    the same cgroup file system.
    """

    path: str
    quirks: Quirks
    root: str
    log: str
    cell: str = "none"
    sealed: bool = False
    # Options before the verb, besides --root and --log (`Plan.runtime_args`).
    args: tuple[str, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """What the runtime has for its own. crun copies itself by way of a file named crun.XXXXXX
        (its cloned_binary.c): in the container's state it goes with the container, where one that
        is killed in that moment would leave it in /tmp for ever."""
        return {**command.ENVIRONMENT, "_LIBCONTAINER_STATEDIR": self.root}

    def argv(self, verb: str, *arguments: str) -> list[str]:
        """The runtime's own command line, without the cell."""
        return [
            self.path,
            "--root",
            self.root,
            "--log",
            self.log,
            "--log-format",
            "json",
            *self.args,
            verb,
            *arguments,
        ]

    def run_args(
        self, container_id: str, bundle: str, *, socket: bool, console: str | None = None
    ) -> list[str]:
        """`run` in the foreground, where it can be: one exec where create, start and delete are
        three."""
        handed = [*(self.quirks.socket_args or ())] if socket else []
        if console is not None:
            handed += ["--detach"] if self.quirks.terminal_detaches else []
            handed += ["--console-socket", console]
        return self.argv("run", *handed, "--bundle", bundle, container_id)

    def spawn_run(
        self,
        container_id: str,
        bundle: str,
        *,
        stdio: Mapping[int, int],
        socket: int | None,
        cgroup: str | None = None,
        console: str | None = None,
    ) -> command.Child:
        """Start `run`; `stdio` and `socket` are our descriptors for the runtime, `cgroup` is the
        directory of the one that it shall run in itself, `console` the socket to which it sends the
        container's terminal.

        Raises:
            RuntimeMissing: the binary is gone or cannot be executed.
        """
        argv = self.run_args(container_id, bundle, socket=socket is not None, console=console)
        descriptors = dict(stdio)
        if socket is not None:
            descriptors[SOCKET_FD] = socket
        executable = self.path
        try:
            if self.sealed and (copy := sealed_copy(self.path)) is not None:
                descriptors[SEALED_FD] = copy
                executable = f"/proc/self/fd/{SEALED_FD}"
            options = self._cell_options(bundle)
            options += [] if cgroup is None else ["-g", cgroup]
            if not options:
                return command.spawn(
                    argv,
                    descriptors=descriptors,
                    executable=executable,
                    environment=self.environment,
                )
            options += [] if socket is None else ["-k"]
            # execve names the file, argv[0] the runtime: the cell has only the first.
            cell = [cell_path(), *options, "--", executable, *argv[1:]]
            return command.spawn(
                cell, descriptors=descriptors, environment=self.environment, closes=_cell_closes()
            )
        except OSError as error:
            raise RuntimeMissing(
                f"runtime {self.path} cannot be started",
                why=error.strerror or "",
                remedy="`ocisbx doctor` tells which runtimes can",
            ) from error

    def _cell_options(self, bundle: str) -> list[str]:
        """What the cell has to do before a container is made; empty: it is not needed."""
        options = [*CELL_ARGS.get(self.cell, ())]
        options += ["-s"] if self.quirks.shares_keyring else []
        options += ["-C", bundle] if self.quirks.starts_in_bundle else []
        return options

    def verb(
        self, verb: str, *arguments: str, cell_args: Sequence[str] | None = None
    ) -> command.Completed:
        """Run a short verb to its end, whatever its status.

        Raises:
            RuntimeFailed: it hung or could not be started.
        """
        argv = self.argv(verb, *arguments)
        options = CELL_ARGS.get(self.cell, ()) if cell_args is None else cell_args
        if options:
            argv = [cell_path(), *options, "--", *argv]
        try:
            return command.run(argv, timeout_s=VERB_TIMEOUT_S, environment=self.environment)
        except (OSError, command.CommandTimeout) as error:
            raise RuntimeFailed(f"{verb} of {self.path} failed", why=str(error)) from error

    def create(self, container_id: str, bundle: str) -> None:
        options = self._cell_options(bundle)
        completed = self.verb("create", "--bundle", bundle, container_id, cell_args=options)
        if not completed.status.ok:
            raise self._failed("create", completed)

    def start(self, container_id: str) -> None:
        self._checked("start", container_id)

    def raise_loopback(self, pid: int) -> None:
        """Bring up the loopback of the container of this process.

        Raises:
            RuntimeFailed: it cannot be done.
        """
        if os.path.samefile("/proc/self/ns/net", f"/proc/{pid}/ns/net"):
            return
        done = command.run([cell_path(), "-l", str(pid)], timeout_s=VERB_TIMEOUT_S)
        if not done.status.ok:
            raise RuntimeFailed(
                "the container's loopback cannot be brought up",
                why=done.stderr.decode(errors="replace").strip() or str(done.status),
            )

    def state(self, container_id: str) -> dict[str, Any]:
        """The state document (runtime-spec, "State").

        Raises:
            InvalidState: the runtime does not know this container.
        """
        document: dict[str, Any] = json.loads(self._checked("state", container_id).stdout)
        return document

    def kill(self, container_id: str, signal: int | str = "KILL") -> None:
        """Signal the container's process 1.

        Raises:
            InvalidState: the runtime does not know this container, or it has ended.
        """
        self._checked("kill", container_id, str(signal))

    def exec(self, container_id: str, *argv: str) -> command.Completed:
        """A further process in a live container; the status is that process's own.

        Raises:
            InvalidState: the runtime does not know this container.
        """
        cell_args = None
        if self.cell == "user":
            # Only the user namespace in which a container was made has rights over it.
            cell_args = ["-j", str(self.state(container_id)["pid"]), "-m"]
        return self.verb("exec", container_id, *argv, cell_args=cell_args)

    def ps(self, container_id: str) -> list[int]:
        """The pids of a container, in our pid namespace: those of its cgroup.

        Raises:
            InvalidState: it has no cgroup (a rootless container where nothing is delegated).
        """
        pids: list[int] = json.loads(self._checked("ps", "--format", "json", container_id).stdout)
        return pids

    def delete(self, container_id: str, *, force: bool = False) -> None:
        """Forget a container; with `force`, kill it first. Silent when it is not known."""
        forced = ("--force",) if force else ()
        completed = self.verb("delete", *forced, container_id)
        if completed.status.ok or not self.knows(container_id):
            return
        if not force or self.verb("state", container_id).status.ok:
            raise self._failed("delete", completed)
        # A runtime that was killed before it wrote its state: youki reads none and gives up.
        import shutil  # noqa: PLC0415 -- 2 ms of every start, for what is rare

        shutil.rmtree(os.path.join(self.root, container_id), ignore_errors=True)

    def knows(self, container_id: str) -> bool:
        """Whether the runtime has left state of this container."""
        # runsc's state is a file, ID_sandbox:ID.state.
        return any(name.startswith(container_id) for name in os.listdir(self.root))

    def features(self) -> dict[str, Any] | None:
        """The features document; None where the runtime has none (crun 1.8, runsc)."""
        if not self.quirks.features:
            return None
        completed = self.verb("features")
        if not completed.status.ok:
            return None
        document: dict[str, Any] = json.loads(completed.stdout)
        return document

    def _checked(self, verb: str, *arguments: str) -> command.Completed:
        completed = self.verb(verb, *arguments)
        if not completed.status.ok:
            raise self._failed(verb, completed)
        return completed

    def _failed(self, verb: str, completed: command.Completed) -> InvalidState:
        words = completed.stderr.decode(errors="replace").strip() or str(completed.status)
        return InvalidState(f"{verb} of {self.quirks.name} failed", why=words[-500:])
