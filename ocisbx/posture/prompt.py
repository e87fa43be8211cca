"""The effective policy as a short text for a model's system prompt.

Only what holds, and only what can be seen from inside: neither ids nor paths of the host, and no
limit that nobody enforces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.container.paths import is_below
from ocisbx.posture.facts import Facts, Identity, Shown, ground
from ocisbx.posture.filter import RISKY, by_answer, explain_errno
from ocisbx.posture.limit_rows import MEANINGS, MEASURES, WITHOUT, claims, held_limits
from ocisbx.posture.rows import listed, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ocisbx.posture.facts import Subject

PATHS_LISTED = 12
CALLS_LISTED = 8
# The kernel's trees, which every container has.
KERNEL_TREES = ("/proc", "/sys", "/dev")
POWERLESS = "sudo, su, mount, chown to other users and the like fail"


def prompt(subject: Subject) -> str:
    """About fifteen lines that start with a dash, after one that says what this is."""
    facts = subject.effective()
    lines = ["Your commands run in a sandbox. These rules hold; no command can change them:"]
    for part in (_user, _written, _read, _network):
        lines += part(facts)
    lines += _rules(subject)
    lines += _calls(subject)
    lines += _limits(subject)
    lines += _end(subject)
    return "".join(f"{_one_line(line)}\n" for line in [lines[0], *(f"- {x}" for x in lines[1:])])


def _one_line(text: str) -> str:
    """A directory's name must not be able to add a rule: newlines and the like are written out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _user(facts: Facts) -> Iterator[str]:
    who = facts.identity or Identity(0, 0, None, 0)
    name = "root" if who.uid == 0 else "an ordinary user"
    if facts.capabilities:
        names = sorted(one.removeprefix("CAP_") for one in facts.capabilities)
        yield f"You are uid {who.uid} ({name}), with these capabilities: {listed(names)}."
    else:
        yield f"You are uid {who.uid} ({name}) without any capability: {POWERLESS}."
    if facts.no_new_privileges:
        yield "Setuid programs run, but give no rights."


def _written(facts: Facts) -> Iterator[str]:
    kept = [one for one in facts.shown or () if one.writable]
    if kept:
        yield f"You can write, and what you write stays: {_paths(one.target for one in kept)}."
    else:
        yield "Nothing that you write outlives the sandbox."
    if inner := _exceptions(facts, kept):
        yield f"Read-only within them: {_paths(inner)}."
    if places := [one for one in facts.scratch or () if one.target != "/dev/shm"]:
        words = (
            one.target + ("" if one.size_bytes is None else f" (up to {size(one.size_bytes)})")
            for one in places
        )
        yield f"You can write, and it is lost at the end: {_paths(words)}."


def _exceptions(facts: Facts, kept: list[Shown]) -> list[str]:
    """Read-only mounts inside directories that can be written."""
    return [
        one.target
        for one in facts.shown or ()
        if not one.writable and ground(one.target, kept) is not None
    ]


def _read(facts: Facts) -> Iterator[str]:
    kept = [one for one in facts.shown or () if one.writable]
    inner = set(_exceptions(facts, kept))
    names = [one.target for one in facts.shown or () if not one.writable]
    outer = sorted((name for name in names if name not in inner), key=lambda n: (n.count("/"), n))
    tops = [name for name in outer if not is_below(name, "/etc")]
    tops += ["parts of /etc"] if len(tops) < len(outer) else []
    if tops:
        yield f"You can read, not write: {_paths(tops)}."
    if facts.read_only_root:
        yield "Everything else is read-only (EROFS), or not there."
    hidden = sorted(
        path
        for path in facts.hidden or ()
        if not any(is_below(path, tree) for tree in KERNEL_TREES)
    )
    if hidden:
        yield f"Hidden, they look empty: {_paths(hidden)}."


def _network(facts: Facts) -> Iterator[str]:
    if not (facts.namespaces or {}).get("network"):
        yield "Network: that of the machine, without a proxy or filter of the sandbox."
    elif set(facts.interfaces or ()) - {"lo"}:
        yield "Network: one of your own, with more than loopback."
    else:
        yield "No network but loopback (127.0.0.1): downloads, DNS, package installs fail at once."


def _rules(subject: Subject) -> Iterator[str]:
    for name in MEANINGS:
        entry = subject.declared.enforcement.get(name)
        if entry is not None and claims(entry):
            yield f"Also held ({name}): {entry.actual}."


def _calls(subject: Subject) -> Iterator[str]:
    profile = subject.filter
    if profile is None or not subject.effective().seccomp:
        return
    names = [name for group in RISKY.values() for name in group] + ["clone3", "ptrace"]
    for word, calls in by_answer(profile, names).items():
        note = ", as on a kernel without them" if word == "ENOSYS" else ""
        yield (
            f"These system calls fail with {explain_errno(word)}{note}: "
            f"{listed(calls, CALLS_LISTED)}."
        )


def _limits(subject: Subject) -> Iterator[str]:
    held = held_limits(subject)
    words = [MEASURES[name](held[name]) for name in WITHOUT if held.get(name)]
    if words:
        yield f"Of everything together, at most {listed(words)}: more is refused, or killed."
    nofile = (subject.effective().rlimits or {}).get("RLIMIT_NOFILE")
    if nofile is not None and nofile[0] >= 0:
        yield f"Each process: at most {nofile[0]} open files."


def _end(subject: Subject) -> Iterator[str]:
    declared = subject.declared
    if declared.timeout_s is not None:
        yield (
            f"A command is ended after {declared.timeout_s:g} s: SIGTERM, "
            f"and SIGKILL {declared.grace_s or 0:g} s later."
        )
    yield "When a command ends, every process that it started ends with it, background ones too."
    if declared.max_output_bytes is not None:
        yield f"Of stdout and of stderr the first {size(declared.max_output_bytes)} are kept."


def _paths(names: Iterable[str]) -> str:
    return listed(names, PATHS_LISTED)
