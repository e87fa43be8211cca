"""Where a payload may write by Landlock, and what is declared of it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.config import SandboxConfig
from ocisbx.container.files import Files
from ocisbx.container.landlock import CALLS, writable_paths
from ocisbx.container.model import Bind, ContainerConfig, HostSide, Root, Tmpfs
from ocisbx.container.paths import is_below
from ocisbx.container.resolve import resolve
from ocisbx.host import PathFact, PathKind
from ocisbx.result import EnforcementState
from ocisbx.specgen.build import build_spec
from tests.unit.hosts import CRUN, directory, make_host

ENFORCED, PARTIAL, UNSUPPORTED = EnforcementState
SCRATCH = ("/dev", "/proc", "/root", "/srv/work", "/tmp")


def resolved(abi: int | None = 7, texts: dict[str, str] | None = None, **fields: Any) -> Any:
    paths = {
        "/srv/work": directory("/srv/work"),
        "/srv/data": directory("/srv/data"),
        "/srv/file": PathFact(kind=PathKind.FILE, real="/srv/file"),
        "/srv/root": directory("/srv/root"),
    }
    runtime = CRUN.model_copy(update={"landlock_abi": abi})
    host = make_host(runtimes=(runtime,), paths=paths, texts=texts or {})
    host.listings["/srv/root"] = ()
    return resolve(SandboxConfig.build(fields), host)


def args(container: ContainerConfig) -> tuple[str, ...]:
    spec = build_spec(container, root="/r", argv=["true"], environment=["A=1"])
    assert spec.process is not None
    return spec.process.args or ()


def test_the_default() -> None:
    container = resolved()
    assert container.confinement.writable_paths == SCRATCH
    rules = [word for path in SCRATCH for word in ("-w", path)]
    assert args(container) == ("/.ocisbx/init", *rules, "--", "true")


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"workspace": "none"}, {"/dev", "/proc", "/root", "/tmp"}),
        ({"workspace": ":ro"}, {"/dev", "/proc", "/root", "/tmp"}),
        ({"volumes": ["/srv/data:/data", "/srv/file:/f"]}, {*SCRATCH, "/data", "/f"}),
        ({"volumes": ["/srv/data:/data:ro"]}, {*SCRATCH}),
        ({"volumes": ["/srv/data:/tmp/data"]}, {*SCRATCH}),
        ({"tmpfs": {"/scratch": None, "/srv/work/build": None}}, {*SCRATCH, "/scratch"}),
        ({"volumes": ["/srv/data:/tmpdir"]}, {*SCRATCH, "/tmpdir"}),
        ({"rootfs": "/srv/root", "isolation": {"read_only_root": False}}, {"/"}),
        ({"isolation": {"read_only_root": False}}, {"/"}),
    ],
)
def test_what_the_mounts_leave_writable(fields: dict[str, Any], paths: set[str]) -> None:
    found = resolved(**fields).confinement.writable_paths
    assert set(found) == paths
    assert len(found) == len(paths)


PLACES = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(lambda p: "/" + "/".join(p))


@given(st.lists(st.tuples(PLACES, st.booleans())), st.lists(PLACES))
def test_every_writable_place_is_covered_once(
    binds: list[tuple[str, bool]], scratch: list[str]
) -> None:
    files = Files(
        root=Root(directory=None, read_only=True, nodes=()),
        binds=tuple(Bind(source="/s", target=at, read_only=ro) for at, ro in binds),
        tmpfs=tuple(Tmpfs(target=at, size_bytes=1, inodes=1) for at in scratch),
        workdir="/",
        host_side=HostSide(),
        enforcement={},
    )
    found = writable_paths(files)
    wanted = {"/dev", "/proc", *scratch, *(at for at, read_only in binds if not read_only)}
    assert set(found) <= wanted
    for path in wanted:
        assert sum(is_below(path, rule) for rule in found) == 1


class Declared(NamedTuple):
    """`abi` -> what is declared; of `OPEN` the last `open_parts` are named as not covered."""

    abi: int | None
    state: EnforcementState
    actual: bool | None
    open_parts: int = 0


OPEN = ("truncating by path", "ioctl on devices", "abstract sockets and signals across")
DECLARED = [
    Declared(None, UNSUPPORTED, None),
    Declared(0, UNSUPPORTED, actual=False),
    Declared(1, UNSUPPORTED, actual=False),
    Declared(2, PARTIAL, actual=True, open_parts=3),
    Declared(3, PARTIAL, actual=True, open_parts=2),
    Declared(4, PARTIAL, actual=True, open_parts=2),
    Declared(5, PARTIAL, actual=True, open_parts=1),
    Declared(6, ENFORCED, actual=True),
    Declared(7, ENFORCED, actual=True),
    Declared(99, ENFORCED, actual=True),
]


@pytest.mark.parametrize("declared", DECLARED, ids=lambda one: str(one.abi))
def test_what_is_declared(declared: Declared) -> None:
    container = resolved(declared.abi)
    entry = container.enforcement["landlock"]
    assert (entry.requested, entry.actual, entry.state) == (True, declared.actual, declared.state)
    named = [part for part in OPEN if part in entry.how]
    assert named == list(OPEN[len(OPEN) - declared.open_parts :])
    assert ("not covered" in entry.how) == bool(named)
    if declared.abi:
        assert f"ABI {declared.abi}" in entry.how
    # Unknown is tried: the init sets what the kernel has.
    tried = declared.abi is None or declared.actual
    assert (container.confinement.writable_paths is not None) == tried


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"isolation": {"no_new_privileges": False}}, "no_new_privileges"),
        ({"isolation": {"capabilities": ["+CAP_SYS_ADMIN"]}}, "CAP_SYS_ADMIN"),
    ],
)
def test_what_stands_in_its_way(fields: dict[str, Any], words: str) -> None:
    container = resolved(**fields)
    entry = container.enforcement["landlock"]
    assert (entry.requested, entry.actual, entry.state) == (True, False, UNSUPPORTED)
    assert words in entry.how
    assert container.confinement.writable_paths is None
    assert args(container) == ("/.ocisbx/init", "--", "true")


@pytest.mark.parametrize("level", ["baseline", "privileged"])
def test_weaker_levels_have_none(level: str) -> None:
    container = resolved(isolation={"level": level})
    entry = container.enforcement["landlock"]
    assert (entry.requested, entry.actual, entry.state) == (False, False, ENFORCED)
    assert container.confinement.writable_paths is None


def profile(default: str, *rules: dict[str, Any]) -> str:
    return json.dumps({"defaultAction": f"SCMP_ACT_{default}", "syscalls": rules})


def rule(action: str, *names: str) -> dict[str, Any]:
    return {"names": names, "action": f"SCMP_ACT_{action}"}


PROFILES = {
    profile("ALLOW"): True,
    profile("LOG"): True,
    profile("ERRNO"): False,
    profile("ERRNO", rule("ALLOW", "read", *CALLS)): True,
    profile("ERRNO", *({"name": call, "action": "SCMP_ACT_ALLOW"} for call in CALLS)): True,
    profile("ERRNO", rule("ALLOW", *CALLS[:2])): False,
    profile("ALLOW", rule("ERRNO", CALLS[2])): False,
}


@pytest.mark.parametrize("text", PROFILES)
def test_a_profile_of_the_callers_may_not_let_it_be(text: str) -> None:
    container = resolved(texts={"/p.json": text}, isolation={"seccomp": "/p.json"})
    assert (container.confinement.writable_paths is not None) == PROFILES[text]
    if not PROFILES[text]:
        assert "seccomp" in container.enforcement["landlock"].how


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["defaultAction", "syscalls", "names", "name", "action"]), inner
        )
    ),
)


@given(JSON.map(json.dumps) | st.text())
def test_what_is_no_profile_is_left_to_its_reader(text: str) -> None:
    resolved(texts={"/p.json": text}, isolation={"seccomp": "/p.json"})
