"""judge(): what holds of a container, row by row, and the worst of it first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.posture import file_rows, kernel_rows, limit_rows
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.posture.facts import Declared, Subject
    from ocisbx.posture.rows import Row

# In the order of weight: what a hole in it costs.
JUDGES: tuple[Callable[[Subject], Row | None], ...] = (
    kernel_rows.kernel,
    kernel_rows.user_namespace,
    kernel_rows.capabilities,
    kernel_rows.no_new_privileges,
    kernel_rows.seccomp,
    kernel_rows.namespaces,
    kernel_rows.network,
    file_rows.host_writable,
    file_rows.host_readable,
    file_rows.read_only_root,
    file_rows.mount_flags,
    file_rows.masked_paths,
    file_rows.readonly_paths,
    file_rows.devices,
    file_rows.descriptors,
    kernel_rows.groups,
    kernel_rows.security_module,
    *(partial(limit_rows.cgroup_limit, name) for name in limit_rows.WITHOUT),
    limit_rows.rlimits,
    limit_rows.timeout,
    file_rows.scratch,
    file_rows.environment,
    kernel_rows.oom_score,
)
# By the names of `enforcement`: what stands under `actual` where nothing was asked for.
NOTHING: dict[str, Any] = {
    "network": "host",
    "seccomp": "none",
    "no_new_privileges": False,
    "read_only_root": False,
    "kernel": "shared",
}
TIERS: dict[str, str] = {
    "user_kernel": "a kernel of its own in user space, and namespaces around that",
    "namespace": "namespaces and filters on this machine's kernel, shared by all: a hole in it is "
    "a way out",
}


class Posture(NamedTuple):
    """`live`: the pid of the container's process 1, None where nothing runs (`unseen` says why).
    `worst`: sentences for a person, the gravest first."""

    tier: str
    live: int | None
    unseen: str
    worst: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def mismatches(self) -> tuple[str, ...]:
        return tuple(f"{row.name}: {row.mismatch}" for row in self.rows if row.mismatch)

    def to_dict(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "live_pid": self.live,
            "unseen": self.unseen or None,
            "mismatches": list(self.mismatches),
            "worst": list(self.worst),
            "rows": [row._asdict() for row in self.rows],
        }


def judge(subject: Subject, *, live: int | None = None, unseen: str = "") -> Posture:
    """Judge one container; pure."""
    rows = [row for look in JUDGES if (row := look(subject)) is not None]
    names = {row.name for row in rows} | limit_rows.WITHOUT.keys()
    at = next(index for index, row in enumerate(rows) if row.name == "host_readable") + 1
    rows[at:at] = limit_rows.declared_rows(subject, names)
    rows = [_against_declared(row, subject.declared) for row in rows]
    return Posture(
        tier="user_kernel" if subject.declared.own_kernel() else "namespace",
        live=live,
        unseen=unseen,
        worst=tuple(_worst(rows)),
        rows=tuple(rows),
    )


def _against_declared(row: Row, declared: Declared) -> Row:
    """What the driver declared as enforced, and is off: config.json was changed since."""
    entry = declared.enforcement.get(row.name)
    if row.mismatch or entry is None or entry.state is not EnforcementState.ENFORCED:
        return row
    asked = entry.actual != NOTHING.get(row.name)
    lost = row.state == "off" or (row.name == "capabilities" and row.state == "partial")
    if row.name == "capabilities":
        asked = entry.actual == "none"
    if not (asked and lost):
        return row
    return row._replace(
        mismatch=f"ocisbx declared {entry.actual!s} ({entry.how}), and that does not hold any more"
    )


def _worst(rows: list[Row]) -> list[str]:
    found = [f"MISMATCH {row.name}: {row.mismatch}" for row in rows if row.mismatch]
    found += [f"{row.name}: {row.warning}" for row in rows if row.warning]
    writable = next(row for row in rows if row.name == "host_writable")
    return [*found, f"it writes {writable.holds}"]
