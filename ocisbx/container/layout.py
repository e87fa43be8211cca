"""Where mount points come from: the entries of the root that every mount needs to exist.

A mount lands on one of three grounds: our own skeleton (we make the mount point), a tmpfs or a
writable bind (the runtime makes it, as docker's users expect), or a read-only bind. There the
mount point has to exist; where it does not, the bind is *opened*: replaced by a directory of ours
with one bind for each of its entries, and so on down to where the mount point belongs.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from ocisbx.container.model import Bind, Node, Tmpfs
from ocisbx.container.paths import is_below
from ocisbx.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.host import Host, Link

# Opening a directory costs one mount for each entry (about 55 us each, performance.md 3.4).
OPEN_LIMIT = 512

# path_resolution(7): the kernel gives up after 40 symlinks.
LINK_LIMIT = 40

# Our own link to /tmp, which gives way to a directory when something is mounted below it.
VAR_TMP = "/var/tmp"


class Layout:
    """Nodes and mounts under construction; nodes are keyed by path, the last word wins."""

    def __init__(self, host: Host, nodes: Iterable[Node], binds: Iterable[Bind]) -> None:
        self._host = host
        self._nodes: dict[str, Node] = {}
        self._binds: dict[str, Bind] = {}
        self._tmpfs: dict[str, Tmpfs] = {}
        for node in nodes:
            self.add_node(node)
        for bind in binds:
            self.add_bind(bind)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Parents first."""
        return tuple(sorted(self._nodes.values(), key=lambda node: node.path.split("/")))

    @property
    def binds(self) -> tuple[Bind, ...]:
        return tuple(sorted(self._binds.values(), key=lambda bind: bind.target.split("/")))

    @property
    def tmpfs(self) -> tuple[Tmpfs, ...]:
        return tuple(sorted(self._tmpfs.values(), key=lambda tmpfs: tmpfs.target.split("/")))

    def add_node(self, node: Node) -> None:
        """Put one entry into the root, opening the read-only bind that it lies in."""
        ground = self._ground(node.path)
        if isinstance(ground, Bind):
            self._open(ground, node.path)
        self._make_parents(node.path)
        self._binds.pop(node.path, None)
        self._nodes[node.path] = node

    def add_tmpfs(self, tmpfs: Tmpfs) -> None:
        self._make_target(tmpfs.target, directory=True, mode=tmpfs.mode)
        self._binds.pop(tmpfs.target, None)
        self._tmpfs[tmpfs.target] = tmpfs

    def add_bind(self, bind: Bind) -> None:
        self._make_target(bind.target, directory=bind.directory)
        self._tmpfs.pop(bind.target, None)
        self._binds[bind.target] = bind

    def add_link(self, link: Link, bind: Bind) -> None:
        """Repeat a symlink of the host, which leads to `bind`; below a tmpfs, or a mount of
        something else, no link can be made: there the bind is shown once more instead."""
        ground = self._ground(link.path)
        if link.path in self._nodes:
            return
        if ground is None:
            self.add_node(Node(kind="symlink", path=link.path, content=link.target))
        elif isinstance(ground, Bind) and ground.source == ground.target:
            # The link itself is shown there.
            return
        elif ".." not in link.rest.split("/"):
            alias = posixpath.join(link.path, link.rest).rstrip("/")
            self.add_bind(bind.model_copy(update={"target": alias}))

    def add_workdir(self, path: str) -> None:
        """Make a working directory that nothing provides, as docker does. Here, since a runtime
        would make it in a root that other containers share."""
        there = path in self._nodes or path in self._binds or path in self._tmpfs
        if path == "/" or there or self._ground(path) is not None:
            return
        parents = [self._nodes[parent] for parent in _parents(path) if parent in self._nodes]
        if all(node.kind == "directory" for node in parents):
            self._make_target(path, directory=True)

    def follow(self, path: str) -> str:
        """Where `path` leads through the links of the root; in a mount nothing is known of them."""
        current, rest, links = "/", _parts(path), 0
        while rest and links <= LINK_LIMIT:
            current = posixpath.normpath(posixpath.join(current, rest.pop(0)))
            node = self._nodes.get(current)
            if node is not None and node.kind == "symlink":
                links += 1
                rest = _parts(node.content) + rest
                current = "/" if node.content.startswith("/") else posixpath.dirname(current)
        return posixpath.join(current, *rest)

    def source_of(self, path: str) -> str | None:
        """The host's path that is shown at `path`; None: none is."""
        ground = self._binds.get(path) or self._ground(path)
        if not isinstance(ground, Bind):
            return None
        below = posixpath.relpath(path, ground.target)
        return posixpath.normpath(posixpath.join(ground.source, below))

    def _ground(self, path: str) -> Bind | Tmpfs | None:
        """The innermost mount that `path` lies strictly below."""
        for parent in _parents(path):
            if (mount := self._tmpfs.get(parent) or self._binds.get(parent)) is not None:
                return mount
        return None

    def _make_target(self, path: str, *, directory: bool, mode: int | None = None) -> None:
        ground = self._ground(path)
        if isinstance(ground, Tmpfs) or (ground is not None and not ground.read_only):
            return
        if ground is not None and not self._open(ground, path):
            return
        if path in self._binds or (path in self._nodes and self._nodes[path].kind != "symlink"):
            return
        self._make_parents(path)
        self._nodes[path] = Node(kind="directory" if directory else "file", path=path, mode=mode)

    def _make_parents(self, path: str) -> None:
        for parent in _parents(path):
            node = self._nodes.get(parent)
            mounted = parent in self._binds or parent in self._tmpfs
            if (node is None or parent == VAR_TMP) and not mounted:
                self._nodes[parent] = Node(kind="directory", path=parent)
            elif node is not None and node.kind != "directory":
                raise ConfigError(
                    f"{path} cannot be mounted",
                    why=f"{parent} is a {node.kind} ({node.content}) in this root"
                    if node.kind == "symlink"
                    else f"{parent} is a file in this root",
                    remedy="choose a target whose parents are directories",
                )

    def _open(self, bind: Bind, path: str) -> bool:
        """Replace a read-only bind by its entries when `path` does not exist below it.

        Returns False when the mount point exists there, so that nothing has to be done.
        """
        relative = posixpath.relpath(path, bind.target)
        if not _missing_below(self._host, bind.source, relative):
            return False
        entries = self._host.listings[bind.source]
        if len(entries) > OPEN_LIMIT:
            raise ConfigError(
                f"{path} cannot be mounted",
                why=f"it does not exist, and {bind.source} has {len(entries)} entries to repeat",
                remedy="choose a target that exists, or one outside it",
            )
        del self._binds[bind.target]
        self._nodes[bind.target] = Node(kind="directory", path=bind.target)
        for entry in entries:
            target = posixpath.join(bind.target, entry.name)
            if entry.kind == "symlink":
                self._nodes[target] = Node(kind="symlink", path=target, content=entry.target)
            elif entry.kind in ("directory", "file"):
                source = posixpath.join(bind.source, entry.name)
                self._nodes[target] = Node(kind=entry.kind, path=target)
                self._binds[target] = bind.model_copy(
                    update={
                        "source": source,
                        "target": target,
                        "directory": entry.kind == "directory",
                    }
                )
        inner = self._ground(path)
        if isinstance(inner, Bind) and inner.read_only:
            self._open(inner, path)
        return True


def _missing_below(host: Host, source: str, relative: str) -> bool:
    """True when `source/relative` is not there, as far as the host was looked at.

    Raises:
        ConfigError: a symlink or a file stands in the way.
    """
    current = source
    parts = relative.split("/")
    for position, name in enumerate(parts):
        listing = host.listings.get(current)
        if listing is None:
            return False
        entry = next((entry for entry in listing if entry.name == name), None)
        if entry is None:
            return True
        current = posixpath.join(current, name)
        if entry.kind == "symlink" or (entry.kind == "file" and position < len(parts) - 1):
            raise ConfigError(
                f"nothing can be mounted at {relative} below {source}",
                why=f"{current} is a {entry.kind} {entry.target}".rstrip(),
                remedy="name the place that it points to",
            )
    return False


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _parents(path: str) -> list[str]:
    """The directories above `path`, innermost first, without the root."""
    found = []
    while (path := posixpath.dirname(path)) != "/":
        found.append(path)
    return found


def inside(path: str, binds: Iterable[Bind]) -> Bind | None:
    """The bind that shows the host's `path` in the container, if any."""
    for bind in binds:
        if is_below(path, bind.source):
            return bind
    return None
