"""How the models treat names, absence, unknown fields, numbers and text that is no JSON."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from ocisbx.oci import (
    DocumentError,
    Linux,
    Mount,
    Process,
    Root,
    Spec,
    State,
    Violation,
    lowest_version,
    violations,
)
from ocisbx.oci.base import spec_name
from ocisbx.oci.linux import Namespace
from ocisbx.oci.process import IoPriority, User
from ocisbx.oci.resources import BlockIo, Memory, Pids, Resources, ThrottleDevice

CONTENTS = {
    "x-first": {"deep": [None, 1.5, {"": []}]},
    "ociVersion": "1.0.2",
    "process": {
        "cwd": "/",
        "no_new_privileges": "not ours",
        "user": {"x": None, "uid": 0},
        "rlimits": [],
    },
    "mounts": [{"destination": "/a", "x-docker": True}],
    "linux": {"intelRdt": {"enableCMT": 1}, "netDevices": {"eth0": {"mtu": 9000}}, "sysctl": {}},
    "to_dict": 1,
    "__class__": {},
    "oci_version": "9",
}


def test_built_by_python_names_and_written_by_the_spec_s() -> None:
    spec = Spec(
        oci_version="1.0.2",
        root=Root(path="rootfs", readonly=True),
        process=Process(cwd="/", args=("true",), io_priority=IoPriority(class_="IOPRIO_CLASS_BE")),
        linux=Linux(
            namespaces=(Namespace(type="pid"),),
            resources=Resources(
                memory=Memory(limit=-1, disable_oom_killer=False, kernel_tcp=1),
                block_io=BlockIo(throttle_read_iops_device=(ThrottleDevice(major=8, minor=0),)),
            ),
        ),
    )
    assert spec.to_dict() == {
        "ociVersion": "1.0.2",
        "process": {"args": ["true"], "cwd": "/", "ioPriority": {"class": "IOPRIO_CLASS_BE"}},
        "root": {"path": "rootfs", "readonly": True},
        "linux": {
            "namespaces": [{"type": "pid"}],
            "resources": {
                "memory": {"limit": -1, "kernelTCP": 1, "disableOOMKiller": False},
                "blockIO": {"throttleReadIOPSDevice": [{"major": 8, "minor": 0}]},
            },
        },
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("oci_version", "ociVersion"),
        ("clos_id", "closID"),
        ("exec_cpu_affinity", "execCPUAffinity"),
        ("io_priority", "ioPriority"),
        ("class_", "class"),
        ("l3_cache_schema", "l3CacheSchema"),
        ("dns_search_list", "DNSSearchList"),
    ],
)
def test_spec_name(name: str, expected: str) -> None:
    assert spec_name(name) == expected


def test_none_is_not_set_but_null_is_refused() -> None:
    assert Spec(oci_version="1", hostname=None).to_json() == '{"ociVersion":"1"}'
    with pytest.raises(DocumentError) as caught:
        Spec.from_json('{"ociVersion": "1", "hostname": null}')
    assert caught.value.violations == (Violation("$.hostname", "must be a string"),)


def test_empty_values_are_written() -> None:
    model = Process(cwd="", args=(), user=User())
    assert model.to_dict() == {"cwd": "", "args": [], "user": {}}


def test_unknown_fields_of_a_foreign_document_are_kept_at_every_level() -> None:
    spec = Spec.from_json(json.dumps(CONTENTS))
    assert spec.to_dict() == CONTENTS
    assert spec.process is not None
    assert spec.process.no_new_privileges is None
    assert spec.oci_version == "1.0.2"
    changed = spec.model_copy(update={"hostname": "here"})
    assert changed.to_dict() == {**CONTENTS, "hostname": "here"}


def test_python_names_in_a_document_do_not_stand_for_the_spec_s() -> None:
    assert violations({"oci_version": "1.0.2"}, "config") == [
        Violation("$.ociVersion", "is required")
    ]


def test_known_fields_come_first_in_the_order_of_the_spec() -> None:
    spec = Spec.from_json(
        '{"x": 1, "linux": {}, "a": 2, "process": {"cwd": "/"}, "ociVersion": ""}'
    )
    assert list(spec.to_dict()) == ["ociVersion", "process", "linux", "x", "a"]


def test_what_is_written_shares_nothing_with_the_model() -> None:
    spec = Spec.from_json('{"ociVersion": "1", "x": [1], "annotations": {"a": "b"}}')
    document = spec.to_dict()
    document["x"].append(2)
    document["annotations"]["c"] = "d"
    assert spec.to_dict() == {"ociVersion": "1", "x": [1], "annotations": {"a": "b"}}


def test_models_are_frozen() -> None:
    spec = Spec(oci_version="1")
    with pytest.raises(ValidationError, match="frozen"):
        spec.hostname = "x"  # type: ignore[misc]


def test_every_violation_has_its_path_and_rule() -> None:
    document: dict[str, Any] = {
        "ociVersion": 1,
        "process": {
            "terminal": 1,
            "rlimits": [{"type": "NOFILE", "soft": -1, "hard": 2**64}],
            "capabilities": [],
        },
        "mounts": {},
        "annotations": {"org.example/a b": 7},
        "linux": {
            "rootfsPropagation": "rshared",
            "sysctl": [],
            "seccomp": {"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": []}]},
            "resources": {"pids": {"limit": 1.0}},
        },
    }
    found = {one.path: one.rule for one in violations(document, "config")}
    assert found == {
        "$.ociVersion": "must be a string",
        "$.process.terminal": "must be true or false",
        "$.process.cwd": "is required",
        "$.process.capabilities": "must be an object",
        "$.process.rlimits[0].type": "must match the pattern ^RLIMIT_[A-Z]+$",
        "$.process.rlimits[0].soft": "must be at least 0",
        "$.process.rlimits[0].hard": "must be at most 18446744073709551615",
        "$.mounts": "must be an array",
        '$.annotations["org.example/a b"]': "must be a string",
        "$.linux.rootfsPropagation": (
            "must be one of 'private', 'shared', 'slave' or 'unbindable'"
        ),
        "$.linux.sysctl": "must be an object",
        "$.linux.seccomp.syscalls[0].names": "must have at least 1 item",
        "$.linux.seccomp.syscalls[0].action": "is required",
        "$.linux.resources.pids.limit": "must be an integer",
    }
    assert str(violations({}, "config")[0]) == "$.ociVersion is required"


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1], 2**63])
def test_integers_are_strict(value: Any) -> None:
    with pytest.raises(DocumentError):
        Pids.from_json(json.dumps({"limit": value}))


NO_JSON = [
    "",
    "{]",
    "[" * 100_000,
    '{"ociVersion": "1", "x": NaN}',
    '{"ociVersion": "1", "x": [{"y": 1e999}]}',
    '{"ociVersion": "1", "x": "\\ud800"}',
    '{"ociVersion": "1", "x": "\udc80"}',
    '{"ociVersion": "1"} {}',
    b'{"ociVersion": "\xff"}',
    b'\xef\xbb\xbf{"ociVersion": "1"}',
]


@pytest.mark.parametrize("text", NO_JSON, ids=range(len(NO_JSON)))
def test_text_that_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(DocumentError, match=r"^\$.* must be "):
        Spec.from_json(text)


def _loop() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "document", [None, [], 1, "x", object(), {"ociVersion": {1, 2}}, _loop(), {(1, 2): 3}]
)
def test_what_is_no_document_has_one_violation_at_its_root(document: object) -> None:
    (violation,) = violations(document, "state")
    assert violation.path == "$"


def test_state_as_a_runtime_prints_it() -> None:
    state = State.from_json(
        '{"ociVersion":"1.2.1","id":"a","status":"running","pid":7,"bundle":"/b",'
        '"rootfs":"/b/rootfs","created":"2026-11-22T00:00:00Z","owner":""}'
    )
    assert (state.status, state.pid) == ("running", 7)
    assert state.to_dict()["owner"] == ""


@pytest.mark.parametrize(
    ("options", "version"),
    [(("rbind", "ro"), "1.0.2"), (("rbind", "rro"), "1.1.0"), (("ridmap", "rro"), "1.2.0")],
)
def test_mount_options_need_versions(options: tuple[str, ...], version: str) -> None:
    spec = Spec(oci_version="1", mounts=(Mount(destination="/", options=options),))
    assert lowest_version(spec) == version


@pytest.mark.parametrize(
    "fields",
    [
        {"destination": "/\udc80"},
        {"destination": "/", "options": ("\udc80",)},
        {"destination": "/", "unknown": ["\udc80"]},
        {"destination": "/", "unknown": float("inf")},
    ],
)
def test_what_is_no_json_cannot_be_put_into_a_document(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Mount(**fields)
