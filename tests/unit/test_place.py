"""settle(): on files where the kernel is not needed; the kernel itself is in tests/vm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocisbx.cgroup.place import enable_controllers, leave_for_leaf, settle
from ocisbx.errors import CgroupError
from ocisbx.probe.cgroups import Site, look
from tests.unit.cgroup_tree import ALL, Tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.add("/box", mine=True).add("/box/shell").enter("/box/shell")
    return tree


def switch(tree: Tree) -> Path:
    return tree.mount / "box/cgroup.subtree_control"


def test_what_is_enabled_is_left_alone(tree: Tree) -> None:
    switch(tree).write_text(" ".join(ALL), encoding="ascii")
    site = look(str(tree.root))
    assert settle(site, ALL, str(tree.root)) == site
    assert switch(tree).read_text(encoding="ascii") == " ".join(ALL)


def test_a_controller_that_cannot_be_had_is_refused_only_when_needed(tree: Tree) -> None:
    switch(tree).write_text("pids\n", encoding="ascii")
    site = look(str(tree.root))
    switch(tree).chmod(0o444)
    settled = settle(site, (), str(tree.root))
    assert settled.controllers == ("pids",)
    with pytest.raises(CgroupError, match="memory controller") as raised:
        settle(site, ["pids", "memory"], str(tree.root))
    assert raised.value.why == "/box: it belongs to somebody else"
    assert raised.value.remedy
    with pytest.raises(CgroupError, match="/box does not have it"):
        settle(site._replace(controllers=("pids",)), ["rdma"], str(tree.root))


def test_who_was_moved_looks_again(tree: Tree) -> None:
    root = str(tree.root)
    first = settle(look(root), (), root)
    assert first.parent == "/box"
    tree.add("/other", mine=True).add("/other/shell").enter("/other/shell")
    # The site is the old one, from before somebody moved us.
    assert settle(first, (), root).parent == "/other"
    tree.enter("/")
    with pytest.raises(CgroupError, match="no cgroup can be made here") as raised:
        settle(first, (), root)
    assert "doctor" in raised.value.remedy


def test_no_way_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="our own cgroup is not ours"):
        settle(Site("none"), (), str(tmp_path))


def test_a_cgroup_that_nobody_is_in_is_left_at_once(tree: Tree) -> None:
    leave_for_leaf(str(tree.mount / "box"))
    assert (tree.mount / "box/ocisbx-driver").is_dir()


@pytest.mark.parametrize(
    ("procs", "words"),
    [("0\n", "another pid namespace"), ("77\n", "no such file or directory")],
)
def test_processes_that_cannot_be_moved(tree: Tree, procs: str, words: str) -> None:
    (tree.mount / "box/cgroup.procs").write_text(procs, encoding="ascii")
    with pytest.raises(CgroupError, match="cannot be left") as raised:
        leave_for_leaf(str(tree.mount / "box"))
    assert words in raised.value.why


def test_processes_that_never_end(tree: Tree) -> None:
    tree.add("/box/ocisbx-driver", mine=True)
    (tree.mount / "box/cgroup.procs").write_text("77\n", encoding="ascii")
    with pytest.raises(CgroupError, match="faster than they can be moved"):
        leave_for_leaf(str(tree.mount / "box"))


def test_a_part_that_is_gone(tree: Tree) -> None:
    site = look(str(tree.root))
    enabled, refused = enable_controllers(str(tree.mount / "gone"), site)
    assert enabled == ()
    assert set(refused) == set(ALL)
