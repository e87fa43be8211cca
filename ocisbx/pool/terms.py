"""What one call of a pool has instead of the pool's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.errors import ConfigError, Unsupported
from ocisbx.pool.workspaces import PoolSandbox

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ocisbx.plan import Plan


class Terms(NamedTuple):
    """As the options of `Pool.run`; None: the pool's."""

    timeout_s: float | None = None
    limits: Mapping[str, Any] | None = None
    workspace: str | os.PathLike[str] | None = None

    @classmethod
    def take(cls, options: dict[str, Any]) -> Terms:
        """Those that are among the options of a call, which are left with the others."""
        return cls(**{name: options.pop(name) for name in cls._fields if name in options})


POOLS_OWN = Terms()


class LimitedPlans:
    """The plans of calls with limits of their own, for containers that were started without."""

    def __init__(self, sandbox: PoolSandbox) -> None:
        self._sandbox = sandbox
        self._limited: dict[str, PoolSandbox] = {}

    def find(self, limits: Mapping[str, Any] | None) -> Plan | None:
        """A plan that holds these limits; None: there are none.

        Raises:
            ConfigError: one is wrong.
            Unsupported: this host, or a container without a cgroup, cannot have it.
        """
        if limits is None:
            return None
        if "rlimits" in limits:
            raise ConfigError(
                "rlimits cannot be set for one call of a pool",
                why="they are the container's, which is there already",
                remedy="set them for the pool",
            )
        key = repr(sorted(limits.items()))
        sandbox = self._limited.get(key)
        if sandbox is None:
            config = self._sandbox.config
            merged = config.limits.model_dump(exclude_unset=True) | dict(limits)
            sandbox = self._limited[key] = PoolSandbox(config.updated({"limits": merged}))
        plan = sandbox.resolve()
        if self._sandbox.resolve().cgroup is None and plan.cgroup is not None:
            raise Unsupported(
                "limits cannot be set for one call of this pool",
                why="its containers have no cgroup of their own",
                remedy="give the pool a limit (limits = {pids = 1000}), so that they get one",
            )
        return plan
