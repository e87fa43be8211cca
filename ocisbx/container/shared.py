"""The root that containers share, and what it has as copies in place of mounts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ocisbx.container.model import Node
from ocisbx.container.paths import is_below

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.container.files import Files
    from ocisbx.container.model import Bind, Confinement, Root
    from ocisbx.host import Host
    from ocisbx.quirks import Quirks


def share_root(files: Files, confinement: Confinement, host: Host, quirks: Quirks) -> Files:
    """Where the root can be shared: with copies of what is small and rarely changes, which a root
    of one container's would have to be given anew each time, and the mounts that are left. What
    has something else mounted in, on or above it stays a mount: it may be what covers that."""
    if not _may_share(files.root, confinement, host, quirks):
        return files
    mounted = [*(bind.target for bind in files.binds), *(one.target for one in files.tmpfs)]
    copies = {
        bind.target: _copy(bind, host)
        for bind in files.binds
        if bind.copyable and bind.source in host.steady and not _covered(bind.target, mounted)
    }
    root = files.root.model_copy(
        update={
            "shared": True,
            "nodes": tuple(copies.get(node.path, node) for node in files.root.nodes),
        }
    )
    left = tuple(bind for bind in files.binds if bind.target not in copies)
    return replace(files, root=root, binds=left)


def _may_share(root: Root, confinement: Confinement, host: Host, quirks: Quirks) -> bool:
    """Whether containers may have the same directory as their root, and can reach it.

    Who may mount can make a read-only root writable again (mount(2), MS_REMOUNT), and would write
    what other containers start from. Root's containers run as a user who cannot cross its home.
    """
    if root.directory is not None or not root.read_only or quirks.writes_root:
        return False
    return host.uid != 0 and "CAP_SYS_ADMIN" not in confinement.capabilities


def _copy(bind: Bind, host: Host) -> Node:
    looked = host.steady[bind.source]
    return Node(kind="copy", path=bind.target, content=bind.source, looked=looked)


def _covered(target: str, mounted: Iterable[str]) -> bool:
    return any(
        point != target and (is_below(point, target) or is_below(target, point))
        for point in mounted
    )
