"""ocisbx: run one command in one fresh, hardened, rootless OCI container.

    import ocisbx

    result = ocisbx.run(["python3", "-c", "print(1)"], timeout_s=30)
    print(result.stdout, result.termination, result.exit_code)

Public names are resolved when they are first used, so that the import itself stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.version import VERSION as __version__

if TYPE_CHECKING:
    from ocisbx.background.container import Container
    from ocisbx.config import SandboxConfig
    from ocisbx.errors import (
        BundleError,
        CgroupError,
        CommandFailed,
        ConfigError,
        ExpectEOF,
        ExpectTimeout,
        InvalidState,
        OcisbxError,
        PolicyDenied,
        RuntimeFailed,
        RuntimeMissing,
        TerminalError,
        Unsupported,
    )
    from ocisbx.expect.terminal import AsyncTerminal, Terminal
    from ocisbx.pool.asynchronous import AsyncPool
    from ocisbx.pool.pool import Pool
    from ocisbx.result import RunResult, Termination
    from ocisbx.sandbox.asynchronous import AsyncSandbox
    from ocisbx.sandbox.sandbox import Sandbox, arun, run
    from ocisbx.session.asynchronous import AsyncSession
    from ocisbx.session.session import Session

__all__ = [
    "AsyncPool",
    "AsyncSandbox",
    "AsyncSession",
    "AsyncTerminal",
    "BundleError",
    "CgroupError",
    "CommandFailed",
    "ConfigError",
    "Container",
    "ExpectEOF",
    "ExpectTimeout",
    "InvalidState",
    "OcisbxError",
    "PolicyDenied",
    "Pool",
    "RunResult",
    "RuntimeFailed",
    "RuntimeMissing",
    "Sandbox",
    "SandboxConfig",
    "Session",
    "Terminal",
    "TerminalError",
    "Termination",
    "Unsupported",
    "__version__",
    "arun",
    "run",
]

_HOMES = {
    "AsyncPool": "pool.asynchronous",
    "AsyncSandbox": "sandbox.asynchronous",
    "AsyncSession": "session.asynchronous",
    "AsyncTerminal": "expect.terminal",
    "Container": "background.container",
    "RunResult": "result",
    "Sandbox": "sandbox.sandbox",
    "Pool": "pool.pool",
    "SandboxConfig": "config",
    "Session": "session.session",
    "Terminal": "expect.terminal",
    "Termination": "result",
    "arun": "sandbox.sandbox",
    "run": "sandbox.sandbox",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module 'ocisbx' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module  # noqa: PLC0415 -- 0.1 MiB, for those who use a name

    value = getattr(import_module(f"ocisbx.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
