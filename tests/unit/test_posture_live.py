"""Judgements by what /proc says: what the container lacks is named, loudly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.posture.facts import Shown
from ocisbx.posture.judge import Posture, judge
from ocisbx.posture.live import host_path, live_facts
from tests.unit.posture_cases import (
    CALLER,
    HELD,
    HOST,
    OWN,
    OWN_NAMESPACES,
    SOUND,
    container_mounts,
    document,
    edited,
    entry,
    facts,
    mount,
    mounted,
    of_host,
    row,
    seen,
    subject,
)

if TYPE_CHECKING:
    from ocisbx.probe.container import Mount


def live(config: dict[str, Any] | None = None, **changes: Any) -> Posture:
    config = config or document()
    return judge(subject(config, live_facts(seen(**changes), facts(config), OWN)), live=10)


def with_mount(*mounts: Mount) -> dict[str, Any]:
    made = container_mounts() | {one.point: one for one in mounts}
    return {"mounts": tuple(made.values())}


def device(point: str, **other: Any) -> Mount:
    told = {"root": "/null", "type": "devtmpfs", "device": "0:5"}
    return mount(point, "rw", **(told | other))


def test_a_sound_container_matches_its_config() -> None:
    posture = live()
    assert posture.mismatches == ()
    assert {one.name for one in posture.rows if one.warning} == {"cpus"}
    assert {one.name for one in posture.rows if one.source != "live"} == {
        "kernel", "memory", "swap", "cpus", "pids", "timeout", "environment",
    }  # fmt: skip
    assert row(posture, "host_writable").holds == "/home/ada/project"
    assert row(posture, "user_namespace").holds == f"uid 0 inside is uid {CALLER} on this machine"


def test_single_files_of_the_host_s_dev_may_be_slaves() -> None:
    """As runc binds them where systemd shares /dev: nothing can be mounted below a file."""
    slave = ("master:2",)
    devices = [device(point, propagation=slave) for point in ("/dev/null", "/proc/keys")]
    assert live(**with_mount(*devices)).mismatches == ()


MISMATCHES: list[tuple[str, dict[str, Any], str]] = [
    ("user_namespace", {"namespaces": OWN_NAMESPACES | {"user": False}}, "user namespace"),
    ("capabilities", {"status": HELD._replace(capabilities=1 << 21)}, "CAP_SYS_ADMIN"),
    ("no_new_privileges", {"status": HELD._replace(no_new_privileges=False)}, "does not have it"),
    ("seccomp", {"status": HELD._replace(seccomp=0)}, "has not set one"),
    ("namespaces", {"namespaces": OWN_NAMESPACES | {"pid": False}}, "this machine's: pid"),
    ("network", {"namespaces": OWN_NAMESPACES | {"network": False}}, "network namespace"),
    ("read_only_root", with_mount(of_host("/", "rw", "/cache/views/x")), "can write it"),
    ("host_writable", with_mount(of_host("/usr", "rw,nosuid,nodev")), "asks for read-only"),
    ("host_writable", with_mount(of_host("/usr/x", "rw,nosuid,nodev")), "asks for read-only"),
    ("host_writable", with_mount(of_host("/srv", "ro,nosuid,nodev")), "does not ask for"),
    ("host_writable", with_mount(of_host("/usr", "ro,nosuid,nodev", "/evil")), "names /usr"),
    ("mount_flags", with_mount(of_host("/usr", "ro,nosuid")), "weaker than config.json"),
    ("mount_flags", with_mount(mount("/tmp", SOUND, propagation=("shared:1",))), "/tmp"),
    ("mount_flags", with_mount(mount("/tmp", SOUND, propagation=("master:1",))), "/tmp"),
    (
        "mount_flags",
        with_mount(device("/dev/null", propagation=("shared:4", "master:2"))),
        "/dev/null",
    ),
    (
        "mount_flags",
        with_mount(device("/dev/pts", root="/", propagation=("master:2",))),
        "/dev/pts",
    ),
    ("mount_flags", with_mount(mount("/sys/fs/cgroup", "rw", type="cgroup2")), "/sys/fs/cgroup"),
    ("masked_paths", with_mount(mount("/proc/keys", "ro", type="proc")), "not: /proc/keys"),
    ("readonly_paths", with_mount(mount("/proc/sys", "rw", type="proc")), "/proc/sys"),
    ("devices", with_mount(mount("/dev/fuse", "rw", root="/fuse", type="devtmpfs")), "devices"),
    ("rlimits", {"rlimits": {"RLIMIT_CORE": (0, 0), "RLIMIT_NOFILE": (9, 1 << 20)}}, "nofile"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "words"), MISMATCHES)
def test_what_the_container_lacks_is_a_mismatch(
    name: str, changes: dict[str, Any], words: str
) -> None:
    posture = live(**changes)
    assert {text.partition(":")[0] for text in posture.mismatches} == {name}
    assert words in row(posture, name).mismatch
    assert posture.worst[0].startswith(f"MISMATCH {name}: ")


@pytest.mark.parametrize(
    ("name", "changes", "state", "words"),
    [
        ("network", {"interfaces": ("lo", "eth0")}, "partial", "eth0"),
        ("groups", {"status": HELD._replace(groups=(CALLER, 27))}, "partial", "of the caller"),
        ("descriptors", {"foreign_files": ("4 -> /etc",)}, "off", "4 -> /etc"),
        ("oom_score_adj", {"oom_score_adj": -500}, "off", "spares it"),
        ("memory", {"cgroup_limits": {}}, "off", "memory"),
    ],
)  # fmt: skip
def test_what_only_a_container_shows(
    name: str, changes: dict[str, Any], state: str, words: str
) -> None:
    found = row(live(**changes), name)
    assert (found.state, found.source) == (state, "live")
    assert words in found.warning


def test_limits_of_a_cgroup() -> None:
    config = edited(
        "linux", "resources", value={"memory": {"limit": 1 << 30}, "pids": {"limit": 9}}
    )
    held = {"memory": float(1 << 30), "pids": 9.0, "cpus": None, "swap": None}
    posture = live(config, cgroup_limits=held)
    assert posture.mismatches == ()
    assert row(posture, "memory").holds == "at most 1 GiB"
    assert row(posture, "pids").holds == "at most 9 processes and threads"
    for lost in ({}, held | {"memory": None}, held | {"memory": float(2 << 30)}):
        assert row(live(config, cgroup_limits=lost), "memory").mismatch, lost
    assert row(live(config), "memory")[1:3] == ("enforced", "spec")


def test_limits_that_only_the_driver_wrote_are_looked_for() -> None:
    wrote = {"memory": entry("enforced", 1 << 30, "memory.max=1073741824 of the cgroup")}
    config = edited("linux", "resources", value=None)

    def judged(**limits: float | None) -> Any:
        found = live_facts(seen(cgroup_limits=limits), facts(config), OWN)
        return row(judge(subject(config, found, enforcement=wrote)), "memory")

    assert judged(memory=float(1 << 30))[1:4] == ("enforced", "live", "at most 1 GiB")
    assert not judged(memory=float(1 << 29)).mismatch
    assert judged(memory=None).mismatch == "a limit was set, and the container's cgroup has none"
    assert judged(memory=float(2 << 30)).mismatch == "1 GiB was asked for"


def test_a_security_module() -> None:
    assert row(live(security_label="unconfined"), "security_module").state == "off"
    config = edited("process", "apparmorProfile", value="box")
    assert row(live(config, security_label="box (enforce)"), "security_module").mismatch == ""
    posture = live(config, security_label="unconfined")
    assert row(posture, "security_module").mismatch == "config.json asks for box"


def test_what_this_kernel_does_not_have_needs_no_mask() -> None:
    posture = live(existing=frozenset({"/proc/keys", "/proc/acpi", "/proc/sys", "/proc/kcore"}))
    assert row(posture, "masked_paths").mismatch.endswith("/proc/kcore")


def test_where_a_mount_of_the_host_lies() -> None:
    assert host_path(of_host("/x", "ro", "/home/a"), HOST) == "/home/a"
    assert host_path(of_host("/x", "ro", "/"), HOST) == "/"
    assert host_path(mount("/x", "ro", device="8:1", root="/sub"), HOST) == "/data/sub"
    assert host_path(mount("/x", "ro", device="8:1"), HOST) == "/data"
    assert host_path(mount("/x", "ro"), HOST) is None


def test_a_mount_below_another_comes_with_it() -> None:
    config = mounted(destination="/a", type="bind", source="/a", options=["nosuid", "nodev"])
    changes = with_mount(of_host("/a", "rw,nosuid,nodev"), of_host("/a/b", "rw,nosuid,nodev"))
    shown = live_facts(seen(**changes), facts(config), OWN).shown or ()
    assert Shown("/a", "/a", writable=True) in shown
    assert not any(one.target == "/a/b" for one in shown)
