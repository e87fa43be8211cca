"""What doctor concludes of runtimes: recorded hosts, without a process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ocisbx.doctor import Finding, Severity, exit_code, render
from ocisbx.doctor.evidence import Evidence
from ocisbx.doctor.examine import judge
from ocisbx.doctor.holes import HOLES, SOUND_VERSIONS, is_fixed, open_holes
from ocisbx.doctor.runtimes import IGNORED
from ocisbx.host import RuntimeBinary
from tests.unit.doctor_evidence import (
    CRUN,
    OLD_RUNC,
    OLD_RUNSC,
    RUNC,
    RUNSC,
    SYSTEM,
    YOUKI,
    bad,
    by_name,
    good,
    host,
    seen,
)

if TYPE_CHECKING:
    from ocisbx.backends.trial import Trial


def test_a_good_host_has_nothing_to_cure() -> None:
    findings = judge(seen(good(), good(RUNSC)))
    assert [(f.name, f.severity, f.remedy) for f in findings] == [
        (name, Severity.INFORMS, "") for name in ("runtime-works", "runtime-works", "limits-held")
    ]
    assert exit_code(findings) == 0
    assert render(findings).endswith("\nsandboxes run here: 3 informs\n")


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
    assert finding.evidence.endswith("saw cap_eff: 0, no_new_privs: True, seccomp: 2")
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
