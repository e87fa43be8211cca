"""What every container is given by default to lose less: limits, namespaces, groups, places."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.config import SandboxConfig
from ocisbx.container.limits import NPROC
from ocisbx.container.paths import KERNEL_TREES
from ocisbx.container.resolve import resolve
from ocisbx.errors import ConfigError
from ocisbx.host import Entry, Host
from ocisbx.presets import PRESETS
from ocisbx.probe.gather import gather
from ocisbx.result import EnforcementState
from ocisbx.specgen.build import build_spec
from tests.unit.hosts import CRUN, NEW_CRUN, NEW_RUNC, RANGE, RUNC, RUNSC, directory, make_host

if TYPE_CHECKING:
    from pathlib import Path

    from ocisbx.container.model import ContainerConfig


def resolved(host: Host, **fields: Any) -> ContainerConfig:
    return resolve(SandboxConfig(**({"workspace": "/srv/work"} | fields)), host)


def spec_of(container: ContainerConfig) -> Any:
    words = {"root": "r", "argv": ["a"], "environment": ["e"]}
    return json.loads(build_spec(container, **words).to_json())  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------- rlimits
@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"yolo"}))
def test_every_preset_bounds_processes_files_and_descriptors(preset: str) -> None:
    fields = {"preset": preset, "allow_degraded": ["kernel"]}
    rows = resolved(make_host(), **fields).confinement.rlimits
    assert rows["RLIMIT_CORE"] == (0, 0)
    for name in ("RLIMIT_NOFILE", "RLIMIT_FSIZE", NPROC):
        assert 0 < rows[name][0] <= rows[name][1], name
    assert rows[NPROC][0] == PRESETS[preset].fields["limits"]["pids"]


def test_yolo_bounds_neither_processes_nor_files() -> None:
    assert set(resolved(make_host(), preset="yolo").confinement.rlimits) == {
        "RLIMIT_CORE",
        "RLIMIT_NOFILE",
    }


ALLOW_PIDS = {"allow_degraded": ["pids"]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"limits": {"pids": 77}, **ALLOW_PIDS}, (77, 77)),
        ({"limits": {"pids": "unlimited"}, **ALLOW_PIDS}, None),
        ({"limits": {"rlimits": {"nproc": [5, 6]}}}, (5, 6)),
        ({"limits": {"pids": 77, "rlimits": {"nproc": 9}}, **ALLOW_PIDS}, (9, 9)),
    ],
)
def test_processes_follow_pids(fields: dict[str, Any], expected: tuple[int, int] | None) -> None:
    assert resolved(make_host(), **fields).confinement.rlimits.get(NPROC) == expected


def test_before_5_14_processes_of_all_containers_count_together() -> None:
    old = make_host(kernel="5.13.0-1-amd64")
    assert NPROC not in resolved(old).confinement.rlimits
    asked = {"limits": {"rlimits": {"nproc": 50}}}
    assert resolved(old, **asked).confinement.rlimits[NPROC] == (50, 50)


# ------------------------------------------------------------------------------------ namespaces
@pytest.mark.parametrize(
    ("runtime", "there", "expected"),
    [
        (CRUN, True, True),
        (NEW_CRUN, True, True),
        (NEW_RUNC, True, True),
        (RUNC, True, False),
        (CRUN, False, False),
    ],
)
def test_a_time_namespace_where_runtime_and_kernel_have_it(
    runtime: Any, *, there: bool, expected: bool
) -> None:
    spec = spec_of(resolved(make_host(runtimes=(runtime,), time_namespaces=there)))
    assert ({"type": "time"} in spec["linux"]["namespaces"]) == expected
    assert "timeOffsets" not in spec["linux"]


@pytest.mark.parametrize(("own", "expected"), [(-500, 0), (0, None), (300, None)])
def test_nothing_inside_is_spared_when_memory_runs_out(own: int, expected: int | None) -> None:
    spec = spec_of(resolved(make_host(oom_score_adj=own)))
    assert spec["process"].get("oomScoreAdj") == expected


def test_terminals_are_bounded() -> None:
    mounts = spec_of(resolved(make_host()))["mounts"]
    (devpts,) = [mount for mount in mounts if mount["type"] == "devpts"]
    assert {"newinstance", "max=256"} <= set(devpts["options"])


# ---------------------------------------------------------------------------------------- groups
SUBORDINATE = {
    "newuidmap": "/usr/bin/newuidmap",
    "newgidmap": "/usr/bin/newgidmap",
    "subordinate_uids": (RANGE,),
    "subordinate_gids": (RANGE,),
}
ENFORCED, PARTIAL = EnforcementState.ENFORCED, EnforcementState.PARTIAL
GROUPS = (
    # None; what Linux lets nobody drop; what runc could drop and does not; a kernel of its own, and
    # root's runtimes, keep none.
    ({"runtimes": (RUNC,)}, None, ENFORCED, ""),
    ({"runtimes": (RUNC,), "groups": (27, 100)}, None, ENFORCED, "your supplementary groups stay"),
    ({"runtimes": (CRUN,), "groups": (27,)}, "1000", ENFORCED, "your supplementary groups stay"),
    ({"runtimes": (RUNC,), **SUBORDINATE}, "1000", PARTIAL, "all of your groups"),
    ({"runtimes": (RUNSC,), "groups": (27,), **SUBORDINATE}, "1000", ENFORCED, ""),
    ({"uid": 0, "gid": 0, "groups": (4,), "runtimes": (NEW_CRUN,)}, None, PARTIAL, "host's root"),
)


@pytest.mark.parametrize(("host", "user", "state", "words"), GROUPS)
def test_groups_that_stay_are_told(
    host: dict[str, Any], user: str | None, state: EnforcementState, words: str
) -> None:
    runtime = {"names": [host["runtimes"][0].path]}
    entry = resolved(make_host(**host), user=user, runtime=runtime).enforcement["user_namespace"]
    assert entry.state is state
    assert words in entry.how
    assert ("groups" in entry.how) == ("groups" in words)


# --------------------------------------------------------------------------------------- workdir
@pytest.mark.parametrize(
    "workdir",
    [*KERNEL_TREES, "/proc/self/fd/7", "/proc/1/cwd", "/dev/shm", "//proc/.", "/srv/../proc/self"],
)
def test_no_command_starts_in_a_kernel_tree(workdir: str) -> None:
    with pytest.raises(ConfigError, match="workdir") as raised:
        resolved(make_host(), workdir=workdir)
    assert raised.value.remedy


def test_links_of_the_root_are_followed() -> None:
    entries = (
        Entry(name="dev", kind="directory"),
        Entry(name="loop", kind="symlink", target="loop"),
        Entry(name="one", kind="symlink", target="two/fd"),
        Entry(name="two", kind="symlink", target="../proc/self"),
        Entry(name="usr", kind="directory"),
        Entry(name="work", kind="symlink", target="usr"),
    )
    host = make_host(
        paths={"/r": directory("/r"), "/srv/work": directory("/srv/work")},
        listings={"/r": entries},
    )
    for workdir in ("/one", "/two", "/one/7", "/work/../two"):
        with pytest.raises(ConfigError, match=r"which leads to /proc/self|workdir"):
            resolved(host, rootfs="/r", workdir=workdir)
    for workdir in ("/work", "/usr", "/loop", "/work/src"):
        assert resolved(host, rootfs="/r", workdir=workdir).workdir == workdir


LINKS = {
    "self": "/proc/self/cwd",
    "descriptor": "/proc/self/fd/999",
    "gone": "/proc/1/fd/no-such",
    "chain": "self",
    "climbing": "../" * 20 + "proc/self",
    "memory": "/dev/shm",
}


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("option", ["workspace", "volume"])
def test_links_in_what_is_shown_are_followed(tmp_path: Path, name: str, option: str) -> None:
    shown = tmp_path / "shown"
    (shown / "inner").mkdir(parents=True)
    (shown / "fine").symlink_to("inner")
    for link, target in LINKS.items():
        (shown / link).symlink_to(target)
    place = str(shown) if option == "workspace" else "/v"
    fields: dict[str, Any] = {"workspace": "none", "volumes": [f"{shown}:/v:ro"]}
    if option == "workspace":
        fields = {"workspace": str(shown)}

    def container(workdir: str) -> ContainerConfig:
        config = SandboxConfig(workdir=workdir, **fields)
        return resolve(config, gather(config))

    for workdir in (f"{place}/{name}", f"{place}/{name}/x", f"{place}/inner/../{name}"):
        with pytest.raises(ConfigError, match=f"workdir {place}"):
            container(workdir)
    for workdir in (place, f"{place}/inner", f"{place}/fine", f"{place}/new"):
        assert container(workdir).workdir == workdir


def test_what_is_gathered_is_what_the_kernel_says() -> None:
    host = gather(SandboxConfig(workspace="none"))
    assert host.time_namespaces == os.path.exists("/proc/self/ns/time")
    assert set(host.groups) == set(os.getgroups()) - {os.getegid()}
    assert -1000 <= host.oom_score_adj <= 1000
