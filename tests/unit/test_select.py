"""Which runtime is taken, on described hosts: what was tried, what speaks against it, in whose
words it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ocisbx.config import SandboxConfig
from ocisbx.container.merge import kernel_entry, wanted_runtime
from ocisbx.container.resolve import resolve
from ocisbx.container.select import (
    Wanted,
    candidates,
    has_own_kernel,
    objection,
    platforms,
    select_runtime,
)
from ocisbx.errors import RuntimeMissing, Unsupported
from ocisbx.host import RuntimeBinary
from ocisbx.probe.runtimes import UNKNOWN
from ocisbx.result import EnforcementState
from tests.unit.hosts import CRUN, NEW_CRUN, NEW_RUNC, RUNC, RUNSC, make_host

YOUKI = RuntimeBinary(name="youki", path="/opt/youki", version="0.7.0")
OLD_RUNSC = RUNSC.model_copy(update={"path": "/usr/bin/runsc", "version": "0.0~20221219.0"})
NO_RUNTIME = RuntimeBinary(
    name=UNKNOWN,
    path="/bin/cat",
    version=UNKNOWN,
    trouble="/bin/cat is not a runtime that ocisbx knows",
    remedy="give another path",
)
EVERY = (RUNSC, CRUN, RUNC, YOUKI, NEW_CRUN, NEW_RUNC, OLD_RUNSC)
CONFINED = frozenset({"seccomp", "no_new_privileges", "capabilities"})


def failing(runtime: RuntimeBinary, words: str = "clone: EPERM") -> RuntimeBinary:
    return runtime.model_copy(update={"trouble": words, "remedy": f"mend {runtime.path}"})


def ignoring(runtime: RuntimeBinary, *names: str) -> RuntimeBinary:
    return runtime.model_copy(update={"ignores": names})


def paths(wanted: Wanted, *found: RuntimeBinary) -> list[str]:
    return [runtime.path for runtime in candidates(wanted, make_host(runtimes=found))]


# ------------------------------------------------------------------------------------ candidates
AUTO = ["/opt/crun", "/usr/bin/crun", "/opt/runc", "/usr/sbin/runc", "/opt/youki"]
OWN = ["/opt/runsc", "/usr/bin/runsc"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), AUTO),
        (("auto",), AUTO),
        (("strongest",), [*OWN, *AUTO]),
        (("runsc",), OWN),
        (("runc", "crun"), ["/opt/runc", "/usr/sbin/runc", "/opt/crun", "/usr/bin/crun"]),
        (("/usr/bin/runsc", "auto"), ["/usr/bin/runsc", *AUTO]),
        (("/usr//bin/./crun",), ["/usr/bin/crun"]),
        (("/nowhere/crun", "bash"), []),
    ],
)
def test_candidates_in_order(names: tuple[str, ...], expected: list[str]) -> None:
    """Of one name the newest first; each once."""
    assert paths(Wanted(names), *EVERY) == expected


def test_auto_never_takes_gvisor() -> None:
    with pytest.raises(RuntimeMissing):
        select_runtime(Wanted(), make_host(runtimes=(RUNSC,)))


# ------------------------------------------------------------------------------------- platforms
@pytest.mark.parametrize(
    ("runtime", "asked", "tried"),
    [
        (RUNSC, None, ("systrap", "ptrace")),
        (RUNSC, "auto", ("systrap", "ptrace")),
        (RUNSC, "ptrace", ("ptrace",)),
        (RUNSC, "kvm", ("kvm",)),
        (OLD_RUNSC, "auto", ("systrap", "ptrace")),
        (CRUN, None, (None,)),
        (CRUN, "auto", (None,)),
        (CRUN, "systrap", ()),
        (NO_RUNTIME, None, (None,)),
        (NO_RUNTIME, "kvm", (None,)),
    ],
)
def test_platforms(
    runtime: RuntimeBinary, asked: str | None, tried: tuple[str | None, ...]
) -> None:
    """kvm is tried by nobody who did not ask for it."""
    assert platforms(runtime, asked) == tried


def test_a_platform_leaves_only_runtimes_that_have_it() -> None:
    assert paths(Wanted(("strongest",), "systrap"), *EVERY) == OWN
    with pytest.raises(RuntimeMissing) as raised:
        select_runtime(Wanted(("auto",), "systrap"), make_host(runtimes=EVERY))
    assert raised.value.what == "platform systrap asked for, which auto does not have"
    assert "--runtime runsc" in raised.value.remedy


# -------------------------------------------------------------------------------------- objection
@pytest.mark.parametrize(
    ("runtime", "wanted", "words"),
    [
        (CRUN, Wanted(), ""),
        (failing(CRUN), Wanted(), "clone: EPERM"),
        (ignoring(CRUN, "seccomp"), Wanted(), ""),
        (ignoring(CRUN, "seccomp"), Wanted(needs=frozenset({"capabilities"})), ""),
        (ignoring(CRUN, "seccomp"), Wanted(needs=CONFINED), "it ignores seccomp"),
        (ignoring(CRUN, "seccomp", "capabilities"), Wanted(needs=CONFINED),
         "it ignores capabilities, seccomp"),
        (CRUN, Wanted(own_kernel=True), "it runs the payload on the host's kernel"),
        (RUNSC, Wanted(needs=CONFINED, own_kernel=True), ""),
        (failing(ignoring(RUNSC, "seccomp")), Wanted(needs=CONFINED, own_kernel=True),
         "clone: EPERM"),
    ],
)  # fmt: skip
def test_objections(runtime: RuntimeBinary, wanted: Wanted, words: str) -> None:
    assert objection(runtime, wanted) == words


@pytest.mark.parametrize(
    "names", [("auto",), ("strongest",), ("crun", "runc"), (CRUN.path, "runc")]
)
def test_what_fails_is_passed_over(names: tuple[str, ...]) -> None:
    host = make_host(runtimes=(failing(CRUN), RUNC))
    assert select_runtime(Wanted(names), host) == RUNC


def test_what_ignores_a_need_is_passed_over_only_where_it_is_one() -> None:
    host = make_host(runtimes=(loose := ignoring(CRUN, "seccomp"), RUNC))
    assert select_runtime(Wanted(needs=CONFINED), host) == RUNC
    assert select_runtime(Wanted(), host) == loose


# ------------------------------------------------------------------------------- errors, in words
def test_one_that_is_no_runtime_has_its_own_words() -> None:
    with pytest.raises(RuntimeMissing) as raised:
        select_runtime(Wanted(("/bin/cat",)), make_host(runtimes=(NO_RUNTIME, CRUN)))
    assert "/bin/cat is not a runtime that ocisbx knows" in raised.value.why
    assert raised.value.remedy.startswith("give another path; --runtime auto")


def test_each_that_fails_is_named_with_its_words() -> None:
    host = make_host(runtimes=(failing(CRUN, "no clone"), failing(RUNC, "no setns")))
    with pytest.raises(RuntimeMissing) as raised:
        select_runtime(Wanted(), host)
    assert raised.value.why == (
        "crun 1.8.1 (/usr/bin/crun): no clone; runc 1.1.5+ds1 (/usr/sbin/runc): no setns"
    )
    assert raised.value.remedy == "mend /usr/bin/crun"


def test_what_is_ignored_is_named() -> None:
    host = make_host(runtimes=(ignoring(CRUN, "seccomp"), failing(RUNC)))
    with pytest.raises(Unsupported) as raised:
        select_runtime(Wanted(needs=CONFINED), host)
    assert raised.value.what == "seccomp cannot be enforced here"
    assert "crun 1.8.1 (/usr/bin/crun): it ignores seccomp" in raised.value.why
    assert "clone: EPERM" in raised.value.why
    assert "install crun or runc" in raised.value.remedy


def test_without_any_runtime_the_remedy_installs_one() -> None:
    with pytest.raises(RuntimeMissing) as raised:
        select_runtime(Wanted(), make_host(runtimes=()))
    assert raised.value.why == "found: none"
    assert "apt-get install crun" in raised.value.remedy


# ------------------------------------------------------------------------------------ own kernels
def test_who_has_a_kernel_of_its_own() -> None:
    assert [has_own_kernel(runtime) for runtime in EVERY] == [
        runtime.name == "runsc" for runtime in EVERY
    ]


def locked(**fields: Any) -> SandboxConfig:
    return SandboxConfig(preset="locked-down", workspace="/srv/work", **fields)


@pytest.mark.parametrize("found", [(CRUN, RUNC), (CRUN, failing(RUNSC))])
def test_locked_down_refuses_the_hosts_kernel(found: tuple[RuntimeBinary, ...]) -> None:
    with pytest.raises(Unsupported) as raised:
        resolve(locked(), make_host(runtimes=found))
    assert raised.value.what == "a kernel of the payload's own cannot be had here"
    assert "it runs the payload on the host's kernel" in raised.value.why
    assert "--allow-degraded kernel" in raised.value.remedy


@pytest.mark.parametrize(
    "fields",
    [
        {"allow_degraded": ["kernel"]},
        {"allow_degraded": ["all"]},
        {"runtime": {"names": ["strongest"]}},
        {"runtime": {"names": ["crun"]}},
    ],
)
def test_locked_down_told_otherwise(fields: dict[str, Any]) -> None:
    assert not wanted_runtime(locked(**fields)).own_kernel
    container = resolve(locked(**fields), make_host(runtimes=(CRUN,)))
    assert container.runtime == CRUN
    assert container.enforcement["kernel"].actual == "shared"


def test_a_failing_gvisor_never_gives_way_in_locked_down() -> None:
    """Of two the sound one is taken; the host's kernel is no fallback."""
    host = make_host(runtimes=(failing(RUNSC), OLD_RUNSC, CRUN))
    assert resolve(locked(), host).runtime == OLD_RUNSC


