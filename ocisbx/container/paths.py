"""Which host paths may be given to a container, and where they may appear in it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocisbx.errors import ConfigError
from ocisbx.host import Host, PathFact, PathKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

WAY_OUT = "--workspace DIR names another directory, --workspace none runs without one"

# Directories that are too much to hand over whole; what lies below them may be given.
TOO_BROAD: dict[str, str] = {
    "/": "it is the whole host",
    "/etc": "it holds the host's configuration and secrets",
    "/usr": "it holds the system's programs",
    "/bin": "it holds the system's programs",
    "/sbin": "it holds the system's programs",
    "/lib": "it holds the system's libraries",
    "/lib64": "it holds the system's libraries",
    "/boot": "it holds the kernel",
    "/var": "it holds the state of the host's services",
    "/run": "it holds the sockets of the host's services",
    "/home": "it holds everybody's files",
    "/tmp": "everybody's temporary files lie there, ours too",
}

# Kernel interfaces: neither they nor anything below them is ever handed over or covered.
KERNEL_TREES: tuple[str, ...] = ("/proc", "/sys", "/dev")

# Targets that belong to the container itself.
OWN_TARGETS: dict[str, str] = {
    "/": "the root is chosen with --rootfs",
    "/.ocisbx": "the init lies there",
    "/etc": "its files are generated; give single files below it",
}

PATH_LIMIT_BYTES = 4095


@dataclass(frozen=True, slots=True)
class Given:
    """A host path as the caller wrote it, and what it really is."""

    written: str
    fact: PathFact

    @property
    def real(self) -> str:
        return self.fact.real


def is_below(path: str, parent: str) -> bool:
    """True when `path` is `parent` or lies in it; both absolute and normalised."""
    return parent in ("/", path) or path.startswith(parent + "/")


def clean(path: str) -> str:
    """Without doubled and trailing slashes and `.`; `..` stays, since a symlink may precede it."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def check_workspace(host: Host, written: str) -> Given:
    """The workspace's real directory.

    Raises:
        ConfigError: missing, no directory, or more than a sandbox may be given.
    """
    fact = host.fact(written)
    if fact.kind is PathKind.MISSING:
        raise ConfigError(f"workspace {written} does not exist", remedy=WAY_OUT)
    if fact.kind is not PathKind.DIRECTORY:
        raise ConfigError(f"workspace {written} is not a directory", remedy=WAY_OUT)
    reason = refusal(host, fact.real)
    if reason:
        what = f"{_names(written, fact)} cannot be the workspace"
        raise ConfigError(what, why=reason, remedy=WAY_OUT)
    return Given(written, fact)


def refusal(host: Host, real: str) -> str:
    """Why this directory is not handed over; empty when it may be."""
    if real in TOO_BROAD:
        return TOO_BROAD[real]
    for tree in KERNEL_TREES:
        if is_below(real, tree):
            return f"{tree} is the kernel's"
    if real == host.home:
        return "it is your home directory, with your keys and start-up files"
    if is_below(host.home, real):
        return f"your home directory {host.home} lies in it"
    for own in host.own_directories:
        if is_below(real, own) or is_below(own, real):
            return f"ocisbx keeps its own state in {own}"
    return ""


