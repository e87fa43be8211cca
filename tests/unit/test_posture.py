"""Judgements by config.json and the driver's word: each weakness is named where it stands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.posture.judge import judge
from ocisbx.posture.prompt import prompt
from tests.unit.posture_cases import (
    BUNDLES,
    CALLER,
    document,
    edited,
    entry,
    facts,
    mounted,
    row,
    subject,
    without_namespace,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_the_default_container_has_no_weakness_but_limits() -> None:
    posture = judge(subject(document()))
    assert posture.mismatches == ()
    weak = {one.name for one in posture.rows if one.warning}
    assert weak == {"cpus"}
    assert posture.worst[-1] == "it writes /home/ada/project"
    assert (posture.tier, posture.live) == ("namespace", None)
    assert {one.source for one in posture.rows} == {"spec", "declared"}


PROFILE = {"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64"]}
OPEN = [{"names": ["read", "mount", "bpf"], "action": "SCMP_ACT_ALLOW"}]
WEAKENED: list[tuple[str, dict[str, Any], str, str]] = [
    ("user_namespace", without_namespace("user"), "off", "users are this machine's own"),
    (
        "user_namespace",
        edited("linux", "uidMappings", value=[{"containerID": 0, "hostID": 0, "size": 1}]),
        "partial",
        "this machine's root",
    ),
    (
        "capabilities",
        edited("process", "capabilities", "bounding", value=["CAP_SYS_ADMIN"]),
        "partial",
        "within its own user namespace",
    ),
    ("no_new_privileges", edited("process", "noNewPrivileges", value=False), "off", "setuid"),
    ("seccomp", edited("linux", "seccomp", value=None), "off", "every system call"),
    (
        "seccomp",
        edited("linux", "seccomp", value={"defaultAction": "SCMP_ACT_ALLOW"}),
        "partial",
        "did not think of",
    ),
    (
        "seccomp",
        edited("linux", "seccomp", value=PROFILE | {"syscalls": OPEN}),
        "partial",
        "refuses: mount, bpf",
    ),
    ("namespaces", without_namespace("pid"), "partial", "sees this machine's processes"),
    ("namespaces", without_namespace("ipc"), "partial", "System V"),
    ("namespaces", without_namespace("uts"), "partial", "host name"),
    ("namespaces", without_namespace("mount"), "partial", "unmounts"),
    ("namespaces", without_namespace("cgroup"), "partial", "cgroups"),
    ("network", without_namespace("network"), "off", "abstract unix sockets"),
    (
        "host_writable",
        mounted(destination="/etc", type="bind", source="/etc", options=["nosuid", "nodev"]),
        "partial",
        "the whole system: /etc",
    ),
    ("read_only_root", edited("root", "readonly", value=False), "off", "replace the programs"),
    (
        "mount_flags",
        mounted(destination="/x", type="bind", source="/x", options=["ro", "nodev"]),
        "partial",
        "count on /x",
    ),
    (
        "mount_flags",
        mounted(destination="/x", type="tmpfs", options=["nosuid", "nodev", "rshared"]),
        "partial",
        "both sides at /x",
    ),
    ("mount_flags", edited("linux", "rootfsPropagation", value="rslave"), "partial", "sides at /"),
    (
        "mount_flags",
        mounted(destination="/sys", type="sysfs", options=["nosuid"]),
        "partial",
        "written at /sys",
    ),
    ("masked_paths", edited("linux", "maskedPaths", value=["/proc/keys"]), "partial", "/proc/acpi"),
    ("masked_paths", edited("linux", "maskedPaths", value=[]), "off", "not hidden"),
    ("readonly_paths", edited("linux", "readonlyPaths", value=[]), "off", "/proc/sys"),
    (
        "devices",
        edited("linux", "devices", value=[{"path": "/dev/fuse", "type": "c"}]),
        "partial",
        "/dev/fuse",
    ),
    ("rlimits", edited("process", "rlimits", value=[]), "partial", "a crash writes"),
    (
        "scratch",
        mounted(destination="/big", type="tmpfs", options=["nosuid", "nodev"]),
        "partial",
        "bounds what it writes to /big",
    ),
    ("environment", edited("process", "env", value=["GH_TOKEN=x"]), "enforced", "GH_TOKEN"),
    ("oom_score_adj", edited("process", "oomScoreAdj", value=-900), "off", "spares it"),
]


@pytest.mark.parametrize(("name", "config", "state", "words"), WEAKENED)
def test_each_weakness_is_named(name: str, config: dict[str, Any], state: str, words: str) -> None:
    posture = judge(subject(config))
    found = row(posture, name)
    assert (found.state, found.source) == (state, "spec")
    assert words in found.warning
    assert any(line.startswith(f"{name}: ") for line in posture.worst)


def test_root_without_a_user_namespace_is_root() -> None:
    config = without_namespace("user")
    assert "whatever gets out is root" in row(judge(subject(config)), "user_namespace").warning
    config = edited("process", "capabilities", "effective", value=["CAP_CHOWN"])
    config["linux"]["namespaces"] = without_namespace("user")["linux"]["namespaces"]
    assert "ON THIS MACHINE" in row(judge(subject(config)), "capabilities").warning


def test_the_cell_s_root_is_the_caller() -> None:
    config = document("hybrid-cgroups")
    assert config["linux"]["uidMappings"][0]["hostID"] == 0
    plain, cell = facts(config).identity, facts(config, cell=True).identity
    assert plain is not None
    assert cell is not None
    assert (plain.outside, cell.outside) == (0, CALLER)


@pytest.mark.parametrize("path", sorted(BUNDLES.glob("*/config.json")), ids=lambda p: p.parent.name)
def test_every_example_is_judged(path: Path) -> None:
    posture = judge(subject(json.loads(path.read_text())))
    assert posture.mismatches == ()
    assert len({one.name for one in posture.rows}) == len(posture.rows)
    assert json.dumps(posture.to_dict())


# --------------------------------------------------------------------------------------- declared
# A single run's: the driver writes the limits.
UNNAMED = edited("linux", "resources", value=None)


def test_limits_that_do_not_hold_say_why() -> None:
    posture = judge(
        subject(UNNAMED, enforcement={"memory": entry("unsupported", None, "hybrid cgroups")})
    )
    found = row(posture, "memory")
    assert (found.state, found.source, found.holds) == ("unsupported", "declared", "not limited")
    assert found.warning == "it can use up this machine's memory: hybrid cgroups"
    assert not any(one.name in ("io", "swap") for one in posture.rows)


MADE_BY_US = {
    "memory": entry("enforced", 1 << 30, "memory.max=1073741824, memory.swap.max=0 of the cgroup"),
    "cpus": entry("partial", 0.5, "cpu.max=50000 100000 of the cgroup; not cpuset: no controller"),
    "pids": entry("enforced", 64, "pids.max=64 of the cgroup"),
    "io": entry("enforced", "8:0: read_bps=5", "io.max=8:0 rbps=5 of the cgroup"),
}


def test_limits_of_a_cgroup_that_config_json_does_not_name() -> None:
    posture = judge(subject(UNNAMED, enforcement=MADE_BY_US))
    shown = {name: row(posture, name) for name in (*MADE_BY_US, "swap")}
    assert {one.source for one in shown.values()} == {"declared"}
    assert shown["memory"].holds == "at most 1 GiB"
    assert shown["swap"].holds == "at most 0 bytes"
    assert shown["cpus"].holds == "at most 0.5 processors"
    assert shown["pids"].holds == "at most 64 processes and threads"
    assert shown["io"].holds == "8:0: read_bps=5"
    assert [name for name, one in shown.items() if one.warning] == ["cpus"]
    assert (shown["cpus"].state, shown["memory"].state) == ("partial", "enforced")
    assert "not cpuset: no controller" in shown["cpus"].warning
    text = prompt(subject(UNNAMED, enforcement=MADE_BY_US))
    assert "at most 1 GiB, 0.5 processors, 64 processes and threads" in text


def test_a_share_is_no_limit() -> None:
    weighed = {"cpus": entry("enforced", 50, "cpu.weight=50 of the container's cgroup")}
    found = row(judge(subject(UNNAMED, enforcement=weighed)), "cpus")
    assert (found.state, found.source, found.holds) == ("enforced", "declared", "50")


def test_what_only_the_driver_knows_is_listed() -> None:
    declared = {
        "landlock": entry("partial", "ABI 3", "no rule for ioctl"),
        "filesystem": entry("enforced", "deny_write .git/hooks"),
        "io": entry("enforced", "1M/s"),
    }
    posture = judge(subject(document(), enforcement=declared, timeout_s=600.0))
    assert row(posture, "landlock")[1:4] == ("partial", "declared", "ABI 3")
    assert "no rule for ioctl" in row(posture, "landlock").warning
    assert row(posture, "filesystem").holds == "deny_write .git/hooks"
    assert row(posture, "io")[1:4] == ("enforced", "declared", "1M/s")
    assert row(posture, "timeout").holds == "ended after 600 s"


@pytest.mark.parametrize(
    ("name", "actual", "config"),
    [
        ("network", "none", without_namespace("network")),
        ("seccomp", "default", edited("linux", "seccomp", value=None)),
        ("no_new_privileges", True, edited("process", "noNewPrivileges", value=False)),
        ("read_only_root", True, edited("root", "readonly", value=False)),
        ("capabilities", "none", edited("process", "capabilities", "bounding", value=["CAP_KILL"])),
        ("user_namespace", "uid map 0->1000+1", without_namespace("user")),
    ],
)
def test_a_bundle_that_was_weakened_since_is_a_mismatch(
    name: str, actual: object, config: dict[str, Any]
) -> None:
    declared = {name: entry("enforced", actual)}
    assert judge(subject(document(), enforcement=declared)).mismatches == ()
    (found,) = judge(subject(config, enforcement=declared)).mismatches
    assert found.startswith(f"{name}: ocisbx declared {actual}")


def test_what_was_asked_to_be_open_is_no_mismatch() -> None:
    declared = {"network": entry("enforced", "host"), "capabilities": entry("enforced", "CAP_KILL")}
    config = edited("process", "capabilities", "bounding", value=["CAP_KILL"])
    config["linux"]["namespaces"] = without_namespace("network")["linux"]["namespaces"]
    assert judge(subject(config, enforcement=declared)).mismatches == ()


def test_a_kernel_of_its_own() -> None:
    posture = judge(subject(document(), enforcement={"kernel": entry("enforced", "own", "runsc")}))
    assert posture.tier == "user_kernel"
    assert row(posture, "kernel")[1:5] == ("enforced", "declared", "a kernel of its own", "runsc")
