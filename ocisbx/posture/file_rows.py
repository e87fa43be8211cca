"""Judgements of what it can read, write and open."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ocisbx.container.paths import TOO_BROAD, is_below
from ocisbx.container.policy import FREE
from ocisbx.mounts import PER_CALL_PLACE
from ocisbx.posture.facts import Facts, Shown, Subject, ground
from ocisbx.posture.rows import Row, listed, size, source_of, weaker_live
from ocisbx.presets import MASKED_PATHS_RESTRICTED, READONLY_PATHS

if TYPE_CHECKING:
    from collections.abc import Iterable

SECRETIVE = re.compile(r"(?i)token|secret|passw|passphrase|credential|(?:^|_)(?:api_?)?key(?:_|$)")
PLAIN_VARIABLES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "PWD", "OCISBX", "TAR_OPTIONS",
        "LANG", "LANGUAGE", "TZ", "TERM",
    }
)  # fmt: skip


def host_writable(subject: Subject) -> Row:
    shown = [one for one in subject.effective().shown or () if one.writable]
    whole = [one.source for one in shown if one.source in TOO_BROAD]
    return Row(
        "host_writable",
        "partial" if whole else "enforced",
        source_of(subject, "shown"),
        listed(map(place, shown)) if shown else "nothing of this machine",
        "mount namespace, bind mounts",
        "what it writes there stays: look at it before you run or open it"
        if shown
        else "nothing of this machine can be changed",
        f"it writes directories of the whole system: {listed(filter(None, whole))}"
        if whole
        else "",
        "; ".join(undeclared(subject)),
    )


def undeclared(subject: Subject) -> list[str]:
    """What the container shows of the host and config.json does not, or only for reading."""
    if subject.live is None or subject.live.shown is None:
        return []
    asked = list(subject.spec.shown or ())
    found = []
    for one in subject.live.shown:
        over = ground(one.target, asked)
        if over is not None and _is_left_open(over):
            continue
        if over is None or (over.target == "/" and one.target != "/"):
            found.append(f"{place(one)} is shown, which config.json does not ask for")
        elif one.writable and not over.writable:
            found.append(f"{place(one)} can be written, and config.json asks for read-only")
        elif one.target == over.target and _elsewhere(one, over):
            found.append(f"{one.target} shows {one.source}, and config.json names {over.source}")
    return found


def _is_left_open(asked: Shown) -> bool:
    """A container of a pool has an empty directory where each call may put its workspace."""
    empty = (asked.source or "").endswith(f"/{FREE['']}")
    return empty and asked.target == PER_CALL_PLACE and not asked.writable


def _elsewhere(one: Shown, asked: Shown) -> bool:
    """A directory may be mounted in several places of the host: only the last names must agree."""
    if one.source is None or asked.source is None:
        return False
    return one.source.rpartition("/")[2] != asked.source.rpartition("/")[2]


def host_readable(subject: Subject) -> Row:
    shown = [one for one in subject.effective().shown or () if not one.writable]
    # Programs and libraries first: the shortest paths hold the most.
    names = sorted((place(one) for one in shown), key=lambda name: (name.count("/"), name))
    return Row(
        "host_readable",
        "enforced",
        source_of(subject, "shown"),
        listed(names) if names else "nothing of this machine",
        "mount namespace, read-only bind mounts",
        "besides these, host_writable and copies of small public files of /etc, no file of this "
        "machine has a name inside",
    )


def place(one: Shown) -> str:
    """`/opt/go`, or `/opt/go at /go` where it is shown elsewhere."""
    if one.source is None or one.source == one.target:
        return one.target
    return f"{one.source} at {one.target}"


def read_only_root(subject: Subject) -> Row:
    held = subject.effective().read_only_root
    return Row(
        "read_only_root",
        "enforced" if held else "off",
        source_of(subject, "read_only_root"),
        "read-only" if held else "writable",
        "read-only mount",
        "what it can write stands at host_writable and scratch" if held else "",
        "" if held else "it may replace the programs that it and you run in this container",
        weaker_live(
            subject,
            "read_only_root",
            lambda spec, live: spec.read_only_root and not live.read_only_root,
            "config.json asks for a read-only root, the container can write it",
        ),
    )


def mount_flags(subject: Subject) -> Row:
    facts = subject.effective()
    faults = {
        "setuid programs or device nodes count on": facts.loose,
        "mounts made here or there appear on both sides at": facts.propagating,
        "system settings can be written at": facts.system,
    }
    found = [f"{words} {listed(sorted(paths))}" for words, paths in faults.items() if paths]
    new = [
        path
        for field in ("loose", "propagating", "system")
        for path in sorted(_more(subject, field))
    ]
    return Row(
        "mount_flags",
        "partial" if found else "enforced",
        source_of(subject, "loose"),
        "; ".join(found) or "nosuid and nodev, private, no writable /sys",
        "mount options (mount(8))",
        "no file that it can reach gives it rights, or opens a device" if not found else "",
        "; ".join(found),
        f"its mounts are weaker than config.json asks for: {listed(new)}" if new else "",
    )


def _more(subject: Subject, field: str) -> frozenset[str]:
    """Paths that the container has in this set of faults and config.json has not."""
    live = getattr(subject.live, field, None) or frozenset()
    asked = getattr(subject.spec, field) or frozenset()
    # The host's own mounts below a bind come with it, and are named by the bind.
    return frozenset(path for path in live if not any(is_below(path, one) for one in asked))


def masked_paths(subject: Subject) -> Row:
    return _kernel_paths(
        subject,
        "masked_paths",
        "hidden",
        MASKED_PATHS_RESTRICTED,
        ("hidden", "what the kernel tells about this machine and its memory is hidden"),
    )


def readonly_paths(subject: Subject) -> Row:
    return _kernel_paths(
        subject,
        "readonly_paths",
        "read_only_paths",
        READONLY_PATHS,
        ("read-only", "it cannot change the kernel's settings"),
    )


def _kernel_paths(
    subject: Subject, name: str, field: str, usual: tuple[str, ...], words: tuple[str, str]
) -> Row:
    facts = subject.effective()
    held: frozenset[str] = getattr(facts, field) or frozenset()
    missing = [path for path in usual if path not in held and _reachable(path, facts)]
    lost = sorted((getattr(subject.spec, field) or frozenset()) - held)
    few = len([path for path in usual if path in held])
    return Row(
        name,
        "enforced" if not missing else ("partial" if few else "off"),
        source_of(subject, field),
        f"all of level restricted {words[0]}"
        if not missing
        else f"not {words[0]}: {listed(missing)}",
        "mounts over them",
        words[1] if not missing else "",
        f"not {words[0]}: {listed(missing)}" if missing else "",
        f"config.json asks for them to be {words[0]}, and they are not: {listed(lost)}"
        if lost
        else "",
    )


def _reachable(path: str, facts: Facts) -> bool:
    """/proc is always there; /sys only where it is mounted or shown."""
    if is_below(path, "/proc"):
        return True
    shown = [one.target for one in facts.shown or ()] + list(facts.system or ())
    return any(is_below(path, target) for target in shown if target != "/")


def devices(subject: Subject) -> Row:
    found = sorted(subject.effective().devices or ())
    return Row(
        "devices",
        "partial" if found else "enforced",
        source_of(subject, "devices"),
        listed(found) if found else "null, zero, full, random, urandom, tty",
        "a /dev of its own",
        "no disk, no kernel memory, no hardware" if not found else "",
        f"it has more than the usual devices: {listed(found)}" if found else "",
        weaker_live(
            subject,
            "devices",
            lambda spec, live: (live.devices or frozenset()) - (spec.devices or frozenset()),
            "it has devices that config.json does not name",
        ),
    )


def descriptors(subject: Subject) -> Row | None:
    found = subject.effective().descriptors
    if found is None:
        return None
    return Row(
        "descriptors",
        "off" if found else "enforced",
        source_of(subject, "descriptors"),
        listed(found) if found else "no open file of this machine",
        "the driver hands over pipes only",
        "its input and output are pipes" if not found else "",
        f"it holds open files of this machine, whatever its mounts say: {listed(found)}"
        if found
        else "",
    )


def scratch(subject: Subject) -> Row:
    found = subject.effective().scratch or ()
    unbounded = [one.target for one in found if one.size_bytes is None]
    places = [
        f"{one.target} ({'unbounded' if one.size_bytes is None else size(one.size_bytes)})"
        for one in found
    ]
    return Row(
        "scratch",
        "partial" if unbounded else "enforced",
        source_of(subject, "scratch"),
        listed(places),
        "tmpfs(5), size= and nr_inodes=",
        "what it writes there is gone at the end",
        f"nothing bounds what it writes to {listed(unbounded)}" if unbounded else "",
    )


def environment(subject: Subject) -> Row:
    names = extra_variables(subject.variables)
    secret = [name for name in names if SECRETIVE.search(name)]
    return Row(
        "environment",
        "enforced",
        "spec",
        f"the usual variables, and {listed(names)}" if names else "the usual variables only",
        "a clean environment",
        "nothing else of your environment is in there",
        f"by their names these may be secrets, which it can read: {listed(secret)}"
        if secret
        else "",
    )


def extra_variables(names: Iterable[str]) -> list[str]:
    """Those that not every container has."""
    return sorted(name for name in names if name not in PLAIN_VARIABLES and name[:3] != "LC_")
