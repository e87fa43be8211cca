"""The root that containers share: who has it, and what it has as copies in place of mounts."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.backends.compile import guards
from ocisbx.backends.lower import lower
from ocisbx.bundle.view import make_nodes, shared_view
from ocisbx.config import SandboxConfig
from ocisbx.container.resolve import resolve
from ocisbx.host import Entry, Host, Matches, PathFact, PathKind, Place
from ocisbx.places import find_places
from ocisbx.plan import Guard, Plan, RootNode, hash_of
from ocisbx.steady import TICK_NS, Looked, survey
from tests.unit.hosts import ROOT, RUNSC, directory, make_host

if TYPE_CHECKING:
    from ocisbx.container.model import ContainerConfig

SETTLED_S = 1.5 * TICK_NS / 1e9
ETC = (
    Entry(name="fonts", kind="directory"),
    Entry(name="magic", kind="file"),
    Entry(name="perl", kind="directory"),
)
# perl is too large.
LOOKED = {
    path: (Looked(path, 1, number, 10**18),)
    for number, path in enumerate(("/etc/fonts", "/etc/magic"))
}


def host(**changes: Any) -> Host:
    listings = {"/": ROOT, "/etc": ETC, "/etc/fonts": ()}
    fields: dict[str, Any] = {"listings": listings, "steady": LOOKED}
    return make_host(**(fields | changes))


def resolved(on: Host, **fields: Any) -> ContainerConfig:
    return resolve(SandboxConfig.build({"workspace": "/srv/work"} | fields), on)


def copies(container: ContainerConfig) -> set[str]:
    return {node.path for node in container.root.nodes if node.kind == "copy"}


def mounts(container: ContainerConfig) -> set[str]:
    return {bind.target for bind in container.binds if bind.target.startswith("/etc/")}


def test_what_is_small_is_a_copy_and_no_mount() -> None:
    container = resolved(host())
    assert container.root.shared
    assert copies(container) == {"/etc/fonts", "/etc/magic"}
    assert mounts(container) == {"/etc/perl"}
    paths = [node.path for node in container.root.nodes]
    assert len(paths) == len(set(paths))
    assert resolved(host(steady={})).root.nodes != container.root.nodes


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"uid": 0, "gid": 0}, {}),
        ({}, {"isolation": {"read_only_root": False}}),
        ({}, {"isolation": {"capabilities": ["+CAP_SYS_ADMIN"]}}),
        ({"runtimes": (RUNSC,)}, {"runtime": {"names": ["runsc"]}}),
    ],
)
def test_who_has_a_root_of_its_own_has_mounts(
    changes: dict[str, Any], fields: dict[str, Any]
) -> None:
    container = resolved(host(**changes), **fields)
    assert not container.root.shared
    assert not copies(container)
    assert mounts(container) == {"/etc/fonts", "/etc/magic", "/etc/perl"}


def test_what_the_caller_gives_is_a_mount() -> None:
    """A volume shows what becomes of its source while the container runs."""
    fact = PathFact(kind=PathKind.FILE, real="/etc/magic")
    on = host(paths={"/srv/work": directory("/srv/work"), "/etc/magic": fact})
    container = resolved(on, volumes=["/etc/magic:ro"])
    assert copies(container) == {"/etc/fonts"}
    assert mounts(container) == {"/etc/magic", "/etc/perl"}


@pytest.mark.parametrize("target", ["/etc/fonts/own", "/etc/fonts"])
def test_what_has_a_mount_in_or_on_it_is_none(target: str) -> None:
    container = resolved(host(), tmpfs={target: 4096})
    assert copies(container) == {"/etc/magic"}
    assert [one.target for one in container.tmpfs if one.target.startswith("/etc")] == [target]
    nodes = {node.path: node.kind for node in container.root.nodes}
    assert nodes[target] == "directory"


@pytest.mark.parametrize(
    "over", [{"volumes": ["/srv/ssl:/etc/ssl:ro"]}, {"tmpfs": {"/etc/ssl": 4096}}]
)
def test_what_lies_below_a_mount_is_none(over: dict[str, Any]) -> None:
    """A copy would be seen through the root only, and this is not the root."""
    container = resolved(below_ssl(), **over)
    assert copies(container) == {"/etc/magic"}
    assert "/etc/ssl/openssl.cnf" in mounts(container)


def test_what_covers_a_writable_mount_stays() -> None:
    """The view's own read-only mount of the file is what holds the rule."""
    fact = PathFact(kind=PathKind.FILE, real="/etc/ssl/openssl.cnf")
    on = below_ssl(
        matches={
            "/etc/ssl/openssl.cnf": Matches(places=(Place(real=fact.real, kind=fact.kind),)),
            "/etc/ssl": Matches(places=(Place(real="/etc/ssl", kind=PathKind.DIRECTORY),)),
        }
    )
    rules = {"allow_write": ["/etc/ssl"], "deny_write": ["/etc/ssl/openssl.cnf"]}
    container = resolved(on, filesystem=rules)
    shown = {bind.target: bind.read_only for bind in container.binds}
    assert not shown["/etc/ssl"]
    assert shown["/etc/ssl/openssl.cnf"]


