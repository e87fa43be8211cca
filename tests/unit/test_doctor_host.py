"""What doctor concludes of a host, and of what gVisor needs of it: recorded hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.doctor import Severity
from ocisbx.doctor.examine import judge
from ocisbx.doctor.gvisor import missing_sidecar
from ocisbx.host import Cgroups, IdRange, RuntimeBinary
from ocisbx.quirks import UNTOLD_VERSION
from ocisbx.result import EnforcementState
from tests.unit.doctor_evidence import (
    CRUN,
    DELEGATED,
    LOST,
    OLD_RUNSC,
    OWN,
    RUNC,
    RUNSC,
    SYSTEM,
    bad,
    by_name,
    enforced,
    good,
    seen,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ocisbx.backends.trial import Trial


# ----------------------------------------------------------------------------------------- gVisor
def test_without_gvisor_there_is_no_kernel_of_ones_own() -> None:
    finding = by_name(seen(good()))["own-kernel"]
    assert finding.severity is Severity.INFORMS
    assert finding.evidence == "no runsc is on PATH or in the system's directories"
    assert "the preset locked-down refuses" in finding.consequence
    assert finding.remedy.splitlines()[0].endswith("apt-get install -y runsc")
    fedora = by_name(seen(good(), system=replace(SYSTEM, distributions=("fedora",))))["own-kernel"]
    assert fedora.remedy.splitlines()[-1].startswith("tools/install-runtimes runsc")


def test_a_gvisor_that_fails_is_quoted() -> None:
    finding = by_name(seen(good(), bad(RUNSC, "waiting for sandbox to start: EOF")))["own-kernel"]
    assert finding.evidence == (
        "runsc release-20260907.0 (/opt/runsc): waiting for sandbox to start: EOF"
    )
    assert "apt-get" not in finding.remedy


@pytest.mark.parametrize("trials", [(good(), OWN), (bad(), bad(RUNSC)), ()])
def test_where_nothing_is_to_be_said_of_own_kernels(trials: tuple[Trial, ...]) -> None:
    assert "own-kernel" not in by_name(seen(*trials))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"kernel": "5.4.0-100-generic"}, "gvisor-kernel"),
        ({"max_user_namespaces": 1}, "gvisor-namespaces"),
    ],
)
def test_what_gvisor_needs_is_said_where_it_is(fields: dict[str, Any], name: str) -> None:
    assert name not in by_name(seen(good(), **fields))
    finding = by_name(seen(good(), bad(RUNSC), **fields))[name]
    assert finding.severity is Severity.INFORMS
    assert finding.remedy
    assert "{" not in finding.evidence + finding.remedy
    assert name not in by_name(seen(good(), OWN, kernel="5.6.0", max_user_namespaces=2))


def test_a_gvisor_that_tells_no_version() -> None:
    untold = RUNSC.model_copy(update={"version": UNTOLD_VERSION})
    found = by_name(seen(good(), good(untold)))
    assert "cannot be told" in found["runtime-version-untold"].consequence
    assert "known-holes-out-of-reach" not in found
    assert "runtime-version-untold" not in by_name(seen(good(), OWN))


@pytest.mark.parametrize(("runtime", "remedy"), [(OLD_RUNSC, True), (RUNSC, False)])
def test_a_platform_that_was_passed_over(
    runtime: RuntimeBinary,
    remedy: bool,  # noqa: FBT001 -- a column of the table
) -> None:
    """A newer runsc cures one that has no systrap; nothing to paste cures a new one."""
    passed = runtime.model_copy(
        update={"platform": "ptrace", "passed_over": "systrap: unable to attach"}
    )
    finding = by_name(seen(good(), good(passed)))["platform-passed-over"]
    assert finding.evidence.endswith("systrap: unable to attach")
    assert finding.consequence.startswith("it runs on ptrace")
    assert bool(finding.remedy) is remedy
    failing = by_name(seen(good(), bad(passed, "ptrace is refused")))
    assert "platform-passed-over" not in failing
    assert "systrap: unable to attach; ptrace: ptrace is refused" in (
        failing["runtime-fails"].evidence
    )


@pytest.mark.parametrize(
    ("name", "version", "needed"),
    [
        ("runsc", "release-20260831.0", True),
        ("runsc", "release-20260907.0", True),
        ("runsc", "release-20260824.0", False),
        ("runsc", "20260905-160fafc42237", False),
        ("runsc", UNTOLD_VERSION, False),
        ("runsc", "0.0~20221219.0", False),
        ("crun", "1.28", False),
    ],
)
def test_releases_of_gvisor_have_a_program_beside_them(
    name: str,
    version: str,
    needed: bool,  # noqa: FBT001 -- a column of the table
    tmp_path: Path,
) -> None:
    place = tmp_path / "real"
    place.mkdir()
    (tmp_path / name).symlink_to(place / name)
    runtime = RuntimeBinary(name=name, path=str(tmp_path / name), version=version)
    sidecar = place / "gvisor-bin" / "gvisor_sentry"
    missing = missing_sidecar(runtime)
    assert missing == (str(sidecar) if needed else "")
    told = by_name(replace(seen(good(), good(runtime)), sidecars={runtime.path: missing}))
    assert ("gvisor-sidecar" in told) is needed
    sidecar.parent.mkdir()
    sidecar.touch(mode=0o755)
    assert missing_sidecar(runtime) == ""


# ---------------------------------------------------------------------------------------- cgroups
DOCKER = ("docker", "/.dockerenv")


# What is seen of each environment, and its remedy, are the table's (test_scenes.py).
def test_limits_that_do_not_hold_are_told_by_environment() -> None:
    own = "/system.slice/cron.service"
    cron = Cgroups(hierarchy="unified", mount="/sys/fs/cgroup", own=own, systemd=True)
    finding = by_name(seen(good(), held=LOST, cgroups=cron))["limits-not-held"]
    assert finding.severity is Severity.WEAKENS
    assert "nobody holds it (hierarchy unified, own cgroup /system.slice/cron.service: " in (
        finding.evidence
    )
    assert "no systemd user manager" in finding.evidence
    assert finding.remedy.startswith("sudo loginctl enable-linger 1000")
    assert "limits-held" not in by_name(seen(good(), held=LOST, cgroups=cron))
    unknown = by_name(seen(good(), held=LOST, cgroups=Cgroups(hierarchy="none")))
    assert "own cgroup unknown" in unknown["limits-not-held"].evidence


def test_limits_that_hold_are_told_with_those_that_do_not() -> None:
    finding = by_name(seen(good()))["limits-held"]
    assert finding.severity is Severity.INFORMS
    assert "a delegated unit of the systemd user manager" in finding.evidence
    assert finding.consequence == "limits hold that need cpu, cpuset, io, memory, pids"
    assert finding.remedy == ""
    usual = DELEGATED.model_copy(update={"controllers": ("cpu", "memory", "pids")})
    finding = by_name(seen(good(), cgroups=usual))["limits-held"]
    assert finding.consequence.endswith("memory, pids; limits that need cpuset, io do not")
    assert "delegate.conf" in finding.remedy


def test_a_manager_that_failed_is_quoted() -> None:
    failed = DELEGATED.model_copy(update={"way": "none", "trouble": "the manager: no answer"})
    finding = by_name(seen(good(), held=LOST, cgroups=failed))["limits-not-held"]
    assert "the manager: no answer" in finding.evidence
    assert finding.remedy.startswith("systemctl --user status")


@pytest.mark.parametrize("hierarchy", ["hybrid", "v1", "unified", "none"])
def test_crun_is_told_to_refuse_hybrid_cgroups(hierarchy: str) -> None:
    cgroups = Cgroups.model_validate({"hierarchy": hierarchy})
    found = by_name(seen(good(), good(RUNC), cgroups=cgroups))
    assert ("crun-hybrid" in found) is (hierarchy in ("hybrid", "v1"))
    assert "crun-hybrid" not in by_name(seen(good(RUNC), cgroups=cgroups))
    if "crun-hybrid" in found:
        assert found["crun-hybrid"].severity is Severity.INFORMS
        assert CRUN.path in found["crun-hybrid"].evidence
        assert RUNC.path not in found["crun-hybrid"].evidence


def test_limits_are_judged_by_a_runtime_that_works() -> None:
    assert "limits-not-held" not in by_name(seen(bad(CRUN)))


# --------------------------------------------------------------------------------- the host itself
@pytest.mark.parametrize(
    ("fields", "system", "cause", "remedy"),
    [
        ({"max_user_namespaces": 0}, {}, "max_user_namespaces is 0", "user.max_user_namespaces="),
        ({}, {"unprivileged_userns_clone": 0}, "unprivileged_userns_clone is 0", "userns_clone=1"),
        ({"apparmor_restricts_user_namespaces": True}, {}, "apparmor_restrict",
         "profile ocisbx-opt.real.crun /opt/real/crun flags=(unconfined) {\n  userns,\n"),
        ({}, {"container": DOCKER}, "this is a container", "docker run --security-opt"),
        ({}, {"selinux_enforcing": True}, "SELinux is enforcing", "ausearch"),
        ({}, {}, "no sysctl that says why", ""),
    ],
)  # fmt: skip
def test_why_there_are_no_user_namespaces(
    fields: dict[str, Any], system: dict[str, Any], cause: str, remedy: str
) -> None:
    evidence = seen(bad(CRUN), system=replace(SYSTEM, **system), **fields)
    refused = replace(
        evidence,
        user_namespace="unshare: Operation not permitted",
        real_paths={CRUN.path: "/opt/real/crun"},
    )
    finding = by_name(refused)
    told = finding["user-namespaces"]
    assert told.severity is Severity.BLOCKS
    assert told.evidence.startswith("unshare: Operation not permitted; ")
    assert cause in told.evidence
    assert remedy in told.remedy


def test_a_runtime_that_may_make_them_is_enough() -> None:
    evidence = replace(seen(good()), user_namespace="unshare: Permission denied")
    assert by_name(evidence)["user-namespaces"].severity is Severity.INFORMS


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"newuidmap": None}, "newuidmap is not installed"),
        ({"newgidmap": None}, "newgidmap is not installed"),
        ({"subordinate_uids": ()}, "/etc/subuid"),
        ({"subordinate_gids": (IdRange(start=1, count=9),)}, "/etc/subgid"),
        ({"system": replace(SYSTEM, helper_troubles=("/usr/bin/newuidmap is neither setuid",))},
         "newuidmap is neither setuid"),
    ],
)  # fmt: skip
def test_subordinate_ids_only_inform(fields: dict[str, Any], words: str) -> None:
    finding = by_name(seen(good(), **fields))["subordinate-ids"]
    assert finding.severity is Severity.INFORMS
    assert words in finding.evidence
    assert "apt-get install -y uidmap" in finding.remedy
    assert "usermod --add-subuids" in finding.remedy


def test_root_is_told_its_mapping() -> None:
    mapped = by_name(seen(good(), uid=0))["called-by-root"]
    assert (mapped.severity, "0->1000+1" in mapped.evidence) == (Severity.INFORMS, True)
    partial = seen(good(), uid=0, held=enforced(EnforcementState.PARTIAL))
    assert by_name(partial)["called-by-root"].severity is Severity.WEAKENS
    assert "called-by-root" not in by_name(seen(good()))


def test_programs_that_cannot_run_block() -> None:
    evidence = replace(seen(bad()), programs="/x/ocisbx-init lies on a noexec file system")
    assert by_name(evidence)["init-unusable"].severity is Severity.BLOCKS


@pytest.mark.parametrize(
    ("kernel", "system", "name", "severity"),
    [
        ("5.10.0-30-amd64", {}, "kernel-age", Severity.WEAKENS),
        ("5.13.0", {}, "kernel-age", Severity.INFORMS),
        ("6.1.0", {"yama_scope": 2}, "yama", Severity.INFORMS),
        ("6.1.0", {"yama_scope": 3}, "yama", Severity.INFORMS),
        ("6.1.0", {"selinux_enforcing": True}, "selinux", Severity.INFORMS),
        ("5.15.153.1-microsoft-standard-WSL2", {}, "wsl2", Severity.INFORMS),
        ("6.1.0", {"container": DOCKER}, "nested-container", Severity.INFORMS),
        ("6.1.0", {"xdg_runtime_dir": ""}, "runtime-directory", Severity.INFORMS),
        ("6.1.0", {"xdg_trouble": "/run/x cannot be written"}, "runtime-directory",
         Severity.INFORMS),
    ],
)  # fmt: skip
def test_facts(kernel: str, system: dict[str, Any], name: str, severity: Severity) -> None:
    evidence = seen(good(), OWN, system=replace(SYSTEM, **system), kernel=kernel)
    usual = ("runtime-works", "limits-held")
    extra = [finding for finding in judge(evidence) if finding.name not in usual]
    assert [(finding.name, finding.severity) for finding in extra] == [(name, severity)]
    assert "{" not in extra[0].evidence + extra[0].remedy
