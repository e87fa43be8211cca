"""look(): our place in the hierarchy, on trees of files as each environment has them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.probe.cgroups import (
    Site,
    bus_paths,
    delegates,
    find_mount,
    look,
    mounted_root,
    own_cgroup,
    relative_to,
    unified_path,
    user_buses,
)
from ocisbx.probe.gather import cgroups
from tests.unit.cgroup_tree import ALL, APP, MANAGER, UID, USER, Tree

if TYPE_CHECKING:
    from pathlib import Path

SESSION = f"{USER}/session-3.scope"
FEW = ("memory", "pids")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def way(tree: Tree) -> tuple[str, str, tuple[str, ...]]:
    site = look(str(tree.root))
    assert (site.hierarchy, site.mount) == ("unified", str(tree.mount))
    return site.way, site.parent, site.controllers


def need_marks(tree: Tree, path: str) -> None:
    try:
        tree.mark(path)
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error.strerror}")


# -------------------------------------------------------------------- below the user manager
@pytest.mark.parametrize("bus", [True, False])
def test_a_delegated_unit_has_siblings(tree: Tree, bus: bool) -> None:  # noqa: FBT001
    tree.add(MANAGER, mine=True).add(APP, mine=True).add(f"{APP}/x.scope", mine=True)
    need_marks(tree, f"{APP}/x.scope")
    tree.enter(f"{APP}/x.scope")
    if bus:
        tree.start_bus()
    assert way(tree) == ("sibling", APP, ALL)


def test_a_cgroup_below_a_delegated_unit_has_siblings(tree: Tree) -> None:
    tree.add(MANAGER, mine=True).add(APP, mine=True).add(f"{APP}/x.scope", mine=True)
    tree.add(f"{APP}/x.scope/sub", FEW, mine=True).enter(f"{APP}/x.scope/sub").start_bus()
    need_marks(tree, f"{APP}/x.scope")
    assert way(tree) == ("sibling", f"{APP}/x.scope", ALL)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("run/user/{uid}/systemd/transient/x@7.service", "[Service]\nDelegate=yes\n", "sibling"),
        ("run/user/{uid}/systemd/transient/x@7.service", "[Service]\nDelegate = cpu io", "sibling"),
        ("home/.config/systemd/user/x@.service", "Delegate=no\nDelegate=true", "sibling"),
        ("usr/lib/systemd/user/x@.service.d/a.conf", "Delegate=1", "sibling"),
        ("etc/systemd/user/x@7.service", "Delegate=yes\nDelegate=\n", "scope"),
        ("etc/systemd/user/x@7.service", "#Delegate=yes\nX-Delegate=yes\n", "scope"),
        ("etc/systemd/user/y.service", "Delegate=yes", "scope"),
    ],
)
def test_the_file_of_a_unit_tells_too(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, file: str, text: str, expected: str
) -> None:
    """As of systemd 257 a user manager marks no cgroup."""
    monkeypatch.setenv("HOME", str(tree.root / "home"))
    own = f"{APP}/x@7.service"
    tree.add(MANAGER, mine=True).add(APP, mine=True).add(own, mine=True).enter(own).start_bus()
    path = tree.root / file.format(uid=UID)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert way(tree)[0] == expected


def test_a_manager_whose_part_cannot_be_written_is_not_asked(tree: Tree) -> None:
    """A read-only mount: a scope of it could hold nothing."""
    tree.add(MANAGER).add(SESSION).enter(SESSION).start_bus()
    assert way(tree) == ("none", "", ())


@given(st.text(), st.sampled_from(["", "no", "0", "yes", "cpu memory"]))
def test_the_last_word_on_delegation_counts(text: str, value: str) -> None:
    assert delegates(f"{text}\nDelegate={value}\n") is (value in ("yes", "cpu memory"))


@pytest.mark.parametrize("name", ["ocisbx-driver", "ocisbx-77-0a1b.scope"])
def test_what_we_were_given_before_is_known_by_its_name(tree: Tree, name: str) -> None:
    tree.add(MANAGER, mine=True).add(APP, mine=True).add(f"{APP}/{name}", mine=True)
    tree.enter(f"{APP}/{name}").start_bus()
    assert way(tree) == ("sibling", APP, ALL)


def test_an_undelegated_unit_asks_for_a_scope(tree: Tree) -> None:
    tree.add(MANAGER, mine=True).add(APP, FEW, mine=True).add(f"{APP}/x.scope", FEW, mine=True)
    tree.enter(f"{APP}/x.scope").start_bus()
    assert way(tree) == ("scope", "", ALL)
    # The manager's own cgroup is marked by the system's systemd: that says nothing of units in it.
    need_marks(tree, MANAGER)
    assert way(tree) == ("scope", "", ALL)


def test_an_undelegated_unit_without_a_bus_takes_what_is_enabled(tree: Tree) -> None:
    tree.add(MANAGER, mine=True).add(APP, FEW, mine=True).add(f"{APP}/x.scope", FEW, mine=True)
    tree.enter(f"{APP}/x.scope")
    assert way(tree) == ("sibling", APP, FEW)


# ------------------------------------------------------------------------- outside of it
@pytest.mark.parametrize(
    "own", [SESSION, "/system.slice/cron.service", "/user.slice/user-77.slice/session-1.scope"]
)
def test_what_root_owns(tree: Tree, own: str) -> None:
    tree.add(own).enter(own)
    assert way(tree) == ("none", "", ())
    bus = tree.start_bus()
    # A socket alone is no manager: it has no part of this hierarchy.
    assert way(tree) == ("none", "", ())
    tree.add(MANAGER, ("cpu", *FEW), mine=True)
    assert way(tree) == ("scope", "", ("cpu", *FEW))
    record = cgroups(str(tree.root))
    assert (record.user_bus, record.systemd, record.read_only) == (bus, False, False)


def test_a_service_that_was_delegated_is_divided_below(tree: Tree) -> None:
    own = "/system.slice/x.service"
    tree.add(own, FEW, mine=True).enter(own).start_bus()
    tree.add(MANAGER, mine=True)
    assert way(tree) == ("below", own, FEW)
    tree.add(f"{own}/ocisbx-driver", mine=True).enter(f"{own}/ocisbx-driver")
    assert way(tree) == ("sibling", own, FEW)


def test_a_part_whose_switch_is_not_ours_has_what_is_enabled(tree: Tree) -> None:
    tree.add("/box", mine=True).add("/box/shell", mine=True).enter("/box/shell")
    switch = tree.mount / "box/cgroup.subtree_control"
    switch.write_text("pids\n", encoding="ascii")
    switch.chmod(0o444)
    assert way(tree) == ("sibling", "/box", ("pids",))


@pytest.mark.parametrize("closed", ["", "/cgroup.procs"])
def test_a_directory_or_its_processes_alone_are_not_enough(tree: Tree, closed: str) -> None:
    tree.add("/box", mine=True).add("/box/shell").enter("/box/shell")
    (tree.mount / f"box{closed}").chmod(0o555)
    assert way(tree) == ("none", "", ())


# ------------------------------------------------------------------- roots and containers
def test_the_root_of_all_may_hold_processes(tree: Tree) -> None:
    tree.enter("/").show("/")
    assert way(tree) == ("none", "", ())
    tree.own(tree.mount, mine=True)
    assert way(tree) == ("sibling", "/", ALL)


def test_the_root_of_a_container_may_not(tmp_path: Path) -> None:
    tree = Tree(tmp_path, real_root=False).enter("/").show("/")
    assert way(tree) == ("none", "", ())
    tree.own(tree.mount, mine=True)
    assert way(tree) == ("below", "/", ALL)


def test_a_container_with_systemd_inside(tree: Tree) -> None:
    outer = "/machine.slice/libpod-1.scope"
    own = f"{outer}{SESSION}"
    tree.add(f"{outer}{MANAGER}", FEW, mine=True).add(own).enter(own).start_bus()
    assert way(tree) == ("scope", "", FEW)
    # A runtime's unit in the manager's part has a slice of that name (runc's user.slice:runc:ID).
    inner = f"{outer}{MANAGER}/user.slice/runc-1.scope"
    tree.add(inner, mine=True).enter(inner)
    assert way(tree) == ("scope", "", FEW)


def test_a_part_that_is_mounted_alone(tree: Tree) -> None:
    """As docker does with --cgroupns=host: our path counts from the real root, the mount not."""
    tree.add("/docker", mine=True).add("/docker/a b", mine=True).enter("/x/docker/a b")
    tree.show("/x")
    assert own_cgroup(str(tree.mount), str(tree.root)) == "/docker/a b"
    assert way(tree) == ("sibling", "/docker", ALL)
    tree.show(r"/x/docker/a\040b")
    assert own_cgroup(str(tree.mount), str(tree.root)) == "/"


@pytest.mark.parametrize(
    ("own", "shown"),
    [("/../x", "/"), ("/..", "/"), ("/", "/.."), ("/", "/../../x"), ("/gone", "/")],
)
def test_what_lies_outside_of_our_namespace_is_unknown(tree: Tree, own: str, shown: str) -> None:
    (tree.mount.parent / "x").mkdir()
    tree.enter(own).show(shown).own(tree.mount, mine=True)
    tree.start_bus()
    tree.add(MANAGER, mine=True)
    assert look(str(tree.root)) == Site("unified", str(tree.mount))


# ------------------------------------------------------------------------ other hierarchies
def test_hybrid_has_what_its_second_part_has(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sys/fs/cgroup/unified")
    (tmp_path / "sys/fs/cgroup/memory").mkdir()
    tree.add("/box", (), mine=True).add("/box/shell", ()).enter(
        "/box/shell", "4:memory:/elsewhere\n1:name=systemd:/\n0::{own}"
    )
    site = look(str(tmp_path))
    mount = str(tmp_path / "sys/fs/cgroup/unified")
    assert site == Site("hybrid", mount, "/box/shell", "sibling", "/box", ())
    tree.enter("/").show("/", "/sys/fs/cgroup/unified")
    assert look(str(tmp_path)) == Site("hybrid", mount, "/")


@pytest.mark.parametrize("name", ["memory", "cpu,cpuacct", "systemd"])
def test_v1_and_none(tmp_path: Path, name: str) -> None:
    assert look(str(tmp_path)) == Site("none")
    assert cgroups(str(tmp_path)).own == ""
    (tmp_path / "sys/fs/cgroup" / name).mkdir(parents=True)
    assert look(str(tmp_path)) == Site("v1")
    assert find_mount(str(tmp_path / "sys/fs/cgroup")) == ("v1", "")


@pytest.mark.parametrize("text", ["", "0:", "0::relative", "1:name=systemd:/", "\0::/", "\n\n"])
def test_a_file_that_tells_no_cgroup(tree: Tree, text: str) -> None:
    tree.own(tree.mount, mine=True)
    tree.enter("", text)
    assert way(tree) == ("none", "", ())


# --------------------------------------------------------------------------------- the bus
def test_buses_are_the_users_own(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tree.root)
    assert list(user_buses(UID, root)) == []
    bus = tree.start_bus()
    assert list(user_buses(UID, root)) == [bus]
    # su(1) keeps the environment of who called it.
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={bus}")
    assert list(user_buses(UID + 1, root)) == []
    elsewhere = tree.root / "else where"
    (elsewhere / "systemd").mkdir(parents=True)
    for name in ("bus", "systemd/private"):
        (elsewhere / name).touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(elsewhere))
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:abstract=/tmp/x")
    assert list(user_buses(UID, root)) == [
        f"{elsewhere}/bus", bus, f"{elsewhere}/systemd/private"
    ]  # fmt: skip
    monkeypatch.setenv("XDG_RUNTIME_DIR", "run")
    assert list(user_buses(UID, root)) == [bus]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("unix:path=/run/user/7/bus", ["/run/user/7/bus"]),
        ("unix:guid=1f,path=/a%20b;unix:path=/c", ["/a b", "/c"]),
        ("unix:abstract=/x", []),
        ("tcp:host=x,port=1,path=/y", []),
        ("unix:path=%00", []),
        ("", []),
    ],
)
def test_addresses_of_buses(address: str, expected: list[str]) -> None:
    assert list(bus_paths(address)) == expected


@given(st.text())
def test_any_address_is_read(address: str) -> None:
    for path in bus_paths(address):
        assert "\0" not in path


# -------------------------------------------------------------------------------- parsers
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\n\0"), min_size=1).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))


@given(PATHS, st.lists(st.sampled_from(["1:name=systemd:/x", "12:cpu,cpuacct:/a", "0:", ""])))
def test_our_line_is_found_among_others(path: str, others: list[str]) -> None:
    assert unified_path("\n".join([*others, f"0::{path}", *others])) == path
    assert unified_path("\n".join(others)) is None


@given(st.text())
def test_any_membership_is_a_path_or_none(text: str) -> None:
    path = unified_path(text)
    assert path is None or path.startswith("/")


def escape(text: str) -> str:
    return "".join(f"\\{ord(one):03o}" if one in " \t\\#" else one for one in text)


@given(PATHS, PATHS)
def test_the_mounted_root_is_read_as_the_kernel_writes_it(cgroup: str, point: str) -> None:
    line = f"41 31 0:38 {escape(cgroup)} {escape(point)} rw shared:9 - cgroup2 cgroup rw\n"
    other = "31 23 0:28 / /proc rw - proc proc rw\n"
    assert mounted_root(other + line + other, point) == cgroup
    assert mounted_root(f"{other}41 31 0:38 /x {escape(point)} rw - tmpfs a rw", point) == "/"


@given(st.text(), st.text())
def test_any_mountinfo_is_read(text: str, point: str) -> None:
    assert mounted_root(text, point)


@given(PATHS, PATHS)
def test_relative_paths_join_again(shown: str, rest: str) -> None:
    path = (shown.rstrip("/") + rest).rstrip("/") or "/"
    assert relative_to(path, shown) == (rest.rstrip("/") or "/")
    assert relative_to(f"/..{path}", shown) == ""
    assert relative_to(path, f"/..{shown}".rstrip("/")) == ""


def test_this_machine_is_looked_at() -> None:
    site = look()
    assert (site.mount != "") == (site.hierarchy in ("unified", "hybrid"))
    if site.way in ("sibling", "below"):
        assert os.path.isdir(site.mount + site.parent)
