"""AsyncSandbox: Sandbox for asyncio."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ocisbx.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ocisbx.config import SandboxConfig
    from ocisbx.expect.terminal import AsyncTerminal
    from ocisbx.result import RunResult
    from ocisbx.running import AsyncRunning


class AsyncSandbox:
    """The same names, awaited."""

    def __init__(self, config: SandboxConfig | None = None, **fields: Any) -> None:  # noqa: ANN401 -- typed where they arrive
        self._sandbox = Sandbox(config, **fields)

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 -- 20 ms of every start, for those who await only

        await asyncio.to_thread(self._sandbox.resolve)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sandbox.__exit__()

    async def prompt(self) -> str:
        """As `Sandbox.prompt`."""
        import asyncio  # noqa: PLC0415 -- as above

        return await asyncio.to_thread(self._sandbox.prompt)

    async def run(self, command: Sequence[str] | str, **options: Any) -> RunResult:  # noqa: ANN401 -- typed where they arrive
        """As `Sandbox.arun`."""
        return await self._sandbox.arun(command, **options)

    def start(self, command: Sequence[str] | str, **options: Any) -> AsyncRunning:  # noqa: ANN401 -- typed where they arrive
        """As `Sandbox.start`: `async with sandbox.start(...) as running`, or `await` it."""
        from ocisbx.running import AsyncRunning  # noqa: PLC0415 -- as above

        return AsyncRunning(partial(self._sandbox.begin, command, **options))

    def spawn(
        self,
        command: Sequence[str] | str,
        *,
        encoding: str | None = "utf-8",
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> AsyncTerminal:
        """As `Sandbox.spawn`: `async with sandbox.spawn(...) as terminal`, or `await` it."""
        from ocisbx.expect.terminal import AsyncTerminal  # noqa: PLC0415 -- as above

        begin = partial(self._sandbox.hold, command, **options)
        return AsyncTerminal(begin, encoding=encoding)
