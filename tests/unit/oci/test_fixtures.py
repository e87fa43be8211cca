"""The runtime-spec's own fixtures (data in ../shared).

None is left out: also the sections of other platforms are modelled, so a fixture of z/OS or
FreeBSD is held to the same as one of Linux.
"""

import json
from pathlib import Path

import pytest

from ocisbx.oci import DocumentError, Kind, violations
from ocisbx.oci.check import MODELS
from tests.unit.oci.shared_spec import FOLDERS, KINDS, fixture_paths, fixtures


@pytest.mark.parametrize(("kind", "path"), fixtures("good"))
def test_good_fixture_is_written_back_equal(kind: Kind, path: Path) -> None:
    document = json.loads(path.read_bytes())
    model = MODELS[kind].from_json(path.read_bytes())
    assert model.to_dict() == document
    assert json.loads(model.to_json()) == document
    assert violations(document, kind) == []


@pytest.mark.parametrize(("kind", "path"), fixtures("bad"))
def test_bad_fixture_is_refused(kind: Kind, path: Path) -> None:
    with pytest.raises(DocumentError, match=r"^\$"):
        MODELS[kind].from_json(path.read_bytes())


def test_all_versions_and_kinds_are_there() -> None:
    for quality in ("good", "bad"):
        folders = {
            (path.parts[-5], kind) for kind in KINDS for path in fixture_paths(quality, kind)
        }
        assert folders == {
            *((version, kind) for version in set(FOLDERS.values()) for kind in KINDS)
        } - {("v1.0.2", "features")}