def below_ssl(**changes: Any) -> Host:
    """A host whose /etc/ssl has a small file that the view shows."""
    ssl = (Entry(name="openssl.cnf", kind="file"),)
    etc = (Entry(name="magic", kind="file"), Entry(name="ssl", kind="directory"))
    paths = {path: directory(path) for path in ("/srv/work", "/srv/ssl", "/etc/ssl")}
    names = ("/etc/magic", "/etc/ssl/openssl.cnf")
    looked = {path: (Looked(path, 1, number, 10**18),) for number, path in enumerate(names)}
    listings = {"/": ROOT, "/etc": etc, "/etc/ssl": ssl}
    return host(listings=listings, steady=looked, paths=paths, **changes)


def test_what_a_rule_hides_is_not_copied() -> None:
    """Neither the thing itself nor what it lies in."""
    found = {
        "/etc/magic": Matches(places=(Place(real="/etc/magic", kind=PathKind.FILE),)),
        "/etc/fonts/x": Matches(places=(Place(real="/etc/fonts/x", kind=PathKind.FILE),)),
    }
    rules = {"deny_read": ["/etc/magic", "/etc/fonts/x"]}
    container = resolved(host(matches=found), filesystem=rules)
    assert not copies(container)
    hidden = {bind.target for bind in container.binds if not bind.source.startswith("/")}
    assert {"/etc/magic", "/etc/fonts/x"} <= hidden


def test_its_plan_rests_on_what_was_copied(tmp_path: Path) -> None:
    (tmp_path / "magic").write_text("one\n")
    time.sleep(SETTLED_S)
    path = f"{tmp_path}/magic"
    looked = survey(path)
    assert looked is not None
    on = host(steady={"/etc/magic": looked})
    container = resolved(on)
    plan = lower(SandboxConfig(), container, on)
    plan = plan._replace(guards=(*guards(on), Guard("/etc/magic", "steady", looked)))
    assert Plan.from_json(plan.to_json()) == plan
    (node,) = [node for node in plan.nodes if node.kind == "copy"]
    assert node == RootNode("copy", "/etc/magic", "/etc/magic", 0o755, hash_of(looked))
    own = plan._replace(guards=plan.guards[-1:])
    assert own.holds()
    os.replace(tmp_path / "magic", tmp_path / "old")
    assert not own.holds()


# --------------------------------------------------------------------------------- the directory
@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a host; what is kept of it lies beside."""
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/cache")
    path = tmp_path / "fonts"
    path.mkdir()
    (path / "fonts.conf").write_text("sans\n")
    (path / "link").symlink_to("fonts.conf")
    time.sleep(SETTLED_S)
    return path


def node_of(source: Path) -> tuple[RootNode, ...]:
    return (RootNode("copy", "/fonts", str(source), 0o755, hash_of(survey(str(source)) or ())),)


def test_a_view_has_what_its_name_says(source: Path) -> None:
    made = shared_view(node_of(source))
    assert made is not None
    assert Path(made, "fonts", "fonts.conf").read_text() == "sans\n"
    assert os.readlink(f"{made}/fonts/link") == "fonts.conf"
    assert shared_view(node_of(source)) == made
    (source / "another").touch()
    time.sleep(SETTLED_S)
    assert shared_view(node_of(source)) != made


def test_a_view_of_what_has_changed_is_not_made(source: Path, tmp_path: Path) -> None:
    """A plan is some moments old when its view is made; its container has a root of its own then,
    with what there is."""
    nodes = node_of(source)
    (source / "fonts.conf").write_text("serif\n")
    assert shared_view(nodes) is None
    assert os.listdir(f"{find_places().cache}/views") == []
    (tmp_path / "root").mkdir()
    make_nodes(f"{tmp_path}/root", nodes)
    assert (tmp_path / "root" / "fonts" / "fonts.conf").read_text() == "serif\n"
