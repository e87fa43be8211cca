"""Container: one container in the background, as any process of its user can hold it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Self

from ocisbx.backends import gc
from ocisbx.backends.names import release_name
from ocisbx.background.commands import Orders
from ocisbx.background.ending import read_ending, result_in
from ocisbx.background.leftovers import forget_control
from ocisbx.background.packets import ask, connect, error_of, hear
from ocisbx.bundle.directory import remove_tree
from ocisbx.bundle.record import State, read_record, read_records
from ocisbx.calls import given_call
from ocisbx.capture import read_at
from ocisbx.command import LOOK_S
from ocisbx.errors import ConfigError, InvalidState, OcisbxError, RuntimeFailed
from ocisbx.places import find_places
from ocisbx.result import Pressure, ResourceUsage, Termination
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ocisbx.bundle.record import Record
    from ocisbx.capture import Input
    from ocisbx.result import RunResult

    OnData = Callable[[bytes], None] | None

# How long a supervisor may take from its container's end to its own; and one that was killed.
ENDING_S = 30.0
PAUSE_S = 0.02


class Container:
    """A container in the background, by its record. It needs no closing: it stays what it is,
    whoever looks at it, until `remove()`."""

    def __init__(self, record: Record) -> None:
        self._record = record

    @classmethod
    def find(cls, given: str) -> Self:
        """The one with this id or name.

        Raises:
            ConfigError: there is none.
        """
        record = read_record(given) if given.isalnum() else None
        if record is None:
            record = next((one for one in read_records() if one.name == given), None)
        if record is None:
            raise ConfigError(
                f"{show(given)} is no container in the background",
                remedy="ocisbx ps -a lists them",
            )
        return cls(record)

    @classmethod
    def all(cls) -> list[Self]:
        """Those of this user, in the order in which they were created."""
        return [cls(record) for record in read_records()]

    def __repr__(self) -> str:
        return f"<Container {self.name or self.id} {self.state}>"

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str | None:
        return self._record.name

    @property
    def record(self) -> Record:
        return self._record

    @property
    def state(self) -> State:
        """created, running, exited or lost: at this moment."""
        return self._record.state()

    def start(self) -> Self:
        """Start the payload of a container that was created.

        Raises:
            InvalidState: it was started before.
            OcisbxError: it cannot be started; it has ended by that.
        """
        self._ask("start", State.CREATED)
        return self

    def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """The result, or None when `timeout_s` passed first.

        Raises:
            InvalidState: it was lost, so nobody knows.
            OcisbxError: ocisbx or the runtime failed.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (state := self.state) in (State.CREATED, State.RUNNING):
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            self._hear_end(left_s)
        if state is State.LOST:
            raise self._lost()
        return self._result()

    def never_ran(self) -> RunResult | None:
        """The result of a payload that was not found, or cannot be executed."""
        if self.state is not State.EXITED:
            return None
        result = self._result()
        never = (Termination.NOT_FOUND, Termination.NOT_EXECUTABLE)
        return result if result.termination in never else None

    def signal(self, number: int) -> None:
        """Signal the payload's process. Raises InvalidState: it is not running."""
        self._ask("signal", State.RUNNING, number=int(number))

    def kill(self) -> None:
        """SIGKILL the payload's process; all that it started ends with it."""
        self.signal(signal.SIGKILL)

    def stop(self, grace_s: float | None = None) -> None:
        """SIGTERM, a grace (that of the configuration, unless given), SIGKILL; returns at its end.

        Raises:
            InvalidState: it is not running.
        """
        self._ask("stop", State.RUNNING, grace_s=grace_s)
        self._await_end()

    def remove(self, *, force: bool = False) -> None:
        """Take away what is left of it, its captures too. `force`: end it before.

        Raises:
            InvalidState: it is running.
        """
        if self.state is State.RUNNING:
            if not force:
                raise self._refused("running", "ocisbx stop ends it; ocisbx rm -f does both")
            self._ask("stop", State.RUNNING, grace_s=0.0)
        if self.state is State.CREATED:
            try:
                ask(self.id, "discard")
            except InvalidState:
                if not self._is_starting():
                    raise
                self.remove(force=force)
                return
        self._await_end()
        self._collect()
        remove_tree(self._record.path)
        if self.name is not None:
            try:
                release_name(self.name, self.id)
            except FileNotFoundError:
                # The directory of names does not outlive a boot.
                return

    def _is_starting(self) -> bool:
        """Whether somebody starts it just now; then it runs, or has ended, when this returns."""
        deadline = time.monotonic() + ENDING_S
        while self.state is State.CREATED and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        return self.state is not State.CREATED

    def logs(self, stream: str = "stdout", offset: int = 0) -> bytes:
        """What was captured of `stdout` or `stderr` so far, from `offset` bytes on."""
        path = self.log_path(stream)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return b""
        return read_at(path, offset, size)

    def log_path(self, stream: str) -> str:
        """The file that it is captured in; not there before it was started."""
        if stream not in ("stdout", "stderr"):
            raise ConfigError(f"{show(stream)} is neither stdout nor stderr")
        return f"{self._record.path}/{stream}"

    def exec(  # noqa: PLR0913 -- each by its name
        self,
        command: Sequence[str] | str,
        *,
        input: Input = None,
        shell: bool = False,
        on_stdout: OnData = None,
        on_stderr: OnData = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        timeout_s: float | None = None,
        user: tuple[int, int] | None = None,
    ) -> RunResult:
        """Run a further command in it to its end, under the same limits and rules; it ends with the
        container. `env` is added to the container's variables.

        Raises:
            InvalidState: it is not running.
            PolicyDenied: `[commands]` does not let it run.
            OcisbxError: ocisbx failed.
        """
        call = given_call(
            command,
            input=input,
            shell=shell,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            env=env,
            workdir=workdir,
            user=user,
        )
        with self.orders() as orders:
            # The container's own time is not its commands'.
            return orders.under(timeout_s=timeout_s).run(call)

    def put(self, source: str, target: str) -> None:
        """Copy a file or tree of the host's into it, as `cp -r`. Raises as `get`."""
        from ocisbx.background.copying import put  # noqa: PLC0415 -- 10 ms, for who copies only

        with self.orders() as orders:
            put(orders, source, target)

    def get(self, source: str, target: str) -> None:
        """Copy a file or tree out of it, as `cp -r`: nothing is overwritten, no link is followed.
        Raises InvalidState, OcisbxError."""
        from ocisbx.background.copying import get  # noqa: PLC0415 -- as above

        with self.orders() as orders:
            get(orders, source, target)

    @contextlib.contextmanager
    def orders(self) -> Iterator[Orders]:
        """Where it takes further commands. Raises InvalidState: it is not running."""
        if (state := self.state) is not State.RUNNING:
            raise self._refused(state.value, REMEDIES["exec", state])
        orders = Orders.of(self.id)
        try:
            yield orders
        finally:
            orders.close()

    def usage(self) -> ResourceUsage:
        """What it used so far; complete once it has ended.

        Raises:
            InvalidState: it has not been started, or was lost.
        """
        if self.state is State.EXITED:
            return self._result().usage
        answer = self._ask("usage", State.RUNNING)
        if answer is None:
            return self._result().usage
        return ResourceUsage(**(answer | {"pressure": Pressure(**answer["pressure"])}))

    # ------------------------------------------------------------------------------------ inside
    def _ask(self, verb: str, needed: State, **members: Any) -> dict[str, Any] | None:  # noqa: ANN401 -- as JSON has them
        """The supervisor's answer; None: it has ended meanwhile. Raises what it says."""
        if (state := self.state) is not needed:
            raise self._refused(state.value, REMEDIES[verb, state])
        answer = ask(self.id, verb, **members)
        if answer is None and self._await_end() is State.LOST:
            raise self._lost()
        return answer

    def _hear_end(self, timeout_s: float | None) -> None:
        """Wait for the supervisor's end, or a while."""
        connection = connect(self.id)
        if connection is None:
            # It is about to end, or was killed.
            time.sleep(PAUSE_S)
            return
        with connection:
            poller = select.poll()
            poller.register(connection, select.POLLIN)
            limit_s = LOOK_S if timeout_s is None else min(LOOK_S, timeout_s)
            if poller.poll(limit_s * 1000 + 1) and hear(connection)[0]:
                # It has no descriptor to keep us with: nobody can be told of the end.
                time.sleep(limit_s)

    def _await_end(self) -> State:
        """The state once its supervisor has ended. Raises InvalidState: it does not."""
        deadline = time.monotonic() + ENDING_S
        while self._record.supervisor.alive():
            if time.monotonic() > deadline:
                raise InvalidState(
                    f"the supervisor of {self.name or self.id} does not end",
                    why=f"process {self._record.supervisor.pid} is stopped, or hangs",
                    remedy=f"kill -KILL {self._record.supervisor.pid}",
                )
            self._hear_end(deadline - time.monotonic())
            time.sleep(PAUSE_S / 10)
        return self.state

    def _collect(self) -> None:
        """End what a killed supervisor left, and take it away."""
        if os.path.isdir(f"{find_places().bundles}/{self.id}"):
            found = gc.examine(self.id)
            if found is not None and not gc.remove(found):
                raise OcisbxError(
                    f"what is left of {self.id} cannot be ended yet", remedy="try again"
                )
        forget_control(self.id)

    def _result(self) -> RunResult:
        ending = read_ending(self._record.path)
        if ending is None:
            raise self._lost()
        if "error" in ending:
            raise error_of(ending["error"])
        return result_in(self._record.path, ending)

    def _refused(self, state: str, remedy: str) -> InvalidState:
        words = {"exited": "has ended", "lost": "was lost", "created": "has not been started"}
        said = words.get(state, f"is {state}")
        return InvalidState(f"{self.name or self.id} {said}", remedy=remedy)

    def _lost(self) -> OcisbxError:
        return RuntimeFailed(
            f"{self.name or self.id} was lost",
            why="its supervisor was killed before it could tell the end; the container has ended",
            remedy=f"ocisbx logs {self.name or self.id} shows what was captured",
        )


# Verb and state that do not fit: what to do.
_AGAIN = "a container runs once: ocisbx create makes another"
_START = "ocisbx start starts it"
_NOTHING = "ocisbx logs shows what it printed, ocisbx rm removes it"
REMEDIES: dict[tuple[str, State], str] = {
    ("start", State.RUNNING): "it has been started already",
    ("start", State.EXITED): _AGAIN,
    ("start", State.LOST): _AGAIN,
    **{(verb, State.CREATED): _START for verb in ("signal", "stop", "usage", "exec")},
    **{
        (verb, state): _NOTHING
        for verb in ("signal", "stop", "usage", "exec")
        for state in (State.EXITED, State.LOST)
    },
}
