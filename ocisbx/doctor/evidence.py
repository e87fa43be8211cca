"""Evidence: everything that `doctor` has seen, before anything is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.doctor.trial import Trial
    from ocisbx.host import Host
    from ocisbx.probe.system import System


@dataclass(frozen=True, slots=True)
class Evidence:
    """One host, looked at once; every check is a pure function of it."""

    host: Host
    system: System
    trials: tuple[Trial, ...] = ()
    strangers: tuple[tuple[str, str], ...] = ()
    # By path of a runtime: who else can replace it; the holes that its distribution has closed.
    replaceable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Runtimes that the caller owns.
    own_runtimes: frozenset[str] = frozenset()
    # What is wrong with the init and the cell (empty: both are built and executable).
    programs: str = ""
    # Why no user namespace can be made, in the words of who tried; empty: it works.
    user_namespace: str = ""

    @property
    def works(self) -> bool:
        """Whether any runtime ran a container."""
        return any(trial.works for trial in self.trials)
