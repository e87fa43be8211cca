"""The JSON schemas: valid, described, and what RunResult really writes fits its own."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ocisbx import schemas
from ocisbx.errors import ConfigError
from ocisbx.result import (
    Captured,
    Enforced,
    EnforcementState,
    ResourceUsage,
    RunResult,
    RuntimeInfo,
    Termination,
    Timings,
)


@pytest.mark.parametrize("name", schemas.SCHEMAS)
def test_schema_is_one(name: str) -> None:
    document = schemas.schema(name)
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["additionalProperties"] is False
    assert document["description"]


def test_unknown_schema() -> None:
    with pytest.raises(ConfigError, match="did you mean 'sandbox'"):
        schemas.schema("sandbx")


def test_generate_is_stable() -> None:
    files = schemas.generate(Path("/x"))
    names = ("sandbox", "result", "expect")
    assert set(files) == {Path(f"/x/schemas/{name}.json") for name in names}
    assert files == schemas.generate(Path("/x"))
    for path, text in files.items():
        assert json.loads(text) == schemas.schema(path.stem)


@pytest.mark.parametrize("name", ["sandbox", "expect"])
def test_every_field_is_described(name: str) -> None:
    document = schemas.schema(name)
    for model in (document, *document["$defs"].values()):
        for key, field in model["properties"].items():
            # A table has its model's description.
            assert "description" in field or "$ref" in json.dumps(field), key


def test_mistakes_do_not_fit() -> None:
    validator = jsonschema.Draft202012Validator(schemas.schema("sandbox"))
    for document in (
        {"networks": "none"},
        {"limits": {"memory_bytes": "12x"}},
        {"limits": {"pids": 0}},
        {"volumes": [{"target": "/a"}]},
        {"runtime": {"names": ["./crun"]}},
        {"terminal": 1},
    ):
        assert not validator.is_valid(document), document
    assert validator.is_valid({"volumes": ["/a:ro", {"source": "/a"}], "tmpfs": ["/t"]})


def result(**changes: Any) -> RunResult:
    fields: dict[str, Any] = {
        "id": "a",
        "command": ("true",),
        "termination": Termination.EXITED,
        "exit_code": 0,
        "signal": None,
        "captured_stdout": Captured(),
        "captured_stderr": Captured(),
        "runtime": RuntimeInfo("auto", "crun", "/usr/bin/crun", "1.0"),
        "usage": ResourceUsage(wall_s=0.1, oom_kills=0),
        "enforcement": {"memory": Enforced(5, None, EnforcementState.UNSUPPORTED, "no cgroup")},
        "bundle": None,
        "started_at": "2026-01-01T00:00:00+00:00",
        "timings": Timings(0.1, 0.1, 0.1, 0.1),
    }
    return RunResult(**{**fields, **changes})


def test_result_fits_its_schema() -> None:
    validator = jsonschema.Draft202012Validator(schemas.schema("result"))
    validator.validate(json.loads(result().to_json()))
    killed = result(termination=Termination.SIGNALED, exit_code=None, signal=9, bundle="/b")
    validator.validate(json.loads(killed.to_json()))


def test_result_schema_names_every_key() -> None:
    optional = {"stdout_base64", "stderr_base64"}
    assert set(schemas.schema("result")["properties"]) - optional == set(result().to_dict())