def check_volume(host: Host, source: str, fact: PathFact, noun: str = "volume") -> Given:
    """A volume's real source; broad directories are the caller's explicit choice. `fact`: what is
    known of `source`; `noun`: what it is called in a refusal.

    Raises:
        ConfigError: missing, a socket or device, the whole host, or a kernel interface.
    """
    remedy = "give an existing file or directory by its absolute path"
    if fact.kind is PathKind.MISSING:
        raise ConfigError(f"{noun} {source} does not exist", remedy=remedy)
    if fact.kind is PathKind.SOCKET:
        raise ConfigError(
            f"{noun} {source} is a socket",
            why="whoever listens there acts for the payload; read-only does not stop connect(2)",
            remedy="reach services over the network, or give their data as files",
        )
    if fact.kind is PathKind.OTHER:
        raise ConfigError(f"{noun} {source} is neither a file nor a directory", remedy=remedy)
    if fact.real == "/":
        what = f"{_names(source, fact)} cannot be a {noun}"
        raise ConfigError(what, why=TOO_BROAD["/"], remedy=remedy)
    for tree in KERNEL_TREES:
        if is_below(fact.real, tree):
            raise ConfigError(
                f"{noun} {source} cannot be given",
                why=f"{tree} is the kernel's",
                remedy="leave it out: a container has its own /proc and /dev",
            )
    for own in host.own_directories:
        if is_below(fact.real, own) or is_below(own, fact.real):
            raise ConfigError(
                f"{noun} {source} cannot be given",
                why=f"ocisbx keeps its own state in {own}",
                remedy="give the directories that are needed one by one",
            )
    return Given(source, fact)


def check_links(named: Iterable[tuple[str, PathFact]], writable: Collection[str]) -> None:
    """No path is named through a symlink that a payload could have put there.

    One call's payload replaces a directory of the workspace that is also a volume by a symlink to
    the caller's keys; the next call would show it those. Below `writable`, only real directories.

    Raises:
        ConfigError: a symlink on the way lies in a directory that the payload can write.
    """
    for name, fact in named:
        for link in fact.links:
            if any(is_below(link.path, directory) for directory in writable):
                raise ConfigError(
                    f"{name} leads through a symlink that the payload can change",
                    why=f"{link.path} -> {link.target} lies in a directory that it may write",
                    remedy=f"name the place itself, if you trust it: {fact.real}",
                )


def check_target(target: str, what: str) -> str:
    """A place inside the container that may be mounted over.

    Raises:
        ConfigError: it is relative, too long, or the container's own.
    """
    if not target.startswith("/") or "\0" in target or ".." in target.split("/"):
        raise ConfigError(
            f"{what}: target {target!r} is not an absolute path without '..'",
            remedy="write the place inside the container as an absolute path",
        )
    normal = clean(target)
    if len(normal.encode()) > PATH_LIMIT_BYTES:
        raise ConfigError(f"{what}: target is longer than {PATH_LIMIT_BYTES} bytes")
    if normal in OWN_TARGETS or is_below(normal, "/.ocisbx"):
        reason = OWN_TARGETS.get(normal, OWN_TARGETS["/.ocisbx"])
        remedy = "choose another place inside the container"
        raise ConfigError(f"{what}: {normal} cannot be mounted over", why=reason, remedy=remedy)
    for tree in KERNEL_TREES:
        if is_below(normal, tree):
            raise ConfigError(
                f"{what}: {normal} cannot be mounted over",
                why=f"the container has a {tree} of its own (CVE-2019-16884 and its kin)",
                remedy="choose a target outside /proc, /sys and /dev",
            )
    return normal


def places_along(fact: PathFact) -> list[str]:
    """Each place that a symlink on the way names, and where the path leads in the end."""
    named = [
        posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))
        for link in fact.links
    ]
    return [*named, *(link.path for link in fact.links), fact.real]


def check_workdir(written: str, real: str) -> None:
    """Refuse to start in a kernel tree; `real`: where `written` leads, as far as it is known.

    A descriptor of the host's that a runtime left open, named /proc/self/fd/N, became a way out of
    the container there (CVE-2024-21626).

    Raises:
        ConfigError: it lies in /proc, /sys or /dev.
    """
    for tree in KERNEL_TREES:
        if is_below(real, tree):
            shown = written if written == real else f"{written} (which leads to {real})"
            raise ConfigError(
                f"workdir {shown} cannot be where the command starts",
                why=f"{tree} is the kernel's",
                remedy="choose a directory outside /proc, /sys and /dev; "
                "the command can go there itself",
            )


def _names(written: str, fact: PathFact) -> str:
    return written if written == fact.real else f"{written} (which is {fact.real})"
