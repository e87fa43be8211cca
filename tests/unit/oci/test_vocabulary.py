"""The models hold exactly 1.3.0's vocabulary, and know since when each word exists.

Compared with the schemas in ../shared, property by property and word by word.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from ocisbx.oci import VERSIONS, Kind, Version, lowest_version
from ocisbx.oci.check import MODELS
from tests.unit.oci.shared_spec import KINDS, runtime_spec, schemas
from tests.unit.oci.vocabulary import Place, places, smallest, words

runtime_spec()


@cache
def schema_paths(version: Version, kind: Kind) -> frozenset[tuple[str, ...]]:
    if kind == "features" and version == "1.0.2":
        return frozenset()
    name = f"{kind}-schema.json"
    files = schemas(version, strict=True)
    return frozenset(_walk(files, name, files[name], ()))


def _walk(files: Any, file: str, schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if "$ref" in schema:
        target, pointer = schema["$ref"].split("#")
        file = target or file
        schema = files[file]
        for step in pointer.strip("/").split("/"):
            schema = schema[step]
        yield from _walk(files, file, schema, path)
        return
    yield path
    yield from ((*path, f"={word}") for word in schema.get("enum", ()))
    for part in (*schema.get("allOf", ()), *schema.get("anyOf", ())):
        yield from _walk(files, file, part, path)
    below = [
        *schema.get("properties", {}).items(),
        *(("{}", part) for part in schema.get("patternProperties", {}).values()),
        *(("{}", schema[key]) for key in ("additionalProperties",) if key in schema),
        *(("[]", schema[key]) for key in ("items",) if key in schema),
    ]
    for step, part in below:
        yield from _walk(files, file, part, (*path, step))


@pytest.mark.parametrize("kind", KINDS)
def test_models_hold_exactly_the_vocabulary_of_the_newest_schema(kind: Kind) -> None:
    ours = {place.path for place in places(MODELS[kind])}
    ours |= {(*place.path, f"={word}") for place, word, _ in words(MODELS[kind])}
    assert ours == schema_paths("1.3.0", kind)


@pytest.mark.parametrize("version", ["1.0.2", "1.1.0", "1.2.1", "1.3.0"])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_say_what_the_schema_of_each_version_has(kind: Kind, version: Version) -> None:
    floor: Version = "1.1.0" if kind == "features" else "1.0.2"
    known = schema_paths(version, kind)
    claims = {place.path: place.needs for place in places(MODELS[kind])}
    claims |= {(*place.path, f"={word}"): needs for place, word, needs in words(MODELS[kind])}
    for path, needs in claims.items():
        enough = VERSIONS.index(max(needs, floor)) <= VERSIONS.index(version)
        assert (path in known) == enough, path


@pytest.mark.parametrize("kind", KINDS)
def test_lowest_version_of_every_field_and_word(kind: Kind) -> None:
    def lowest(place: Place, value: Any) -> Version:
        return lowest_version(MODELS[kind].from_json(json.dumps(place.with_value(value))))

    floor: Version = "1.1.0" if kind == "features" else "1.0.2"
    for place in places(MODELS[kind]):
        assert lowest(place, smallest(place.hint)) == max(place.needs, floor), place.path
    for place, word, needs in words(MODELS[kind]):
        assert lowest(place, word) == max(needs, floor), (place.path, word)
