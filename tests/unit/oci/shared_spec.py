"""The runtime-spec's schemas and fixtures: data that these tests read in ../shared.

Where that folder is absent the tests are skipped, unless the environment variable CI is set.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft4Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

from ocisbx.oci import Kind, Version

PROJECT = Path(__file__).resolve().parents[3]

KINDS: tuple[Kind, ...] = get_args(Kind)
# No schema of 1.2.0 lies there; 1.2.1's is a superset that differs in fields which need 1.2.1.
FOLDERS: dict[Version, str] = {
    "1.0.2": "v1.0.2",
    "1.1.0": "v1.1.0",
    "1.2.0": "v1.2.1",
    "1.2.1": "v1.2.1",
    "1.3.0": "v1.3.0",
}


def runtime_spec() -> Path:
    """The folder, or a skipped module."""
    folder = PROJECT.parent / "shared" / "runtime-spec"
    if not folder.is_dir():
        if "CI" in os.environ:
            message = f"{folder} is absent, and CI is set"
            raise FileNotFoundError(message)
        pytest.skip(f"{folder} is absent", allow_module_level=True)
    return folder


def fixture_paths(quality: str, kind: Kind) -> list[Path]:
    """The "good" or "bad" fixtures of one kind of document, of all versions."""
    return sorted(runtime_spec().glob(f"v*/test/{kind}/{quality}/*.json"))


def fixtures(quality: str) -> list[Any]:
    """Parameters (kind, path) of the fixtures of all kinds."""
    return [
        pytest.param(kind, path, id="-".join((path.parts[-5], kind, path.name)))
        for kind in KINDS
        for path in fixture_paths(quality, kind)
    ]


@cache
def schemas(version: Version, *, strict: bool = False) -> dict[str, Any]:
    """All schemas of a version by file name, as they are or in the strict reading of `_strict`."""
    files = {
        path.name: json.loads(path.read_text(), object_hook=_strict if strict else _resolvable)
        for path in (runtime_spec() / FOLDERS[version]).glob("*.json")
    }
    if strict and version == "1.3.0":
        # features-linux.md has these, the schema has not.
        features = files["features-linux.json"]["linux"]["properties"]
        features["intelRdt"]["properties"] |= {
            name: {"type": "boolean"} for name in ("schemata", "monitoring")
        }
    return files


def _resolvable(part: dict[str, Any]) -> dict[str, Any]:
    """Mend a pointer of 1.3.0 that lacks its slash (corrected by its authors since)."""
    reference = part.get("$ref")
    if isinstance(reference, str):
        part["$ref"] = reference.replace("#definitions/", "#/definitions/")
    return part


def _strict(part: dict[str, Any]) -> dict[str, Any]:
    """Read as the spec's text does, where the schema's notation is laxer.

    Every value of a map of strings is a string, also below an empty key; "$" is the end, also
    before a line feed (so in ECMA 262, not in Python); "items" as a list judges the first item
    only (corrected by its authors since).
    """
    match part:
        case {"pattern": str(pattern)}:
            part["pattern"] = pattern.removesuffix("$") + r"\Z"
        case {"patternProperties": {".{1,}": values}}:
            part["patternProperties"] = {"": values}
        case {"items": [only]}:
            part["items"] = only
        case _:
            pass
    return _resolvable(part)


@cache
def validator(version: Version, kind: Kind, *, strict: bool = False) -> Draft4Validator:
    """The schema of a kind of document; the files refer to each other by relative name."""
    files = schemas(version, strict=strict)
    registry: Registry[Any] = Registry().with_resources(
        (name, Resource.from_contents(content, default_specification=DRAFT4))
        for name, content in files.items()
    )
    return Draft4Validator(files[f"{kind}-schema.json"], registry=registry)
