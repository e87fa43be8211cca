"""What is wrong with a document, as JSON path and rule in plain words."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

# By pydantic's type of an error; the names in braces are of that error's context.
RULES: Mapping[str, str] = {
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be an integer",
    "json_invalid": "must be JSON: {error}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be one of {expected}",
    "missing": "is required",
    "model_type": "must be an object",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "string_type": "must be a string",
    "string_unicode": "must be JSON: a string has an unpaired surrogate",
    "too_short": "must have at least {min_length} item",
    "tuple_type": "must be an array",
    "value_error": "{error}",
}

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: `path` is like `$.process.rlimits[0].type`, `rule` like "is required"."""

    path: str
    rule: str

    def __str__(self) -> str:
        return f"{self.path} {self.rule}"


class DocumentError(ValueError):
    """A document of the runtime-spec breaks its rules; `violations` names every one of them."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        super().__init__("; ".join(map(str, violations)))
        self.violations = violations


def json_path(location: tuple[str | int, ...]) -> str:
    """JSONPath (RFC 9535) of a place in a document; names that are no identifiers are quoted."""
    steps = (
        f"[{step}]"
        if isinstance(step, int)
        else (f".{step}" if _IDENTIFIER.fullmatch(step) else f"[{json.dumps(step)}]")
        for step in location
    )
    return "$" + "".join(steps)


def violations_in(error: ValidationError) -> tuple[Violation, ...]:
    """Translate what pydantic found, in the order of the models' fields."""
    return tuple(
        Violation(json_path(found["loc"]), _rule(found["type"], found["msg"], found.get("ctx", {})))
        for found in error.errors(include_url=False, include_input=False)
    )


def _rule(kind: str, message: str, context: dict[str, Any]) -> str:
    template = RULES.get(kind)
    return message if template is None else template.format(**context)
