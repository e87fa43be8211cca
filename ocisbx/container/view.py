"""The default view of the host: which of its files a container sees, and why each is there."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ocisbx.container.layout import VAR_TMP
from ocisbx.container.model import Bind, Node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ocisbx.host import Entry, Host

# Where every program of the system lives: /usr, and the names that point into it.
TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

# What programs read of /etc that holds no secret, as shell patterns below /etc.
ETC_PATTERNS: tuple[tuple[str, str], ...] = (
    ("ld.so.cache", "the dynamic loader's index; without it every start searches directories"),
    ("ld.so.conf", "ldconfig and compilers"),
    ("ld.so.conf.d", "ldconfig and compilers"),
    ("alternatives", "Debian: /usr/bin/awk, editor, java and the like are links into it"),
    ("ssl/certs", "certificates; /etc/ssl/private is not shown"),
    ("ssl/openssl.cnf", "what OpenSSL reads at start"),
    ("ca-certificates", "Java's and Debian's certificate bundles"),
    ("pki/ca-trust", "Fedora: certificates"),
    ("pki/tls/certs", "Fedora: certificates; /etc/pki/tls/private is not shown"),
    ("crypto-policies", "Fedora: what OpenSSL and GnuTLS read at start"),
    ("localtime", "the time zone"),
    ("timezone", "the time zone's name"),
    ("protocols", "getprotobyname(3)"),
    ("services", "getservbyname(3)"),
    ("mime.types", "Python's mimetypes, web servers"),
    ("os-release", "which distribution this is"),
    ("debian_version", "which distribution this is"),
    ("lsb-release", "which distribution this is"),
    ("python3*", "Debian: sitecustomize of the system's Python"),
    ("perl", "in perl's search path"),
    ("java-*", "a JVM's conf directory is a link to it"),
    ("maven/m2.conf", "mvn does not start without; settings.xml may hold passwords"),
    ("maven/logging", "mvn's logging"),
    ("fonts", "fontconfig: Java's and Python's drawing"),
    ("terminfo", "descriptions of terminals"),
    ("magic", "file(1)"),
)

# The directories whose listings the view is made of.
LISTED = ("/", *dict.fromkeys(posixpath.dirname(f"/etc/{pattern}") for pattern, _ in ETC_PATTERNS))

NSSWITCH = """\
passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
"""

# Programs expect these to exist; nothing of the host's is in them.
EMPTY_DIRECTORIES = ("/run", "/var", "/mnt")


@dataclass(frozen=True, slots=True)
class Names:
    """What the generated files of /etc say about the payload and its host."""

    user: str
    uid: int
    gid: int
    home: str
    hostname: str


def host_view(host: Host) -> tuple[list[Node], list[Bind]]:
    """The system's read-only directories: nothing of /home, /root, /var, /run; no secrets."""
    nodes = [Node(kind="directory", path=path) for path in EMPTY_DIRECTORIES]
    nodes.append(Node(kind="symlink", path=VAR_TMP, content="/tmp"))
    binds = [Bind(source="/usr", target="/usr", read_only=True)]
    for entry in host.listings["/"]:
        if entry.name not in TOP_LEVEL:
            continue
        path = f"/{entry.name}"
        if entry.kind == "symlink":
            nodes.append(Node(kind="symlink", path=path, content=entry.target))
        elif entry.kind == "directory":
            binds.append(Bind(source=path, target=path, read_only=True))
    for path, entry in _etc(host.listings):
        if entry.kind == "symlink":
            nodes.append(Node(kind="symlink", path=path, content=entry.target))
        elif entry.kind in ("directory", "file"):
            binds.append(_shown(path, path, entry).model_copy(update={"copyable": True}))
    return nodes, binds


def shown_of_etc(listings: Mapping[str, Sequence[Entry]]) -> list[str]:
    """The files and directories of /etc that the view has."""
    return [path for path, entry in _etc(listings) if entry.kind in ("directory", "file")]


def _etc(listings: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, Entry]]:
    for pattern, _ in ETC_PATTERNS:
        directory, name = posixpath.split(f"/etc/{pattern}")
        for entry in listings.get(directory, ()):
            if fnmatchcase(entry.name, name):
                yield f"{directory}/{entry.name}", entry


def _shown(source: str, target: str, entry: Entry) -> Bind:
    return Bind(source=source, target=target, read_only=True, directory=entry.kind == "directory")


def directory_view(host: Host, directory: str) -> tuple[list[Node], list[Bind]]:
    """An unpacked root, entry by entry, so that nothing is ever created in the caller's tree."""
    nodes: list[Node] = []
    binds: list[Bind] = []
    for entry in host.listings[directory]:
        path = f"/{entry.name}"
        if entry.name in ("dev", "proc", "sys", "tmp"):
            continue
        if entry.kind == "symlink":
            nodes.append(Node(kind="symlink", path=path, content=entry.target))
        elif entry.kind in ("directory", "file"):
            binds.append(_shown(f"{directory}{path}", path, entry))
    return nodes, binds


def account_files(names: Names) -> list[Node]:
    """passwd and group with the payload's own lines, and nobody for every unmapped id."""
    rows = {0: ("root", "/root"), 65534: ("nobody", "/nonexistent")}
    rows[names.uid] = (names.user, names.home)
    groups = {0: "root", 65534: "nogroup"} | {names.gid: names.user}
    passwd = "".join(
        f"{user}:x:{uid}:{names.gid if uid == names.uid else uid}:{user}:{home}:/bin/sh\n"
        for uid, (user, home) in sorted(rows.items())
    )
    group = "".join(f"{name}:x:{gid}:\n" for gid, name in sorted(groups.items()))
    return [
        Node(kind="file", path="/etc/passwd", content=passwd),
        Node(kind="file", path="/etc/group", content=group),
        Node(kind="file", path="/etc/nsswitch.conf", content=NSSWITCH),
    ]


def host_files(names: Names) -> list[Node]:
    """hosts and hostname, where the root has none of its own."""
    hosts = f"127.0.0.1\tlocalhost {names.hostname}\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    return [
        Node(kind="file", path="/etc/hosts", content=hosts),
        Node(kind="file", path="/etc/hostname", content=f"{names.hostname}\n"),
    ]
