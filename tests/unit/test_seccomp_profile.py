"""The default profile's rules, judged by a small model of what libseccomp makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.errors import Unsupported
from ocisbx.specgen.seccomp import Clone3, default_profile, load_profile, profile
from ocisbx.specgen.seccomp.resolve import blocks_without

MACHINES = ("x86_64", "aarch64")
LOW_32 = 0xFFFFFFFF
COMPARE: dict[str, Any] = {
    "SCMP_CMP_EQ": lambda value, a, b: value == a,
    "SCMP_CMP_NE": lambda value, a, b: value != a,
    "SCMP_CMP_GT": lambda value, a, b: value > a,
    "SCMP_CMP_MASKED_EQ": lambda value, a, b: value & a == b,
}
register = st.integers(0, 2**64 - 1)
high_bits = st.one_of(st.just(0), st.just(LOW_32), st.integers(0, LOW_32)).map(lambda n: n << 32)


def _answer(resolved: dict[str, Any], call: str, *arguments: int) -> int | None:
    """The errno, or None for allowed; rules with different answers must not overlap."""
    answers = {
        rule.get("errnoRet")
        for rule in resolved["syscalls"]
        if call in rule["names"]
        and all(
            COMPARE[c["op"]](arguments[c["index"]], c["value"], c.get("valueTwo"))
            for c in rule.get("args", [])
        )
    }
    assert len(answers) <= 1, f"{call}{arguments}: the order of rules would decide"
    errno: int | None = answers.pop() if answers else resolved["defaultErrnoRet"]
    return errno


DEFAULT = default_profile("x86_64", (6, 18), [])


@given(st.sets(st.integers(0, 255)), st.integers(0, 255))
def test_blocks_match_every_number_but_the_values_once(values: set[int], number: int) -> None:
    matches = [mask for mask, base in blocks_without(values, 8) if number & mask == base]
    assert len(matches) == (number not in values)


@given(st.one_of(st.sampled_from([0x5412, 0x541C, 0x5411, 0x5413, 0x541B]), register), high_bits)
def test_terminal_requests_are_refused_whatever_the_high_bits(request_: int, high: int) -> None:
    value = (request_ & LOW_32) | high
    refused = value & 0xFFFF in {0x5412, 0x541C}
    assert _answer(DEFAULT, "ioctl", 0, value) == (1 if refused else None)


@given(st.one_of(st.integers(0, 64), register), register, st.one_of(st.just(0), register))
def test_sockets_of_four_families(family: int, kind: int, protocol: int) -> None:
    allowed = family in {1, 2, 10} or (family == 16 and protocol == 0)
    if family <= LOW_32:
        assert _answer(DEFAULT, "socket", family, kind, protocol) == (None if allowed else 97)
    else:
        assert _answer(DEFAULT, "socket", family, kind, protocol) is not None


@given(st.one_of(st.integers(0, 64), register))
def test_pairs_of_unix_sockets(family: int) -> None:
    assert _answer(DEFAULT, "socketpair", family) == (None if family == 1 else 95)


@given(register)
def test_clone_makes_no_namespace(flags: int) -> None:
    assert _answer(DEFAULT, "clone", flags) == (1 if flags & 0x7E020000 else None)


@given(st.one_of(st.sampled_from([0, 8, 0x20000, 0x20008, LOW_32, 0x40000]), register), high_bits)
def test_personality(persona: int, high: int) -> None:
    low = persona & LOW_32
    allowed = low in {0, 8, 0x20000, 0x20008, LOW_32}
    assert _answer(DEFAULT, "personality", low | high) == (None if allowed else 38)


@given(st.one_of(st.sampled_from([0, 1]), register), high_bits)
def test_prlimit_of_the_caller_itself_only(pid: int, high: int) -> None:
    low = pid & LOW_32
    assert _answer(DEFAULT, "prlimit64", low | high) == (38 if low else None)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("capability", [*profile.GRANTED, "CAP_NET_RAW", "CAP_NET_ADMIN"])
def test_a_capability_only_adds(machine: str, capability: str) -> None:
    plain = default_profile(machine, (6, 18), [])
    granted = default_profile(machine, (6, 18), [capability])
    added = {
        name
        for name in profile.GRANTED.get(capability, "").split()
        if machine == "x86_64" or name not in profile.X86_64_ONLY.split()
    }
    for name in added:
        assert _answer(granted, name, 0x10000000) is None
    rules: Any = plain["syscalls"]
    for name in rules[0]["names"]:
        assert _answer(granted, name) is None
    assert _answer(granted, "socket", 17, 3, 0) == (None if capability == "CAP_NET_RAW" else 97)
    assert _answer(granted, "socket", 16, 3, 12) == (None if capability == "CAP_NET_ADMIN" else 97)


def test_every_capability_at_once_still_has_one_answer_per_call() -> None:
    full = default_profile("x86_64", (6, 18), [*profile.GRANTED, "CAP_NET_RAW", "CAP_NET_ADMIN"])
    rules: Any = full["syscalls"]
    for name in {name for rule in rules for name in rule["names"]}:
        _answer(full, name, 1, 1, 1)


def test_clone3_and_old_kernels() -> None:
    assert _answer(DEFAULT, "clone3") == 38
    assert _answer(default_profile("x86_64", (6, 18), [], "allow"), "clone3") is None
    assert _answer(default_profile("x86_64", (4, 8), []), "ptrace") is None
    assert _answer(default_profile("x86_64", (4, 7), []), "ptrace") == 38


@pytest.mark.parametrize("machine", MACHINES)
def test_one_architecture_and_one_condition_per_argument(machine: str) -> None:
    resolved: Any = default_profile(machine, (6, 18), [])
    assert resolved["architectures"] == [f"SCMP_ARCH_{machine.upper()}"]
    for rule in resolved["syscalls"]:
        indexes = [condition["index"] for condition in rule.get("args", [])]
        assert len(indexes) == len(set(indexes))
    # runc skips a rule that says what the default says.
    assert all(rule.get("errnoRet") != 38 for rule in resolved["syscalls"])


@pytest.mark.parametrize("machine", MACHINES)
@given(
    capabilities=st.sets(st.sampled_from(sorted(profile.GRANTED))),
    clone3=st.sampled_from(["enosys", "allow"]),
)
def test_the_loader_reads_our_profile_back(
    machine: str, capabilities: set[str], clone3: Clone3
) -> None:
    ours = default_profile(machine, (6, 1), capabilities, clone3)
    assert load_profile(json.dumps(ours), machine, (6, 1), capabilities) == ours


def test_a_machine_that_the_profile_was_not_written_for() -> None:
    with pytest.raises(Unsupported, match="sparc64"):
        default_profile("sparc64", (6, 18), [])
