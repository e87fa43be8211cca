"""resolve() and its parts on described hosts: pure, complete, and refusing what it must."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.config import SandboxConfig
from ocisbx.container.identity import choose_identity
from ocisbx.container.layout import Layout
from ocisbx.container.limits import choose_rlimits
from ocisbx.container.model import Bind, Node, Tmpfs
from ocisbx.container.paths import (
    KERNEL_TREES,
    TOO_BROAD,
    check_target,
    check_workspace,
    clean,
    is_below,
)
from ocisbx.container.resolve import resolve
from ocisbx.container.scenes import find_scene
from ocisbx.container.select import Wanted, select_runtime
from ocisbx.errors import ConfigError, RuntimeMissing, Unsupported
from ocisbx.host import Cgroups, Entry, Host, Link, PathFact, PathKind
from ocisbx.presets import PRESETS
from ocisbx.quirks import AUTO_ORDER, TABLE, find_quirks, parse_version
from ocisbx.result import EnforcementState
from ocisbx.specgen.build import build_spec
from tests.unit.hosts import (
    CRUN,
    NEW_CRUN,
    NEW_RUNC,
    RANGE,
    RUNC,
    RUNSC,
    directory,
    make_host,
)

HOST = make_host()


# --------------------------------------------------------------------------------------- purity
@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_inputs_give_the_same_container(preset: str) -> None:
    config = SandboxConfig(preset=preset, workspace="/srv/work")
    found = (CRUN, RUNSC)
    one, other = (resolve(config, make_host(runtimes=found)) for _ in range(2))
    assert one == other
    words = {"root": "r", "argv": ["a"], "environment": ["e"]}
    assert build_spec(one, **words).to_json() == build_spec(other, **words).to_json()  # type: ignore[arg-type]


def test_nothing_stays_open() -> None:
    container = resolve(SandboxConfig(workspace="/srv/work"), HOST)
    assert container.runtime == CRUN
    assert container.network == "none"
    assert (container.workdir, container.root.read_only) == ("/srv/work", True)
    assert "auto" not in container.model_dump_json().replace('"runtime_requested":"auto"', "")


def test_nothing_secret_is_shown() -> None:
    container = resolve(SandboxConfig(workspace="/srv/work"), HOST)
    sources = {bind.source for bind in container.binds}
    assert sources == {"/usr", "/etc/ld.so.cache", "/srv/work"}
    assert [bind.source for bind in container.binds if not bind.read_only] == ["/srv/work"]


# ---------------------------------------------------------------------------------------- paths
PARTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), max_size=8)
PATHS = st.lists(PARTS | st.sampled_from([".", "", "..", "a"]), max_size=6).map(
    lambda parts: "/" + "/".join(parts)
)


@given(PATHS)
def test_clean(path: str) -> None:
    once = clean(path)
    assert clean(once) == once
    assert once.startswith("/")
    assert "//" not in once
    assert "/./" not in once + "/"


@given(PATHS, PATHS)
def test_below(path: str, parent: str) -> None:
    one, other = clean(path), clean(parent)
    assert is_below(one, "/")
    assert is_below(one, one)
    if other != "/":
        assert is_below(f"{other}/x", other)
        assert not is_below(f"{other}x", other)
        assert not is_below(other, f"{other}/x")


@given(PATHS)
def test_targets_are_never_the_kernels(path: str) -> None:
    try:
        target = check_target(path, "volume")
    except ConfigError:
        return
    assert target == clean(path)
    assert ".." not in target.split("/")
    assert not any(is_below(target, tree) for tree in (*KERNEL_TREES, "/.ocisbx"))
    assert target not in ("/", "/etc")


HOSTILE = ("/proc", "/proc/", "//proc/self", "/./proc/x", "/dev", "/sys/fs", "/a/../proc", "/..",
           "relative", "", "/a\0b", "/", "/.", "/etc", "/etc/", "/.ocisbx", "/.ocisbx/init",
           "/" + "x" * 4095)  # fmt: skip


@pytest.mark.parametrize("target", HOSTILE, ids=[ascii(target)[:20] for target in HOSTILE])
def test_hostile_targets(target: str) -> None:
    with pytest.raises(ConfigError):
        check_target(target, "volume")


REFUSED = [*TOO_BROAD, *KERNEL_TREES, "/proc/self", "/home/me", "/home", "/run/user/1000/ocisbx",
           "/run/user/1000", "/run/user/1000/ocisbx/bundles", "/home/me/.cache/ocisbx"]  # fmt: skip


@pytest.mark.parametrize("real", REFUSED)
@pytest.mark.parametrize("written", ["", "/srv/link"])
def test_refused_workspaces(real: str, written: str) -> None:
    named = written or real
    host = make_host(paths={named: directory(real)})
    with pytest.raises(ConfigError) as raised:
        check_workspace(host, named)
    assert real in raised.value.what
    assert named in raised.value.what
    assert raised.value.why
    assert "--workspace none" in raised.value.remedy


@pytest.mark.parametrize("kind", [kind for kind in PathKind if kind is not PathKind.DIRECTORY])
def test_workspaces_that_are_no_directory(kind: PathKind) -> None:
    host = make_host(paths={"/srv/x": PathFact(kind=kind, real="/srv/x")})
    with pytest.raises(ConfigError):
        check_workspace(host, "/srv/x")


# --------------------------------------------------------------------------------------- layout
def linked_host() -> Host:
    """With a symlink in the workspace that leads to another directory."""
    link = Link(path="/srv/work/data", target="/home/me/keys")
    keys = PathFact(kind=PathKind.DIRECTORY, real="/home/me/keys", links=(link,))
    plain = {path: directory(path) for path in ("/srv/work", "/home/me/keys")}
    return make_host(paths=plain | {"/srv/work/data": keys})


@pytest.mark.parametrize(
    "changes",
    [
        {"volumes": [{"source": "/srv/work/data", "target": "/data"}]},
        {"volumes": [{"source": "/srv/work/data", "target": "/data", "read_only": True}]},
    ],
)
def test_a_symlink_that_a_payload_can_change_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the payload can change") as raised:
        resolve(SandboxConfig.build(changes), linked_host())
    assert "/home/me/keys" in raised.value.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"volumes": [{"source": "/home/me/keys", "target": "/data"}]},
        {"volumes": [{"source": "/srv/work/data", "target": "/data"}], "workspace": ":ro"},
        {"volumes": [{"source": "/srv/work/data", "target": "/data"}], "workspace": "none"},
    ],
)
def test_other_symlinks_are_followed(changes: dict[str, Any]) -> None:
    assert resolve(SandboxConfig.build(changes), linked_host()).binds


def make_layout(*binds: Bind, **listings: tuple[Entry, ...]) -> Layout:
    return Layout(make_host(listings={f"/{k}": v for k, v in listings.items()}), [], binds)


def test_every_mount_has_its_mount_point() -> None:
    layout = make_layout()
    layout.add_bind(Bind(source="/a", target="/x/y/z", read_only=True))
    layout.add_bind(Bind(source="/f", target="/x/f", read_only=True, directory=False))
    layout.add_tmpfs(Tmpfs(target="/t", size_bytes=1, inodes=1, mode=0o700))
    kinds = {node.path: (node.kind, node.mode) for node in layout.nodes}
    assert kinds == {
        "/x": ("directory", None), "/x/y": ("directory", None), "/x/y/z": ("directory", None),
        "/x/f": ("file", None), "/t": ("directory", 0o700),
    }  # fmt: skip
    assert [node.path for node in layout.nodes] == ["/t", "/x", "/x/f", "/x/y", "/x/y/z"]


def test_below_a_tmpfs_the_runtime_makes_it() -> None:
    layout = make_layout()
    layout.add_tmpfs(Tmpfs(target="/tmp", size_bytes=1, inodes=1))
    layout.add_bind(Bind(source="/tmp/a b", target="/tmp/a b", read_only=False))
    assert [node.path for node in layout.nodes] == ["/tmp"]


ENTRIES = (Entry(name="kept", kind="directory"), Entry(name="link", kind="symlink", target="kept"))


def test_a_read_only_bind_is_opened() -> None:
    layout = make_layout(Bind(source="/v", target="/v", read_only=True), v=ENTRIES)
    layout.add_bind(Bind(source="/n", target="/v/new/place", read_only=False))
    assert [(bind.source, bind.target) for bind in layout.binds] == [
        ("/v/kept", "/v/kept"), ("/n", "/v/new/place")
    ]  # fmt: skip
    assert {node.path: node.kind for node in layout.nodes} == {
        "/v": "directory", "/v/kept": "directory", "/v/link": "symlink",
        "/v/new": "directory", "/v/new/place": "directory",
    }  # fmt: skip


def test_a_symlink_in_the_way_is_refused() -> None:
    layout = make_layout(Bind(source="/v", target="/v", read_only=True), v=ENTRIES)
    with pytest.raises(ConfigError, match="nothing can be mounted"):
        layout.add_bind(Bind(source="/n", target="/v/link/x", read_only=False))


def test_a_directory_of_too_many_entries_is_refused() -> None:
    many = tuple(Entry(name=f"e{n}", kind="file") for n in range(600))
    layout = make_layout(Bind(source="/v", target="/v", read_only=True), v=many)
    with pytest.raises(ConfigError, match="cannot be mounted"):
        layout.add_bind(Bind(source="/n", target="/v/new", read_only=False))


def test_links_are_repeated_or_bound_at_their_other_name() -> None:
    bind = Bind(source="/real/p", target="/real/p", read_only=False)
    link = Link(path="/links/two", target="/real", rest="p")
    layout = make_layout()
    layout.add_bind(bind)
    layout.add_link(link, bind)
    assert Node(kind="symlink", path="/links/two", content="/real") in layout.nodes
    scratch = make_layout()
    scratch.add_tmpfs(Tmpfs(target="/links", size_bytes=1, inodes=1))
    scratch.add_bind(bind)
    scratch.add_link(link, bind)
    assert [row.target for row in scratch.binds] == ["/links/two/p", "/real/p"]
    shown = make_layout(Bind(source="/links", target="/links", read_only=True))
    shown.add_link(link, bind)
    assert [row.target for row in shown.binds] == ["/links"]


def test_a_working_directory_is_made_where_nothing_provides_it() -> None:
    layout = make_layout(Bind(source="/usr", target="/usr", read_only=True))
    layout.add_node(Node(kind="symlink", path="/bin", content="usr/bin"))
    for path in ("/", "/usr/x", "/bin/x", "/new/place"):
        layout.add_workdir(path)
    assert {node.path for node in layout.nodes} == {"/usr", "/bin", "/new", "/new/place"}


# ------------------------------------------------------------------------------------- runtimes
SELECTIONS: list[tuple[tuple[str, ...], tuple[Any, ...], Any]] = [
    ((), (RUNC, CRUN), CRUN),
    (("auto",), (RUNC,), RUNC),
    (("auto",), (CRUN, NEW_CRUN, NEW_RUNC), NEW_CRUN),
    (("runc",), (CRUN, RUNC, NEW_RUNC), NEW_RUNC),
    (("youki", "runc"), (CRUN, RUNC), RUNC),
    (("/usr/sbin/runc",), (NEW_RUNC, RUNC), RUNC),
    (("/usr//sbin/../sbin/runc",), (NEW_RUNC, RUNC), RUNC),
    (("/nowhere", "crun"), (CRUN,), CRUN),
]


@pytest.mark.parametrize(("names", "found", "chosen"), SELECTIONS)
def test_selection(names: tuple[str, ...], found: tuple[Any, ...], chosen: Any) -> None:
    assert select_runtime(Wanted(names), make_host(runtimes=found)) == chosen


@pytest.mark.parametrize("names", [("youki",), ("/nowhere",), ("nonsense",), ("youki", "/x")])
def test_no_selection(names: tuple[str, ...]) -> None:
    with pytest.raises(RuntimeMissing) as raised:
        select_runtime(Wanted(names), HOST)
    assert "/usr/bin/crun" in raised.value.why
    assert raised.value.remedy


VERSIONS = {
    "1.1.5+ds1": (1, 1, 5), "1.5.2-rc.1+x": (1, 5, 2), "v1.2": (1, 2), "1": (1,), "x": (), "": (),
    "1.5.x": (1, 5), "1..5": (1,), ".5": (), "1.5.": (1, 5),
    "release-20260907.0": (20260907, 0), "0.0~20221219.0": (20221219, 0), "VERSION_MISSING": (),
}  # fmt: skip


@pytest.mark.parametrize(("text", "numbers"), VERSIONS.items())
def test_versions(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers


def test_quirks() -> None:
    assert find_quirks("crun", "1.8.1").idmapped_mounts is False
    assert find_quirks("crun", "1.28").idmapped_mounts is True
    assert find_quirks("runc", "1.1.12").idmapped_mounts is False
    assert find_quirks("runc", "1.10.0").idmapped_mounts is True
    with pytest.raises(KeyError):
        find_quirks("bash", "5")
    for name in {row.name for row in TABLE}:
        since = [row.since for row in TABLE if row.name == name]
        assert since == sorted(since, reverse=True), "the newest row first"
        assert since[-1] == (0,), "some row fits every version"
    assert set(AUTO_ORDER) <= {row.name for row in TABLE}


# --------------------------------------------------------------------------------------- ids
def test_the_caller_is_uid_0_inside() -> None:
    for runtime in (CRUN, RUNC):
        quirks = find_quirks(runtime.name, runtime.version)
        who, entry, warnings = choose_identity(None, HOST, quirks, "none", own_root=True)
        assert [(row.container, row.host, row.size) for row in who.uid_map] == [(0, 1000, 1)]
        assert entry.state is EnforcementState.ENFORCED
        assert not warnings


def test_another_id() -> None:
    crun, runc = find_quirks("crun", "1.8.1"), find_quirks("runc", "1.1.5")
    who, _, _ = choose_identity("33:34", HOST, crun, "user", own_root=True)
    assert [(row.container, row.host, row.size) for row in who.uid_map] == [(33, 0, 1)]
    assert [(row.container, row.host, row.size) for row in who.gid_map] == [(34, 0, 1)]
    with pytest.raises(Unsupported, match="33") as raised:
        choose_identity("33", HOST, runc, "none", own_root=True)
    assert "newuidmap" in raised.value.why
    helped = make_host(
        newuidmap="/usr/bin/newuidmap", newgidmap="/usr/bin/newgidmap",
        subordinate_uids=(RANGE,), subordinate_gids=(RANGE,),
    )  # fmt: skip
    who, _, _ = choose_identity("33", helped, runc, "none", own_root=True)
    rows = [(row.container, row.host, row.size) for row in who.uid_map]
    assert rows == [(0, 1000, 1), (1, 100000, 65536)]
    with pytest.raises(Unsupported, match="not mapped"):
        choose_identity("65537", helped, runc, "none", own_root=True)


# ------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize("hierarchy", ["hybrid", "v1", "none"])
@pytest.mark.parametrize(
    ("name", "limits"),
    [("memory", {"memory_bytes": 1 << 30}), ("pids", {"pids": 9}), ("cpus", {"cpus": 1.0})],
)
def test_demands_are_refused_and_wishes_declared(
    hierarchy: str, name: str, limits: dict[str, Any]
) -> None:
    host = make_host(
        cgroups=Cgroups.model_validate({"hierarchy": hierarchy}), runtimes=(CRUN, RUNSC)
    )
    config = SandboxConfig(workspace="/srv/work", limits=limits)
    with pytest.raises(Unsupported, match=name) as raised:
        resolve(config, host)
    assert raised.value.why == find_scene(host).seen
    assert raised.value.remedy.startswith(find_scene(host).remedy)
    for allowed in (name, "all"):
        container = resolve(config.updated({"allow_degraded": [allowed]}), host)
        assert container.enforcement[name].state is EnforcementState.UNSUPPORTED
    with pytest.raises(Unsupported):
        resolve(config.updated({"allow_degraded": ["io"]}), host)
    wished = resolve(SandboxConfig(workspace="/srv/work", preset="locked-down"), host)
    assert wished.enforcement[name].state is EnforcementState.UNSUPPORTED
    assert wished.enforcement[name].requested


NOFILE = "RLIMIT_NOFILE"
RLIMITS = [
    ((100, 100), (-1, -1), (100, 100)), ((-1, -1), (50, 60), (60, 60)),
    ((10, 70), (50, 60), (10, 60)), ((-1, -1), (-1, -1), (-1, -1)),
]  # fmt: skip


@pytest.mark.parametrize(("wish", "own", "expected"), RLIMITS)
def test_wished_rlimits_are_cut(
    wish: tuple[int, int], own: tuple[int, int], expected: tuple[int, int]
) -> None:
    rows, entry = choose_rlimits({NOFILE: wish}, {}, make_host(rlimits={NOFILE: own}))
    assert rows == {NOFILE: expected}
    assert entry is not None


@pytest.mark.parametrize("hard", [-1, 61])
def test_a_demanded_rlimit_above_the_callers_is_refused(hard: int) -> None:
    with pytest.raises(ConfigError, match="60"):
        choose_rlimits({}, {NOFILE: (1, hard)}, make_host(rlimits={NOFILE: (50, 60)}))
