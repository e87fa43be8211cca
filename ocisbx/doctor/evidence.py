"""Evidence: everything that `doctor` has seen, before anything is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ocisbx.container.select import Wanted, select_runtime
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
    # Runtimes that the caller owns.
    own_runtimes: frozenset[str] = frozenset()
    # What is wrong with the init and the cell (empty: both are built and executable).
    programs: str = ""
    # Why no user namespace can be made, in the words of who tried; empty: it works.
    user_namespace: str = ""

    @property
    def chosen(self) -> str:
        """The path of what `--runtime auto` takes; empty: nothing."""
        try:
            return select_runtime(Wanted(), self.host).path
        except OcisbxError:
            return ""

    @property
    def works(self) -> bool:
        """Whether any runtime ran a container."""
        return any(trial.works for trial in self.trials)
