"""Evidence: everything that `doctor` has seen, before anything is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ocisbx.config import SandboxConfig
from ocisbx.container.merge import wanted_runtime
from ocisbx.container.select import select_runtime
from ocisbx.errors import OcisbxError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.backends.trial import Trial
    from ocisbx.host import Host
    from ocisbx.probe.system import System
    from ocisbx.result import Enforced


@dataclass(frozen=True, slots=True)
class Evidence:
    """One host, looked at once; every check is a pure function of it."""

    host: Host
    system: System
    trials: tuple[Trial, ...] = ()
    strangers: tuple[tuple[str, str], ...] = ()
    # By path of a runtime: what a plan on it claims, who else can replace it, and the holes that
    # its distribution has closed.
    enforcement: Mapping[str, Mapping[str, Enforced]] = field(default_factory=dict)
    replaceable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # By path of a runtime: where it really lies, and what a release of runsc lacks beside it.
    real_paths: Mapping[str, str] = field(default_factory=dict)
    sidecars: Mapping[str, str] = field(default_factory=dict)
    # Runtimes that the caller owns.
    own_runtimes: frozenset[str] = frozenset()
    # What is wrong with the init and the cell (empty: both are built and executable).
    programs: str = ""
    # Why no user namespace can be made, in the words of who tried; empty: it works.
    user_namespace: str = ""

    @property
    def chosen(self) -> str:
        """The path of what `--runtime auto` takes for the default preset; empty: nothing."""
        return self._select("auto")

    @property
    def strongest(self) -> str:
        """As `chosen`, for `--runtime strongest`."""
        return self._select("strongest")

    @property
    def works(self) -> bool:
        """Whether any runtime ran a container."""
        return any(trial.works for trial in self.trials)

    def _select(self, name: str) -> str:
        wanted = wanted_runtime(SandboxConfig(workspace="none"))
        try:
            return select_runtime(wanted._replace(names=(name,)), self.host).path
        except OcisbxError:
            return ""
