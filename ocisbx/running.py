"""A command in the background of this process, its loop in a thread; and the same for asyncio."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Self

from ocisbx.capture import read_at

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

    from ocisbx.backends.driven import Driven
    from ocisbx.result import ResourceUsage, RunResult

    # Given what to show the execution to, and how to sleep until its turn comes.
    Work = Callable[[Callable[[Driven], None], Callable[[float], None]], RunResult]


class CalledOff(Exception):
    """It was cancelled before anything had started."""


class Point:
    """A point in time that threads wait for, and that calls back."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def reach(self) -> None:
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def reached(self, timeout_s: float | None = 0.0) -> bool:
        return self._event.wait(timeout_s)

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once, from the thread that reaches it; at once when it is reached already."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()


class Running:
    """A command in a thread; use it as a context, whose exit ends what still runs."""

    def __init__(self, work: Work) -> None:
        """Begin `work`; `at_start`: its runtime was started, or could not be."""
        self._execution: Driven | None = None
        self._result: RunResult | None = None
        self._error: BaseException | None = None
        self.at_start = Point()
        self.at_end = Point()
        self._called_off = threading.Event()
        # Reentrant: a signal handler may cancel in the middle of either.
        self._handing_over = threading.RLock()
        self._thread = threading.Thread(
            target=self._work, args=(work,), name="ocisbx-running", daemon=True
        )
        self._thread.start()

    def started(self) -> Self:
        """Itself, once it has started; an exception meanwhile (KeyboardInterrupt) calls it off.

        Raises:
            OcisbxError: what kept it from starting.
        """
        try:
            self.at_start.reached(None)
        except BaseException:
            self.__exit__()
            raise
        if self._execution is None:
            self._thread.join()
            assert self._error is not None
            raise self._error
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.at_end.reached():
            self.cancel()
        self._thread.join()

    @property
    def id(self) -> str:
        assert self._execution is not None
        return self._execution.id

    def poll(self) -> RunResult | None:
        """The result, once there is one. Raises what `wait` raises."""
        return self.wait(0.0)

    def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """The result, or None when `timeout_s` passed first.

        Raises:
            OcisbxError: ocisbx or the runtime failed.
        """
        if not self.at_end.reached(timeout_s):
            return None
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def signal(self, number: int) -> None:
        """Signal the payload's process; silent when it has ended."""
        assert self._execution is not None
        self._execution.kill(number)

    def kill(self) -> None:
        """SIGKILL the payload's process; all that it started ends with it."""
        self.signal(9)

    def cancel(self) -> None:
        """SIGTERM, the grace, SIGKILL; asked again: SIGKILL. One that waits for its turn does not
        start any more."""
        with self._handing_over:
            self._called_off.set()
            if self._execution is not None:
                self._execution.cancel()

    def logs(self, stream: str = "stdout", offset: int = 0) -> bytes:
        """What was captured of `stdout` or `stderr` so far, from `offset` bytes on."""
        if self.at_end.reached() and self._result is not None:
            whole = self._result.stdout if stream == "stdout" else self._result.stderr
            return whole[offset:]
        assert self._execution is not None
        path = self._execution.capture_path(stream)
        try:
            return read_at(path, offset, os.stat(path).st_size)
        except FileNotFoundError:
            # Nothing has come yet, or it ended between the two looks.
            ended = self.at_end.reached() and self._result is not None
            return self.logs(stream, offset) if ended else b""

    def usage(self) -> ResourceUsage:
        """What it used; complete once it has ended."""
        assert self._execution is not None
        return self._execution.usage()

    def _work(self, work: Work) -> None:
        try:
            self._result = work(self._hold, self._pause)
        except BaseException as error:  # noqa: BLE001 -- handed to whoever waits
            self._error = error
        self.at_end.reach()
        self.at_start.reach()

    def _hold(self, execution: Driven) -> None:
        with self._handing_over:
            self._execution = execution
            if self._called_off.is_set():
                execution.cancel()
        self.at_start.reach()

    def _pause(self, seconds: float) -> None:
        if self._called_off.wait(seconds):
            raise CalledOff


async def reached(point: Point) -> None:
    """Await a point that another thread reaches."""
    import asyncio  # noqa: PLC0415 -- 20 ms, for those who await only

    there = asyncio.Event()
    _tell_loop(point, there)
    await there.wait()


def _tell_loop(point: Point, there: asyncio.Event) -> None:
    import asyncio  # noqa: PLC0415 -- as above

    loop = asyncio.get_running_loop()

    def wake() -> None:
        # A loop that was closed meanwhile has nobody left to wake.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(there.set)

    point.then(wake)


async def outcome(running: Running) -> RunResult:
    """Its result. Cancellation ends the payload (SIGTERM, the grace, SIGKILL; cancelled again:
    SIGKILL) and is raised when nothing is left of it."""
    import asyncio  # noqa: PLC0415 -- as above

    there = asyncio.Event()
    _tell_loop(running.at_end, there)
    cancelled = None
    # No task waits for it: whoever cancels all tasks, as asyncio.run at its end, would end that.
    while not there.is_set():
        try:
            await there.wait()
        except asyncio.CancelledError as error:
            cancelled = error
            running.cancel()
    if cancelled is not None:
        raise cancelled
    result = running.wait()
    assert result is not None
    return result


class AsyncRunning:
    """Running for asyncio: it is awaited, or used as an async context whose exit ends what runs.

    `wait` is awaited; `poll`, `signal`, `kill`, `cancel`, `logs` and `usage` return at once.
    """

    def __init__(self, begin: Callable[[], Running]) -> None:
        """`begin` does not wait for the start."""
        self._begin = begin

    def __await__(self) -> Generator[None, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 -- 20 ms, for those who await only

        from ocisbx.whole import whole  # noqa: PLC0415 -- as above

        # Once begun, nobody else would end its container.
        self._running = await whole(self._begin, undo=Running.__exit__)
        try:
            await reached(self._running.at_start)
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        running = self._running.started()
        self.id = running.id
        self.poll, self.signal, self.kill = running.poll, running.signal, running.kill
        self.cancel, self.logs, self.usage = running.cancel, running.logs, running.usage
        return self

    async def __aexit__(self, *_: object) -> None:
        from ocisbx.whole import whole  # noqa: PLC0415 -- as above

        await whole(self._running.__exit__)

    async def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """As `Running.wait`; a wait that is cancelled leaves the command running."""
        import asyncio  # noqa: PLC0415 -- as above

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reached(self._running.at_end), timeout_s)
        return self._running.poll()
