"""What doctor concludes from what was seen: recorded hosts, without a process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.backends.trial import Trial
from ocisbx.doctor import Finding, Severity, exit_code, render
from ocisbx.doctor.evidence import Evidence
from ocisbx.doctor.examine import judge
from ocisbx.doctor.gvisor import missing_sidecar
from ocisbx.doctor.holes import HOLES, SOUND_VERSIONS, is_fixed, open_holes
from ocisbx.doctor.runtimes import IGNORED
from ocisbx.host import Cgroups, Host, IdRange, RuntimeBinary
from ocisbx.probe.system import System
from ocisbx.quirks import UNTOLD_VERSION
from ocisbx.result import Enforced, EnforcementState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CRUN = RuntimeBinary(name="crun", path="/usr/bin/crun", version="1.31")
RUNC = RuntimeBinary(name="runc", path="/usr/sbin/runc", version="1.5.3")
OLD_RUNC = RuntimeBinary(name="runc", path="/usr/sbin/runc", version="1.1.5+ds1")
YOUKI = RuntimeBinary(name="youki", path="/opt/youki", version="0.7.0")
RUNSC = RuntimeBinary(
    name="runsc", path="/opt/runsc", version="release-20260907.0", platform="systrap"
)
OLD_RUNSC = RUNSC.model_copy(update={"version": "0.0~20221219.0", "platform": "ptrace"})
IDS = (IdRange(start=100000, count=65536),)
INSIDE = {
    "Name": "ocisbx-init",
    "CapEff": "0000000000000000",
    "NoNewPrivs": "1",
    "Seccomp": "2",
    "Seccomp_filters": "1",
}


def enforced(state: EnforcementState, how: str = "cgroup") -> dict[str, Enforced]:
    names = ("memory", "pids", "user_namespace")
    return {name: Enforced(1, "uid map 0->1000+1", state, how) for name in names}


HELD = enforced(EnforcementState.ENFORCED)
LOST = enforced(EnforcementState.UNSUPPORTED, "nobody holds it")


def good(runtime: RuntimeBinary = CRUN) -> Trial:
    return Trial(runtime, wall_s=0.02, inside=INSIDE)


def bad(runtime: RuntimeBinary = CRUN, words: str = "clone: Operation not permitted") -> Trial:
    return Trial(runtime.model_copy(update={"trouble": words}), words)


def host(*runtimes: RuntimeBinary, **fields: Any) -> Host:
    record: dict[str, Any] = {
        "machine": "x86_64",
        "kernel": "6.12.9-amd64",
        "uid": 1000,
        "gid": 1000,
        "home": "/home/u",
        "cwd": "/home/u/work",
        "newuidmap": "/usr/bin/newuidmap",
        "newgidmap": "/usr/bin/newgidmap",
        "subordinate_uids": IDS,
        "subordinate_gids": IDS,
        "cgroups": Cgroups(hierarchy="unified", own="/user.slice/x", delegated=True),
        "runtimes": runtimes or (CRUN,),
        **fields,
    }
    return Host.model_validate(record)


SYSTEM = System(
    distributions=("debian",),
    user_bus=True,
    controllers=("cpu", "memory", "pids"),
    xdg_runtime_dir="/run/user/1000",
    runtime_place="/run/user/1000/ocisbx",
)


# A kernel of the payload's own is there, so that nothing is said about its absence.
OWN = good(RUNSC)


def seen(
    *trials: Trial,
    system: System = SYSTEM,
    held: Mapping[str, Enforced] = HELD,
    **fields: Any,
) -> Evidence:
    runtimes = tuple(trial.runtime for trial in trials)
    enforcement = {trial.runtime.path: held for trial in trials if trial.works}
    return Evidence(host(*runtimes, **fields), system, trials, enforcement=enforcement)


def by_name(evidence: Evidence) -> dict[str, Finding]:
    return {finding.name: finding for finding in judge(evidence)}


def test_a_good_host_has_nothing_to_cure() -> None:
    findings = judge(seen(good(), good(RUNSC)))
    assert [(f.name, f.severity, f.remedy) for f in findings] == [
        ("runtime-works", Severity.INFORMS, "")
    ] * 2
    assert exit_code(findings) == 0
    assert render(findings).endswith("\nsandboxes run here: 2 informs\n")


@pytest.mark.parametrize(
    ("distributions", "command"),
    [
        (("debian",), "sudo apt-get update && sudo apt-get install -y crun"),
        (("linuxmint", "ubuntu", "debian"), "sudo apt-get update && sudo apt-get install -y crun"),
        (("rocky", "rhel", "centos", "fedora"), "sudo dnf install -y crun"),
        (("alpine",), "sudo apk add crun"),
        (("arch",), "sudo pacman -S --needed crun"),
        (("opensuse-leap", "suse", "opensuse"), "sudo zypper install -y crun"),
        (("plan9",), "install crun with this system's package manager"),
    ],
)
def test_no_runtime_blocks_and_tells_the_distributions_command(
    distributions: tuple[str, ...], command: str
) -> None:
    nothing = Evidence(host(), replace(SYSTEM, distributions=distributions))
    finding = by_name(nothing)["runtime-missing"]
    assert (finding.severity, finding.remedy) == (Severity.BLOCKS, command)
    assert exit_code(judge(nothing)) == 69


def test_root_needs_no_sudo() -> None:
    nothing = Evidence(host(uid=0), SYSTEM)
    assert "sudo" not in by_name(nothing)["runtime-missing"].remedy


@pytest.mark.parametrize(
    ("trials", "severity", "code"),
    [
        ((bad(CRUN),), Severity.BLOCKS, 69),
        ((bad(CRUN), bad(RUNC), bad(RUNSC)), Severity.BLOCKS, 69),
        ((bad(CRUN), good(RUNC)), Severity.INFORMS, 0),
        ((good(CRUN), bad(RUNC)), Severity.INFORMS, 0),
        ((bad(CRUN), good(RUNSC)), Severity.INFORMS, 1),
    ],
)
def test_a_runtime_that_fails(trials: tuple[Trial, ...], severity: Severity, code: int) -> None:
    """What counts is whether another works: one that fails is passed over."""
    findings = judge(seen(*trials))
    failed = [finding for finding in findings if finding.name == "runtime-fails"]
    assert {finding.severity for finding in failed} == {severity}
    assert all("clone: Operation not permitted" in finding.evidence for finding in failed)
    assert exit_code(findings) == code


def test_what_the_orders_choose_is_told() -> None:
    findings = judge(seen(good(OLD_RUNC), good(CRUN), bad(YOUKI), good(RUNSC)))
    told = {f.evidence.split()[0]: f.consequence for f in findings if f.name == "runtime-works"}
    assert told == {
        OLD_RUNC.path: f"it can be chosen: --runtime {OLD_RUNC.path}",
        CRUN.path: "it is what `--runtime auto` chooses",
        RUNSC.path: "it is what `--runtime strongest` chooses",
    }
    alone = by_name(seen(good(CRUN)))["runtime-works"]
    assert alone.consequence == "it is what `--runtime auto` and `--runtime strongest` chooses"


def test_gvisor_alone_is_not_what_auto_takes() -> None:
    found = by_name(seen(good(RUNSC)))["auto-finds-none"]
    assert found.severity is Severity.WEAKENS
    assert "none of crun, runc, youki works here" in found.evidence
    assert found.remedy.splitlines()[1] == "ocisbx run --runtime /opt/runsc -- COMMAND"
    assert "auto-finds-none" not in by_name(seen(bad(RUNSC)))


@pytest.mark.parametrize(
    ("runtime", "words", "remedy"),
    [
        (RUNC, "unable to init seccomp: seccomp: config provided but seccomp not supported",
         "-tags seccomp"),
        (YOUKI, "v2 cgroup feature is required, but was not enabled during compile time",
         "--features systemd,v1,v2,seccomp"),
        (YOUKI, "failed to create dir /sys/fs/cgroup/devices/:youki:x: Permission denied",
         "systemctl --user status"),
        (CRUN, "nobody knows why", ""),
    ],
)  # fmt: skip
def test_words_that_have_a_cure(runtime: RuntimeBinary, words: str, remedy: str) -> None:
    found = by_name(seen(bad(runtime, words)))["runtime-fails"].remedy
    assert remedy in found
    assert bool(remedy) == bool(found)


@pytest.mark.parametrize("name", IGNORED)
def test_a_runtime_that_only_says_that_it_confines(name: str) -> None:
    """The only one: it is used for nothing that asks for it. Beside a sound one it is passed by."""
    loose = good(YOUKI.model_copy(update={"ignores": (name,)}))
    alone = by_name(seen(loose))
    finding = alone["profile-not-held"]
    assert finding.severity is Severity.WEAKENS
    assert finding.evidence.endswith("saw CapEff: 0000000000000000, NoNewPrivs: 1, Seccomp: 2")
    assert IGNORED[name] in finding.consequence
    assert "--features systemd,v1,v2,seccomp" in finding.remedy
    assert "auto-finds-none" in alone
    beside = by_name(seen(good(RUNC), loose))
    assert beside["profile-not-held"].severity is Severity.INFORMS


def test_who_else_can_replace_a_runtime() -> None:
    places = {"/opt/crun": ("/opt (drwxrwxrwx 0:0) can be written by everybody",)}
    finding = by_name(replace(seen(good()), replaceable=places))["runtime-replaceable"]
    assert finding.severity is Severity.WEAKENS
    assert finding.remedy == "sudo chown root:root /opt && sudo chmod go-w /opt"


# ------------------------------------------------------------------------------------------ holes
@pytest.mark.parametrize(
    ("version", "fixed", "answer"),
    [
        ("1.1.14", ("1.1.14", "1.2.0"), True),
        ("1.1.13", ("1.1.14", "1.2.0"), False),
        ("1.2.0", ("1.1.14", "1.2.0"), True),
        ("1.2.0-rc.3", ("1.1.14", "1.2.0"), False),
        ("1.0.9", ("1.1.14", "1.2.0"), False),
        ("1.3.2", ("1.2.8", "1.3.3", "1.4.0"), False),
        ("1.5.0", ("1.2.8", "1.3.3", "1.4.0"), True),
        ("1.28", ("1.28",), True),
        ("1.27.1", ("1.28",), False),
        ("1.8.1", ("1.28",), False),
        ("2.0", ("1.28",), True),
        ("1.1.5+ds1", ("1.1.5",), True),
    ],
)
def test_each_branch_has_its_own_sound_version(
    version: str,
    fixed: tuple[str, ...],
    answer: bool,  # noqa: FBT001 -- a column of the table
) -> None:
    assert is_fixed(version, fixed) is answer


def test_sound_versions_have_no_hole() -> None:
    for name, versions in SOUND_VERSIONS.items():
        for version in versions.split(", "):
            runtime = RuntimeBinary(name=name, path="/x", version=version)
            assert open_holes(runtime, owned=True) == []


def test_old_versions_have_every_hole_that_was_there_from_the_start() -> None:
    for name in SOUND_VERSIONS:
        runtime = RuntimeBinary(name=name, path="/x", version="0.0.1")
        expected = [hole for hole in HOLES if hole.runtime == name and hole.since == "0"]
        assert open_holes(runtime, owned=True) == expected


def test_a_hole_within_reach_weakens_and_the_others_inform() -> None:
    found = by_name(seen(good(OLD_RUNC)))
    assert found["known-holes"].severity is Severity.WEAKENS
    assert "CVE-2024-45310" in found["known-holes"].consequence
    assert found["known-holes-out-of-reach"].severity is Severity.INFORMS
    assert "CVE-2024-21626" in found["known-holes-out-of-reach"].consequence
    assert "ocisbx never checkpoints" in found["known-holes-out-of-reach"].consequence


def test_what_the_distribution_has_closed_is_no_hole() -> None:
    evidence = seen(good(OLD_RUNC))
    closed = frozenset({"2024-21626", "2024-45310"})
    found = by_name(replace(evidence, closed={OLD_RUNC.path: closed}))
    assert "known-holes" not in found
    assert "CVE-2024-21626" not in found["known-holes-out-of-reach"].consequence


def test_a_runtime_of_ones_own_can_be_overwritten_by_what_it_runs() -> None:
    ancient = RuntimeBinary(name="runc", path="/home/u/bin/runc", version="1.0.0-rc6")
    assert "2019-5736" in {hole.id for hole in open_holes(ancient, owned=True)}
    assert "2019-5736" not in {hole.id for hole in open_holes(ancient)}


@pytest.mark.parametrize("version", ["release-20260831.0", "release-20261012.0", "20260905-160f"])
def test_current_releases_of_gvisor_have_no_hole(version: str) -> None:
    assert open_holes(RUNSC.model_copy(update={"version": version})) == []


def test_holes_of_an_old_gvisor_are_out_of_reach() -> None:
    found = by_name(seen(good(CRUN), good(OLD_RUNSC)))
    told = found["known-holes-out-of-reach"]
    assert "CVE-2025-2713" in told.consequence
    assert "CVE-2026-96812" in told.consequence
    assert told.remedy == ""
    assert "known-holes" not in found


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
SESSION = "/user.slice/user-1000.slice/session-3.scope"
MANAGER = "/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope"
DOCKER = ("docker", "/.dockerenv")


@pytest.mark.parametrize(
    ("cgroups", "system", "kernel", "words", "remedy"),
    [
        (("hybrid", "/"), {}, "5.15.153-microsoft-standard-WSL2", "WSL2", ".wslconfig"),
        (("hybrid", "/"), {}, "6.1.0", "bound to cgroup v1", "systemd.unified_cgroup_hierarchy=1"),
        (("v1", "/"), {}, "6.1.0", "bound to cgroup v1", "update-grub"),
        (("hybrid", "/"), {"container": DOCKER}, "6.1.0", "inside a container", "that runs this"),
        (("none", "/"), {}, "6.1.0", "no cgroup file system", "sudo mount -t cgroup2"),
        (("unified", "/"), {"cgroup_read_only": True}, "6.1.0", "read-only", "cgroupns=private"),
        (("unified", "/"), {"container": DOCKER}, "6.1.0", "not handed over", "--cgroupns=private"),
        (("unified", SESSION), {}, "6.1.0", "login session's scope", "Delegate=yes -- ocisbx"),
        (("unified", SESSION), {"user_bus": False}, "6.1.0", "no systemd user", "enable-linger"),
        (("unified", "/system.slice/cron.service"), {"user_bus": False}, "6.1.0", "no bus",
         "export XDG_RUNTIME_DIR=/run/user/$(id -u)"),
        (("unified", SESSION.replace("1000", "1234")), {}, "6.1.0", "another user", "machinectl"),
        (("unified", "/system.slice/x.service"), {}, "6.1.0", "root owns", "systemd-run --user"),
        (("unified", MANAGER, True), {"controllers": ("cpu",)}, "6.1.0", "without memory",
         "delegate.conf"),
        (("unified", MANAGER, True), {}, "6.1.0", "a delegated cgroup", ""),
    ],
)  # fmt: skip
def test_limits_that_do_not_hold_are_told_by_environment(
    cgroups: tuple[str, str], system: dict[str, Any], kernel: str, words: str, remedy: str
) -> None:
    place = dict(zip(("hierarchy", "own", "delegated"), cgroups, strict=False))
    evidence = seen(
        good(),
        held=LOST,
        system=replace(SYSTEM, **system),
        cgroups=Cgroups.model_validate(place),
        kernel=kernel,
    )
    finding = by_name(evidence)["limits-not-held"]
    assert finding.severity is Severity.WEAKENS
    assert "nobody holds it" in finding.evidence
    assert words in finding.evidence
    assert remedy in finding.remedy
    assert bool(remedy) == bool(finding.remedy)


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
    extra = [finding for finding in judge(evidence) if finding.name != "runtime-works"]
    assert [(finding.name, finding.severity) for finding in extra] == [(name, severity)]
    assert "{" not in extra[0].evidence + extra[0].remedy


def test_the_gravest_comes_first_and_decides() -> None:
    findings = judge(seen(bad(CRUN), kernel="5.4.0"))
    assert [finding.severity for finding in findings] == sorted(
        (finding.severity for finding in findings), key=list(Severity).index
    )
    assert exit_code(findings) == 69
    assert exit_code([]) == 0


def test_a_remedy_can_be_pasted_as_it_stands() -> None:
    remedy = "a " * 80 + "\nsecond --with-hyphens"
    finding = Finding("n", Severity.WEAKENS, "e " * 80, "c", remedy)
    page = render([finding])
    assert [line[10:] for line in page.splitlines() if line[10:] in remedy.split("\n")] == (
        remedy.split("\n")
    )
    assert page.startswith("weakens: n\n  seen    e e")
    assert finding.to_dict() == {
        "name": "n",
        "severity": "weakens",
        "evidence": "e " * 80,
        "consequence": "c",
        "remedy": remedy,
    }
