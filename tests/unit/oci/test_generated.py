"""Generated models against the schemas of the versions that they name (data in ../shared)."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocisbx.oci import Features, Kind, Spec, State, lowest_version, violations
from ocisbx.oci.check import MODELS
from ocisbx.oci.version import VERSIONS
from tests.unit.oci.shared_spec import KINDS, fixture_paths, validator
from tests.unit.oci.strategies import SUSPECTS, models, mutated
from tests.unit.oci.vocabulary import places

ORIGINALS: dict[Kind, list[Any]] = {
    kind: [json.loads(path.read_bytes()) for path in fixture_paths("good", kind)] for kind in KINDS
}
SETTINGS = settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SETTINGS
@given(models(Spec))
def test_config_passes_the_schema_of_the_lowest_version(spec: Spec) -> None:
    version = lowest_version(spec)
    document = spec.model_copy(update={"oci_version": version}).to_dict()
    validator(version, "config").validate(document)
    validator("1.3.0", "config").validate(document)


@SETTINGS
@given(models(State) | models(Features))
def test_state_and_features_pass_the_schema_of_the_lowest_version(model: Any) -> None:
    kind: Kind = "state" if isinstance(model, State) else "features"
    version = lowest_version(model)
    name = "oci_version" if kind == "state" else "oci_version_max"
    document = model.model_copy(update={name: version}).to_dict()
    for later in VERSIONS[VERSIONS.index(version) :]:
        validator(later, kind).validate(document)


@SETTINGS
@given(
    st.sampled_from(KINDS).flatmap(lambda kind: models(MODELS[kind])), st.sampled_from((None, 2))
)
def test_what_is_written_is_read_equal(model: Any, indent: int | None) -> None:
    text = model.to_json(indent=indent)
    again = type(model).from_json(text)
    assert again == model
    assert again.to_json(indent=indent) == text
    assert json.loads(text) == model.to_dict()


def judge(document: Any, kind: Kind) -> None:
    """We refuse what the schema refuses, and accept what also its strict reading accepts."""
    refused = violations(document, kind)
    assert all(one.path.startswith("$") and one.rule[0].islower() for one in refused), refused
    if not validator("1.3.0", kind).is_valid(document):
        assert refused, "the schema refuses it"
    elif validator("1.3.0", kind, strict=True).is_valid(document):
        assert not refused, "the schema accepts it"
        assert MODELS[kind].from_json(json.dumps(document)).to_dict() == document


@pytest.mark.parametrize("kind", KINDS)
def test_every_suspect_in_every_place_is_judged_like_the_schema_does(kind: Kind) -> None:
    for place in places(MODELS[kind]):
        for suspect in SUSPECTS:
            judge(place.with_value(suspect), kind)


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(data=st.data())
def test_mutated_document_is_judged_like_the_schema_does(kind: Kind, data: st.DataObject) -> None:
    judge(data.draw(mutated(kind, ORIGINALS[kind])), kind)
