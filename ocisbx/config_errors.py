"""Pydantic's list of problems as one ConfigError in our words: one line a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from ocisbx.documents import field_name
from ocisbx.errors import ConfigError
from ocisbx.values import did_you_mean, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

# Kinds of problem (pydantic_core's names) that say all in few words.
EXPECTED: dict[str, str] = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "mapping_type": "a table",
    "model_attributes_type": "a table",
    "model_type": "a table",
    "string_type": "a text",
    "string_unicode": "a text in UTF-8",
    "tuple_type": "a list",
}

FIELDS_REMEDY = "`ocisbx schema sandbox` lists the fields, ocisbx-config(5) explains them"


def config_error(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """One ConfigError for all problems; `remedy` holds those that the parsers gave."""
    details = error.errors(include_url=False)
    lines = [f"{_where(detail)}: {problem_text(detail, model)}" for detail in details]
    remedies = [detail.get("ctx", {}).get("remedy", "") for detail in details]
    if any(detail["type"] == "extra_forbidden" for detail in details):
        remedies.append(FIELDS_REMEDY)
    remedy = "; ".join(dict.fromkeys(filter(None, remedies)))
    if len(lines) == 1:
        return ConfigError(lines[0], remedy=remedy)
    head = f"the configuration has {len(lines)} problems:"
    return ConfigError("\n  ".join([head, *lines]), remedy=remedy)


def _where(detail: ErrorDetails) -> str:
    # pydantic marks the key of a table, as against its value, by one more element.
    return field_name(part for part in detail["loc"] if part != "[key]") or "configuration"


def problem_text(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """One problem of pydantic's list in our words; `model` is where names of fields come from."""
    kind, given = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        return f"unknown field{_near_field(str(detail['loc'][-1]), model)}"
    if kind == "missing":
        return "missing"
    if kind == "literal_error":
        known = detail["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        near = did_you_mean(given, known) if isinstance(given, str) else ""
        return f"{show(given)} is not known: expected one of {', '.join(known)}{near}"
    if kind in EXPECTED:
        return f"{show(given)} is not {EXPECTED[kind]}"
    return detail["msg"]


def _near_field(name: str, model: type[BaseModel]) -> str:
    """A hint by the last word, so that `memory` leads to `limits.memory_bytes`."""
    dotted = {path.rpartition(".")[2]: path for path in field_paths(model)}
    near = did_you_mean(name, dotted)
    for last, path in dotted.items():
        if f"{last!r}?" in near:
            return near.replace(f"{last!r}?", f"{path!r}?")
    return near


def field_paths(model: type[Any], prefix: str = "") -> Iterator[str]:
    """`preset`, `limits.memory_bytes`, `volumes.source`: every field that a document can have."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for inner in _models_in(field.annotation):
            yield from field_paths(inner, f"{prefix}{name}.")


def _models_in(annotation: object) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