@pytest.mark.parametrize(
    ("names", "runtime", "requested", "actual", "state"),
    [
        ((), CRUN, "shared", "shared", EnforcementState.ENFORCED),
        (("auto",), CRUN, "shared", "shared", EnforcementState.ENFORCED),
        (("strongest",), RUNSC, "own", "own", EnforcementState.ENFORCED),
        (("strongest",), CRUN, "own", "shared", EnforcementState.UNSUPPORTED),
        (("/opt/runsc", "crun"), CRUN, "own", "shared", EnforcementState.UNSUPPORTED),
        (("runsc", "crun"), CRUN, "own", "shared", EnforcementState.UNSUPPORTED),
        (("crun", "runsc"), RUNSC, "own", "own", EnforcementState.ENFORCED),
    ],
)
def test_the_kernel_stands_in_enforcement(
    names: tuple[str, ...],
    runtime: RuntimeBinary,
    requested: str,
    actual: str,
    state: EnforcementState,
) -> None:
    entry = kernel_entry(Wanted(names), runtime)
    assert (entry.requested, entry.actual, entry.state) == (requested, actual, state)


def test_why_systrap_was_passed_over_stands_in_enforcement() -> None:
    passed = RUNSC.model_copy(update={"platform": "ptrace", "passed_over": "systrap: EPERM"})
    entry = kernel_entry(Wanted(("runsc",)), passed)
    assert entry.how == (
        "gVisor (ptrace): system calls are answered in user space; not systrap: EPERM"
    )


# -------------------------------------------------------------------------------- what is wanted
@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({}, CONFINED),
        ({"isolation": {"seccomp": "none"}}, CONFINED - {"seccomp"}),
        ({"isolation": {"no_new_privileges": False}}, CONFINED - {"no_new_privileges"}),
        ({"isolation": {"level": "privileged"}}, {"capabilities"}),
        ({"isolation": {"level": "privileged", "seccomp": "default"}}, {"capabilities", "seccomp"}),
    ],
)
def test_what_a_configuration_needs_of_its_runtime(fields: dict[str, Any], needs: set[str]) -> None:
    assert wanted_runtime(SandboxConfig(**fields)).needs == needs
