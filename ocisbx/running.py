"""A command in the background of this process, its loop in a thread; and the same for asyncio."""

from __future__ import annotations

import contextlib
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Self

from ocisbx.capture import read_at

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

    from ocisbx.backends.execution import OciExecution
    from ocisbx.result import ResourceUsage, RunResult

    Work = Callable[[Callable[[OciExecution], None]], RunResult]


class Running:
    """A started command; use it as a context, whose exit ends what still runs."""

    def __init__(self, work: Work) -> None:
        """Start `work` in a thread; returns once the runtime was started.

        Raises:
            OcisbxError: what kept it from starting.
        """
        self._execution: OciExecution | None = None
        self._result: RunResult | None = None
        self._error: BaseException | None = None
        self._started = threading.Event()
        self._done = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._work, args=(work,), name="ocisbx-running", daemon=True
        )
        self._thread.start()
        self._started.wait()
        if self._execution is None:
            self._thread.join()
            assert self._error is not None
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._done.is_set():
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
        if not self._done.wait(timeout_s):
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
        """SIGTERM, the grace, SIGKILL; asked again: SIGKILL."""
        assert self._execution is not None
        self._execution.cancel()

    def logs(self, stream: str = "stdout", offset: int = 0) -> bytes:
        """What was captured of `stdout` or `stderr` so far, from `offset` bytes on."""
        if self._done.is_set() and self._result is not None:
            whole = self._result.stdout if stream == "stdout" else self._result.stderr
            return whole[offset:]
        assert self._execution is not None
        path = self._execution.capture_path(stream)
        try:
            return read_at(path, offset, os.stat(path).st_size)
        except FileNotFoundError:
            # It ended between the two looks; where it failed, its captures are gone with it.
            ended = self._done.wait(5.0) and self._result is not None
            return self.logs(stream, offset) if ended else b""

    def usage(self) -> ResourceUsage:
        """What it used; complete once it has ended."""
        assert self._execution is not None
        return self._execution.usage()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once, from the thread, when all is over; at once when it is already."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def _work(self, work: Work) -> None:
        try:
            self._result = work(self._hold)
        except BaseException as error:  # noqa: BLE001 -- handed to whoever waits
            self._error = error
        with self._lock:
            self._done.set()
        self._started.set()
        for callback in self._callbacks:
            callback()

    def _hold(self, execution: OciExecution) -> None:
        self._execution = execution
        self._started.set()


def wake(loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    """Set an event of another thread's loop."""
    # A loop that was closed meanwhile has nobody left to wake.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(done.set)


class AsyncRunning:
    """Running for asyncio: it is awaited, or used as an async context whose exit ends what runs.

    `wait` is awaited; `poll`, `signal`, `kill`, `cancel`, `logs` and `usage` return at once.
    """

    def __init__(self, start: Callable[[], Running]) -> None:
        self._start = start

    def __await__(self) -> Generator[None, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 -- 20 ms, for those who await only

        starting = asyncio.ensure_future(asyncio.to_thread(self._start))
        try:
            self._running = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Once begun, a start cannot be called off: nobody else would end its container.
            self._running = await starting
            await self.__aexit__()
            raise
        running = self._running
        self.id = running.id
        self.poll, self.signal, self.kill = running.poll, running.signal, running.kill
        self.cancel, self.logs, self.usage = running.cancel, running.logs, running.usage
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio  # noqa: PLC0415 -- as above

        await asyncio.shield(asyncio.to_thread(self._running.__exit__))

    async def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """As `Running.wait`; a wait that is cancelled leaves the command running."""
        import asyncio  # noqa: PLC0415 -- as above

        done = asyncio.Event()
        self._running.when_done(partial(wake, asyncio.get_running_loop(), done))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), timeout_s)
        return self._running.poll()
