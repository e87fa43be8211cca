"""The workspaces that calls of a pool name for themselves."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.backends.compile import compile_for_pool
from ocisbx.backends.late import Given, changed, check_able, compile_late, opened
from ocisbx.container.paths import clean
from ocisbx.errors import ConfigError
from ocisbx.mounts import is_per_call, parse_workspace
from ocisbx.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from ocisbx.backends.compile import Compiled
    from ocisbx.backends.late import Late
    from ocisbx.config import SandboxConfig
    from ocisbx.plan import Plan

# Of so many directories a pool knows what has to be mounted over them.
KEPT = 256
# More than threads that start containers: each takes what was made for its plan at once.
KEPT_PLANS = 16


class PoolSandbox(Sandbox):
    """A Sandbox for the containers of a pool: their workspace may be left to each call."""

    def __init__(self, config: SandboxConfig | None = None, **options: Any) -> None:  # noqa: ANN401 -- typed where they arrive
        """As Sandbox."""
        super().__init__(config, **options)
        self.per_call = is_per_call(self.config.workspace)
        self._made: deque[Workspaces] = deque(maxlen=KEPT_PLANS)
        # Where what the pool itself shows led at first.
        self._shown: dict[str, str] | None = None

    def _compile(self) -> Plan:
        if not self.per_call:
            return super()._compile()
        compiled = compile_for_pool(self.config)
        check_able(compiled)
        self._check_shown(compiled)
        self._made.append(Workspaces(compiled))
        return compiled.plan

    def _check_shown(self, compiled: Compiled) -> None:
        """A payload may have put a link where a volume was, or what may be written, if that lies in
        what was its workspace: those of other calls are not to be shown what it leads to.

        Raises:
            ConfigError: one leads elsewhere.
        """
        config = compiled.config
        named = [*(volume.source for volume in config.volumes), config.rootfs or "host"]
        shown = {name: compiled.host.fact(name).real for name in named if name != "host"}
        for written in config.filesystem.allow_write:
            # Below a workspace it is each call's.
            matches = compiled.host.matches.get(clean(written))
            for place in () if matches is None else matches.places:
                shown |= {link.path: link.target for link in place.links}
        if self._shown is None:
            self._shown = shown
        changed = [name for name, real in shown.items() if real != self._shown.get(name)]
        if changed:
            raise ConfigError(
                f"{changed[0]} leads elsewhere than when the pool was made",
                why=f"to {shown[changed[0]]}; an earlier call may have put a link there",
                remedy="make the pool anew, if you trust it",
            )

    def workspace(
        self, wanted: str | os.PathLike[str] | None
    ) -> AbstractContextManager[Workspace | None]:
        """The workspace of one call, from here on the same directory, whatever becomes of its name.

        Raises:
            ConfigError: the pool has its own, or this one cannot be given.
            InvalidState: it changes just now.
            Unsupported: a rule of [filesystem] does not hold in it.
        """
        return contextlib.nullcontext() if wanted is None else self._given(wanted)

    @contextlib.contextmanager
    def _given(self, wanted: str | os.PathLike[str]) -> Iterator[Workspace]:
        if not self.per_call:
            raise ConfigError(
                "the workspace of this pool is fixed",
                remedy="make the pool with workspace = per-call, or leave the workspace out",
            )
        parse_workspace(wanted)
        text = os.fspath(wanted)
        # Most that wait are of the newest plan, whether or not it would be compiled anew by now.
        newest = self._made[-1] if self._made else self.made(self.resolve())
        assert newest is not None
        with opened(newest.find(text)) as given:
            yield Workspace(text, newest, given)

    def made(self, plan: Plan) -> Workspaces | None:
        """Those for containers of the plan that was just resolved; None: it has its own."""
        return next((one for one in tuple(self._made) if one.plan is plan), None)


class Workspace(NamedTuple):
    """What a call asked for; `given`: to containers of the newest plan."""

    wanted: str
    newest: Workspaces
    given: Given

    def fit(self, workspaces: Workspaces) -> Given:
        """The same for a container that may be older, by its plan's.

        Raises:
            InvalidState, ConfigError, Unsupported: as `PoolSandbox.workspace`.
        """
        if workspaces is self.newest:
            return self.given
        late = workspaces.find(self.wanted)
        if late.identity != self.given.late.identity:
            raise changed(late, "another directory is there")
        return self.given._replace(late=late)


class Workspaces:
    """Those of one plan, each compiled once. Thread-safe: at worst one is compiled twice."""

    def __init__(self, base: Compiled) -> None:
        self._base = base
        self._known: dict[str, Late] = {}

    @property
    def plan(self) -> Plan:
        return self._base.plan

    def find(self, wanted: str) -> Late:
        """Errors are those of `compile_late`."""
        late = self._known.get(wanted)
        if late is None or not late.holds():
            if len(self._known) >= KEPT:
                self._known.clear()
            late = self._known[wanted] = compile_late(self._base, wanted)
        return late
