"""AsyncSession: Session for asyncio."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ocisbx.running import AsyncRunning, outcome
from ocisbx.session.session import Session
from ocisbx.whole import whole

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from ocisbx.background.container import Container
    from ocisbx.config import SandboxConfig
    from ocisbx.expect.terminal import AsyncTerminal
    from ocisbx.result import RunResult


class AsyncSession:
    """The same names, awaited; `start` as `AsyncSandbox.start`. Cancellation ends the command that
    is awaited, with all that it started; what cannot be ended half-way (opening, copying) is waited
    for first."""

    def __init__(self, config: SandboxConfig | None = None, **options: Any) -> None:  # noqa: ANN401 -- typed where they arrive
        """As `Session`."""
        self._session = Session(config, **options)

    @classmethod
    def _of(cls, session: Session) -> Self:
        made = cls.__new__(cls)
        made._session = session  # noqa: SLF001 -- one of us
        return made

    @classmethod
    async def find(cls, given: str) -> Self:
        """As `Session.find`."""
        return cls._of(await whole(partial(Session.find, given)))

    async def __aenter__(self) -> Self:
        await whole(self._session.open, undo=lambda _: self._session.close())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def name(self) -> str | None:
        return self._session.name

    @property
    def is_running(self) -> bool:
        return self._session.is_running

    @property
    def workspace(self) -> str | None:
        return self._session.workspace

    async def open(self) -> None:
        """As `Session.open`."""
        await whole(self._session.open)

    async def run(
        self,
        command: Sequence[str] | str,
        *,
        timeout_s: float | None = None,
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> RunResult:
        """As `Session.run`; callbacks are called in another thread."""
        begin = partial(self._session.begin, command, timeout_s=timeout_s, **options)
        running = await whole(begin, undo=lambda running: running.__exit__())
        return await outcome(running)

    def start(self, command: Sequence[str] | str, **options: Any) -> AsyncRunning:  # noqa: ANN401 -- typed where they arrive
        """As `Session.start`: `async with session.start(...) as running`, or `await` it."""
        return AsyncRunning(partial(self._session.begin, command, **options))

    def spawn(
        self,
        command: Sequence[str] | str,
        *,
        encoding: str | None = "utf-8",
        **options: Any,  # noqa: ANN401 -- typed where they arrive
    ) -> AsyncTerminal:
        """As `Session.spawn`: `async with session.spawn(...) as terminal`, or `await` it."""
        from ocisbx.expect.terminal import (  # noqa: PLC0415 -- pexpect, for terminals only
            AsyncTerminal,
        )

        return AsyncTerminal(partial(self._session.hold, command, **options), encoding=encoding)

    async def put(self, source: str | os.PathLike[str], target: str) -> None:
        """As `Session.put`."""
        await whole(partial(self._session.put, source, target))

    async def get(self, source: str, target: str | os.PathLike[str]) -> None:
        """As `Session.get`."""
        await whole(partial(self._session.get, source, target))

    def child(self, config: SandboxConfig | None = None, **options: Any) -> AsyncSession:  # noqa: ANN401 -- typed where they arrive
        """As `Session.child`."""
        return self._of(self._session.child(config, **options))

    async def children(self) -> list[Container]:
        """As `Session.children`."""
        return await whole(self._session.children)

    async def end_child(self, given: str) -> None:
        """As `Session.end_child`."""
        await whole(partial(self._session.end_child, given))

    async def close(self) -> None:
        """As `Session.close`."""
        await whole(self._session.close)

    async def end(self) -> None:
        """As `Session.end`."""
        await whole(self._session.end)
