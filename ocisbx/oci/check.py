"""Judge a parsed document by the rules of runtime-spec 1.3.0."""

import json
from collections.abc import Mapping
from typing import Literal

from ocisbx.oci.base import SpecModel
from ocisbx.oci.config import Spec
from ocisbx.oci.features import Features
from ocisbx.oci.state import State
from ocisbx.oci.violation import DocumentError, Violation

Kind = Literal["config", "state", "features"]
MODELS: Mapping[Kind, type[SpecModel]] = {"config": Spec, "state": State, "features": Features}


def violations(document: object, kind: Kind) -> list[Violation]:
    """All violations in a document, as `json.loads` gives it; none if it is a good one."""
    try:
        MODELS[kind].from_json(json.dumps(document))
    except DocumentError as error:
        return list(error.violations)
    except (TypeError, ValueError, RecursionError) as error:
        return [Violation("$", f"must be JSON: {error}")]
    return []
