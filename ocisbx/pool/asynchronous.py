"""AsyncPool: Pool for asyncio."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ocisbx.pool.pool import Counts, Pool
from ocisbx.running import AsyncRunning, outcome
from ocisbx.whole import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ocisbx.config import SandboxConfig
    from ocisbx.result import RunResult


class AsyncPool:
    """Pool for asyncio: the same names, awaited; callbacks are called in another thread."""

    def __init__(
        self,
        config: SandboxConfig | None = None,
        size: int | tuple[int, int] = 8,
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> None:
        """As Pool."""
        self._pool = Pool(config, size, **options)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """As `Pool.open`; cancelled, it closes the pool."""
        await whole(self._pool.open, undo=lambda _: self._pool.close())

    async def close(self) -> None:
        """As `Pool.close`."""
        await whole(self._pool.close)

    @property
    def counts(self) -> Counts:
        return self._pool.counts

    async def run(self, command: Sequence[str] | str, **options: Any) -> RunResult:  # noqa: ANN401 -- typed where they arrive
        """As `Pool.run`. Cancellation ends the payload (SIGTERM, the grace, SIGKILL) and is raised
        when it has ended."""
        return await outcome(self._pool.begin(command, **options))

    async def run_code(self, code: str, arguments: Sequence[str] = (), **options: Any) -> RunResult:  # noqa: ANN401 -- as above
        """As `Pool.run_code`; cancellation as that of `run`."""
        return await outcome(self._pool.begin_code(code, arguments, **options))

    def start(self, command: Sequence[str] | str, **options: Any) -> AsyncRunning:  # noqa: ANN401 -- typed where they arrive
        """As `Pool.start`: `async with pool.start(...) as running`, or `await` it."""
        return AsyncRunning(partial(self._pool.begin, command, **options))
