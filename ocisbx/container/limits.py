"""What is refused and what is declared; and the limits of each process (getrlimit(2))."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocisbx.container.model import EnforcementEntry
from ocisbx.errors import ConfigError, Unsupported
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Collection

    from ocisbx.host import Host

NO_LIMIT = resource.RLIM_INFINITY
NPROC = "RLIMIT_NPROC"
FSIZE = "RLIMIT_FSIZE"


@dataclass(frozen=True, slots=True)
class Asked:
    """One restriction: its value, and whether the caller (not the preset) asked for it."""

    value: object
    demanded: bool


def refuse_or_declare(
    name: str, asked: Asked, why: str, remedy: str, allow_degraded: Collection[str]
) -> EnforcementEntry:
    """A restriction that does not hold here: an error when demanded, else a line that says so.

    Raises:
        Unsupported: the caller asked for it, and `allow_degraded` names neither it nor `all`.
    """
    if asked.demanded and not {name, "all"} & set(allow_degraded):
        raise Unsupported(f"{name} cannot be enforced here", why=why, remedy=remedy)
    requested = asked.value if isinstance(asked.value, (str, int, float)) else str(asked.value)
    return EnforcementEntry(
        requested=requested, actual=None, state=EnforcementState.UNSUPPORTED, how=why
    )


def bound_processes(
    wished: dict[str, tuple[int, int]], pids: int | None, host: Host
) -> dict[str, tuple[int, int]]:
    """With a wish for RLIMIT_NPROC: as many as `pids`, which no cgroup holds.

    Since Linux 5.14 processes are counted for each uid of each user namespace (getrlimit(2),
    kernel commit 21d1c5e386bc), so a container has this number to itself. Before, all processes
    of the caller counted, and a number that fits one container would stop all others.
    """
    if NPROC in wished or pids in (None, NO_LIMIT) or not host.kernel_at_least(5, 14):
        return wished
    assert pids is not None
    return wished | {NPROC: (pids, pids)}


def choose_rlimits(
    wished: dict[str, tuple[int, int]], demanded: dict[str, tuple[int, int]], host: Host
) -> tuple[dict[str, tuple[int, int]], EnforcementEntry | None]:
    """The payload's rlimits by spec name (RLIMIT_NOFILE); -1 is unlimited.

    Wishes are cut to what the caller may set; a demand above it is an error (setrlimit(2): only
    CAP_SYS_RESOURCE raises a hard limit).

    Raises:
        ConfigError: a demand lies above the caller's own hard limit.
    """
    rows: dict[str, tuple[int, int]] = {}
    for name, (soft, hard) in (wished | demanded).items():
        ceiling = host.rlimits.get(name, (NO_LIMIT, NO_LIMIT))[1]
        if name in demanded and _above(hard, ceiling):
            raise ConfigError(
                f"limits.rlimits.{name}: {hard} is above your own hard limit {ceiling}",
                remedy=f"ask for at most {ceiling}, or raise the limit of your login session",
            )
        rows[name] = (_cut(soft, ceiling), _cut(hard, ceiling))
    if not rows:
        return {}, None
    words = ["setrlimit(2)", "a preset's wish is cut to your own hard limit"]
    if FSIZE in rows:
        words.append("fsize bounds each file: what all of them take of a disk has no bound")
    entry = EnforcementEntry(
        requested=_shown(wished | demanded),
        actual=_shown(rows),
        state=EnforcementState.ENFORCED,
        how="; ".join(words),
    )
    return rows, entry


def _shown(rows: dict[str, tuple[int, int]]) -> str:
    return ", ".join(
        f"{name.removeprefix('RLIMIT_').lower()}={soft}:{hard}"
        for name, (soft, hard) in rows.items()
    )


def _above(value: int, ceiling: int) -> bool:
    if ceiling == NO_LIMIT:
        return False
    return value == NO_LIMIT or value > ceiling


def _cut(value: int, ceiling: int) -> int:
    return ceiling if _above(value, ceiling) else value
