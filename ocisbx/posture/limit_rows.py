"""Judgements of how much it may use, and for how long; and of what only the driver can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.posture.rows import Row, Source, listed, size, source_of
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ocisbx.posture.facts import Subject
    from ocisbx.result import Enforced

UNLIMITED = -1
# What it can do to this machine without the limit; the names of `enforcement`.
WITHOUT: dict[str, str] = {
    "memory": "it can use up this machine's memory",
    "swap": "it can use up this machine's swap space",
    "cpus": "it can keep every processor busy",
    "pids": "it can start processes until this machine has no more",
    "io": "it can keep the disks busy",
}
# Said also where nobody asked for a limit.
ALWAYS = ("memory", "cpus", "pids")
MEASURES: dict[str, Callable[[float], str]] = {
    "memory": size,
    "swap": size,
    "cpus": lambda count: f"{count:g} processors",
    "pids": lambda count: f"{count:g} processes and threads",
    "io": str,
}
# What a core dump or an unlimited number of descriptors would do.
WANTED_RLIMITS: dict[str, str] = {
    "RLIMIT_CORE": "a crash writes its memory into a file",
    "RLIMIT_NOFILE": "it may open descriptors without end",
}
MEANINGS: dict[str, str] = {
    "filesystem": "the rules of [filesystem] about single paths",
    "landlock": "the kernel checks its file accesses once more, whatever the mounts say",
}


def held_limits(subject: Subject) -> dict[str, float]:
    """What bounds all of it together: live where that tells, else what was asked for."""
    live = subject.live
    if live is not None and live.limits is not None:
        return {name: value for name, value in live.limits.items() if value is not None}
    return _asked_limits(subject)


def _asked_limits(subject: Subject) -> dict[str, float]:
    """By config.json; in that of a single run the driver's own cgroup stands for them."""
    written = (subject.spec.limits or {}).items()
    said = {name: value for name, value in written if value is not None}
    return subject.declared.limits() | said


def cgroup_limit(name: str, subject: Subject) -> Row | None:
    """One limit of a cgroup: held live, asked for, declared, or nowhere at all."""
    entry = subject.declared.enforcement.get(name)
    held, asked = held_limits(subject).get(name), _asked_limits(subject).get(name)
    source = source_of(subject, "limits")
    told = source == "live"
    if source == "spec" and (subject.spec.limits or {}).get(name) is None and asked is not None:
        source = "declared"
    if held is not None:
        more = told and asked is not None and held > asked
        partial = entry is not None and entry.state is EnforcementState.PARTIAL
        return Row(
            name,
            "partial" if partial else "enforced",
            source,
            f"at most {MEASURES[name](held)}",
            "control group (cgroups(7))",
            "all that it starts, together",
            f"{name} is not fully held: {entry.how}" if entry is not None and partial else "",
            mismatch=f"{MEASURES[name](asked or 0)} was asked for" if more else "",
        )
    lost = told and asked is not None
    if claims(entry) and not lost:
        assert entry is not None
        return _declared(name, entry, WITHOUT[name])
    if entry is None and name not in ALWAYS and not lost:
        return None
    return Row(
        name,
        "unsupported" if entry is not None else "off",
        "declared" if entry is not None and not told else source,
        "not limited",
        entry.how if entry is not None else "nobody asked for it",
        "",
        WITHOUT[name] if entry is None else f"{WITHOUT[name]}: {entry.how}",
        "a limit was set, and the container's cgroup has none" if lost else "",
    )


def claims(entry: Enforced | None) -> bool:
    return entry is not None and entry.state is not EnforcementState.UNSUPPORTED


def rlimits(subject: Subject) -> Row:
    found = subject.effective().rlimits or {}
    asked = subject.spec.rlimits or {}
    open_ended = [
        name
        for name in WANTED_RLIMITS
        if found.get(name, (UNLIMITED, UNLIMITED))[1] == UNLIMITED
        or (name == "RLIMIT_CORE" and found[name][0] != 0)
    ]
    lost = [
        name for name, pair in asked.items() if name in found and _above(found[name][1], pair[1])
    ]
    names = sorted({*asked, *WANTED_RLIMITS} & found.keys())
    return Row(
        "rlimits",
        "partial" if open_ended else "enforced",
        source_of(subject, "rlimits"),
        listed(f"{_short(name)} {_number(found[name][0])}" for name in names),
        "setrlimit(2)",
        "each of its processes",
        "; ".join(WANTED_RLIMITS[name] for name in open_ended),
        f"config.json asks for less of {listed(map(_short, lost))}" if lost else "",
    )


def _short(name: str) -> str:
    return name.removeprefix("RLIMIT_").lower()


def _number(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)


def _above(found: int, asked: int) -> bool:
    return asked != UNLIMITED and (found == UNLIMITED or found > asked)


def timeout(subject: Subject) -> Row | None:
    declared = subject.declared
    if declared.grace_s is None:
        # Nobody's word about it.
        return None
    if declared.timeout_s is None:
        return Row(
            "timeout", "off", "declared", "no limit of time", "", "it runs until it ends by itself"
        )
    return Row(
        "timeout",
        "enforced",
        "declared",
        f"ended after {declared.timeout_s:g} s",
        f"the driver: SIGTERM, and SIGKILL {declared.grace_s:g} s later",
        "all that it started ends with it",
    )


def declared_rows(subject: Subject, known: Iterable[str]) -> list[Row]:
    """What `enforcement` lists and no other row is about: Landlock, rules for single paths ..."""
    rest = {n: e for n, e in subject.declared.enforcement.items() if n not in set(known)}
    return [_declared(name, entry, "") for name, entry in rest.items()]


def _declared(name: str, entry: Enforced, without: str) -> Row:
    held = claims(entry)
    source: Source = "declared"
    loss = "" if entry.state is EnforcementState.ENFORCED else entry.how
    return Row(
        name,
        entry.state.value,
        source,
        str(entry.actual) if held else "not held",
        entry.how,
        MEANINGS.get(name, "") if held else "",
        ""
        if not loss
        else f"{without}: {loss}"
        if without
        else f"{name} is not fully held: {loss}",
    )
