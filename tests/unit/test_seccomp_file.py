"""Profiles from files: docker's and podman's additions resolved, mistakes named by their path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.errors import ConfigError
from ocisbx.specgen.seccomp import load_profile

KERNEL = (5, 10)
DENY: dict[str, Any] = {"defaultAction": "SCMP_ACT_ERRNO"}


def _load(document: object, *capabilities: str, machine: str = "x86_64") -> dict[str, Any]:
    return load_profile(json.dumps(document), machine, KERNEL, capabilities)


def _rule(**fields: object) -> dict[str, object]:
    return {"names": ["read"], "action": "SCMP_ACT_ALLOW", **fields}


def _condition(**fields: object) -> dict[str, object]:
    return {"index": 0, "value": 1, "op": "SCMP_CMP_EQ", **fields}


def test_what_go_writes_for_unset_fields_means_unset() -> None:
    empty: dict[str, object] = {"caps": None, "arches": [], "minKernel": ""}
    rule = _rule(args=None, comment="", includes=empty, excludes={}, errnoRet=None)
    document = {**DENY, "archMap": None, "flags": None, "listenerPath": "", "syscalls": [rule]}
    assert _load(document) == {**DENY, "syscalls": [_rule()]}
    assert _load({**DENY, "syscalls": None}) == {**DENY, "syscalls": []}


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("x86_64", ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]),
        ("aarch64", ["SCMP_ARCH_AARCH64"]),
        ("riscv64", None),
    ],
)
def test_the_map_of_architectures(machine: str, expected: list[str] | None) -> None:
    entries = [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": None},
    ]
    assert _load({**DENY, "archMap": entries}, machine=machine).get("architectures") == expected


CONDITIONS = [
    ({"includes": {"caps": ["CAP_BPF"]}}, [], 0),
    ({"includes": {"caps": ["CAP_BPF"]}}, ["CAP_BPF"], 1),
    ({"includes": {"caps": ["CAP_BPF", "CAP_KILL"]}}, ["CAP_BPF"], 0),
    ({"excludes": {"caps": ["CAP_BPF", "CAP_KILL"]}}, ["CAP_BPF"], 0),
    ({"excludes": {"caps": ["CAP_BPF"]}}, [], 1),
    ({"includes": {"arches": ["amd64", "x32"]}}, [], 1),
    ({"includes": {"arches": ["arm64"]}}, [], 0),
    ({"excludes": {"arches": ["amd64"]}}, [], 0),
    ({"includes": {"minKernel": "5.10"}}, [], 1),
    ({"includes": {"minKernel": "5.9"}}, [], 1),
    ({"includes": {"minKernel": "5.11"}}, [], 0),
    ({"excludes": {"minKernel": "4.8"}}, [], 0),
    ({"includes": {"caps": ["CAP_BPF"]}, "excludes": {"arches": ["amd64"]}}, ["CAP_BPF"], 0),
    ({"includes": {"arches": ["amd64"], "caps": ["CAP_BPF"]}}, [], 0),
    ({"excludes": {"arches": ["s390x"], "caps": ["CAP_BPF"]}}, ["CAP_BPF"], 0),
]


@pytest.mark.parametrize(("conditions", "capabilities", "kept"), CONDITIONS)
def test_conditions_of_a_rule(
    conditions: dict[str, object], capabilities: list[str], kept: int
) -> None:
    loaded = _load({**DENY, "syscalls": [_rule(**conditions)]}, *capabilities)
    assert loaded["syscalls"] == ([_rule()] if kept else [])


def test_podmans_names_of_errnos_and_dockers_single_name() -> None:
    document = {
        **DENY,
        "defaultErrnoRet": 38,
        "defaultErrno": "ENOSYS",
        "syscalls": [{"name": "read", "action": "SCMP_ACT_ERRNO", "errno": "EPERM"}],
    }
    expected = {"names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    assert _load(document) == {**DENY, "defaultErrnoRet": 38, "syscalls": [expected]}


def test_a_mask_without_a_value_compares_with_zero() -> None:
    rule = _rule(args=[_condition(op="SCMP_CMP_MASKED_EQ")])
    loaded = _load({**DENY, "syscalls": [rule]})
    assert loaded["syscalls"][0]["args"] == [_condition(op="SCMP_CMP_MASKED_EQ", valueTwo=0)]


BAD_TOP = [
    ({}, "defaultAction"),
    ({"defaultAction": "SCMP_ACT_NOTIFY"}, "defaultAction"),
    ({"defaultAction": 1}, "defaultAction"),
    ({**DENY, "defaultErrnoRet": 4096}, "defaultErrnoRet"),
    ({**DENY, "defaultErrnoRet": True}, "defaultErrnoRet"),
    ({**DENY, "defaultErrnoRet": 1, "defaultErrno": "ENOSYS"}, "defaultErrno"),
    ({**DENY, "defaultErrno": "errorcode"}, "defaultErrno"),
    ({"defaultAction": "SCMP_ACT_ALLOW", "defaultErrnoRet": 1}, "defaultErrnoRet"),
    ({**DENY, "architectures": ["amd64"]}, "architectures[0]"),
    ({**DENY, "architectures": "SCMP_ARCH_X86"}, "architectures"),
    ({**DENY, "architectures": ["SCMP_ARCH_X86"], "archMap": [{}]}, "archMap"),
    ({**DENY, "archMap": [{"architecture": 3}]}, "archMap[0].architecture"),
    ({**DENY, "archMap": [{"arch": ""}]}, "archMap[0].arch"),
    ({**DENY, "flags": ["SECCOMP_FILTER_FLAG_NO"]}, "flags[0]"),
    ({**DENY, "listenerPath": "/run/agent"}, "listenerPath"),
    ({**DENY, "sycalls": []}, "sycalls"),
    ({**DENY, "syscalls": {}}, "syscalls"),
    ({**DENY, "syscalls": [[]]}, "syscalls[0]"),
]
BAD_RULE: list[tuple[dict[str, object], str]] = [
    ({"action": "ALLOW"}, "action"),
    ({"names": []}, "names"),
    ({"names": ["read "]}, "names"),
    ({"names": [3]}, "names[0]"),
    ({"name": "write"}, "name"),
    ({"names": None, "name": 3}, "name"),
    ({"errnoRet": 1}, "errnoRet"),
    ({"action": "SCMP_ACT_ERRNO", "errnoRet": -1}, "errnoRet"),
    ({"action": "SCMP_ACT_ERRNO", "errno": "EWHAT"}, "errno"),
    ({"comment": 1}, "comment"),
    ({"arguments": []}, "arguments"),
    ({"args": [_condition(op="==")]}, "args[0].op"),
    ({"args": [_condition(index=6)]}, "args[0].index"),
    ({"args": [_condition(value=2**64)]}, "args[0].value"),
    ({"args": [_condition(valueTwo=1.5)]}, "args[0].valueTwo"),
    ({"args": [_condition(), _condition(value=2)]}, "args"),
    ({"includes": {"kernel": "4.8"}}, "includes.kernel"),
    ({"includes": {"minKernel": "4"}}, "includes.minKernel"),
    ({"includes": {"minKernel": 4.8}}, "includes.minKernel"),
    ({"includes": {"caps": ["CAP_X"]}, "excludes": {"arches": 1}}, "excludes.arches"),
]


@pytest.mark.parametrize(
    ("document", "path"),
    [*BAD_TOP, *(({**DENY, "syscalls": [_rule(**r)]}, f"syscalls[0].{p}") for r, p in BAD_RULE)],
)
def test_a_mistake_is_named_by_its_path(document: object, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(document)
    assert caught.value.what == f"seccomp profile: {path}"
    assert caught.value.why


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '{"defaultAction": "SCMP_ACT_LOG", "defaultAction": 1}']
)
def test_what_is_no_profile_at_all(text: str) -> None:
    with pytest.raises(ConfigError):
        load_profile(text, "x86_64", KERNEL, [])


def test_an_unknown_machine() -> None:
    with pytest.raises(ConfigError, match="sparc64"):
        load_profile(json.dumps(DENY), "sparc64", KERNEL, [])


FIELDS = """
    defaultAction defaultErrnoRet architectures archMap flags syscalls name names action errnoRet
    errno args includes excludes comment index value valueTwo op caps arches minKernel
    """
WORDS = "SCMP_ACT_ERRNO SCMP_ACT_ALLOW SCMP_CMP_EQ SCMP_CMP_MASKED_EQ SCMP_ARCH_X86 read 4.8"
keys = st.sampled_from(FIELDS.split())
words = st.sampled_from(WORDS.split())
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), words)
anything = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner), st.dictionaries(keys, inner)), max_leaves=30
)


@given(st.dictionaries(keys, anything))
def test_any_document_is_a_profile_or_a_config_error(document: dict[str, object]) -> None:
    try:
        loaded = _load({**DENY, **document})
    except ConfigError:
        return
    assert _load(loaded) == loaded
