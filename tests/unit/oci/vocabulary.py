"""Walks over the models by their annotations, for exhaustive and generated tests."""

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import JsonValue
from pydantic.fields import FieldInfo

from ocisbx.oci.base import SpecModel, spec_name
from ocisbx.oci.version import FIELDS, VALUES, VERSIONS, Version

SAMPLES = {
    r"^RLIMIT_[A-Z]+$": "RLIMIT_CPU",
    r"^[0-9, -]*$": "0-3",
    r"^[1-9][0-9]*[KMG]B$": "2MB",
    r"^[cbup]$": "c",
    r"^MB:[^\n]*$": "MB:0=10",
    r"^CAP_[A-Z_]+$": "CAP_KILL",
}


@dataclass(frozen=True)
class Shape:
    """A type without Optional and Annotated: origin, arguments and constraints."""

    origin: Any
    args: tuple[Any, ...]
    rules: dict[str, Any]


def shape(hint: Any) -> Shape:
    """Strip what pydantic needs and types do not: Annotated and `| None`."""
    rules: dict[str, Any] = {}
    while True:
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            rules |= _rules(args[1:])
            hint = args[0]
        elif origin in {Union, types.UnionType} and type(None) in args:
            (hint,) = (arg for arg in args if arg is not type(None))
        else:
            return Shape(origin or hint, args, rules)


def _rules(metadata: tuple[Any, ...]) -> dict[str, Any]:
    constraints = [
        constraint
        for item in metadata
        if isinstance(item, FieldInfo)
        for constraint in item.metadata
    ]
    return {
        rule: getattr(constraint, rule)
        for constraint in constraints
        for rule in ("ge", "le", "pattern", "min_length")
        if getattr(constraint, rule, None) is not None
    }


@cache
def hints(model: type[SpecModel]) -> dict[str, Any]:
    """Annotations of a model's fields, by Python name."""
    annotations = get_type_hints(model, include_extras=True)
    return {name: annotations[name] for name in model.model_fields}


def is_model(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, SpecModel)


def smallest(hint: Any) -> Any:
    """The smallest good JSON value of a type."""
    form = shape(hint)
    if is_model(form.origin):
        return {
            spec_name(name): smallest(hints(form.origin)[name])
            for name, field in form.origin.model_fields.items()
            if field.is_required()
        }
    if form.origin is tuple:
        return [smallest(form.args[0])] * form.rules.get("min_length", 0)
    if form.origin is Literal:
        return form.args[0]
    if form.origin is str:
        return SAMPLES[form.rules["pattern"]] if "pattern" in form.rules else "a"
    if form.origin is int:
        return max(form.rules.get("ge", 0), 0)
    return {dict: {}, bool: True}[form.origin]


@dataclass(frozen=True)
class Place:
    """A place in a document: `path` of keys, "[]" for items, "{}" for values of a map.

    `with_value` makes a document that is good but for this place, where the value stands.
    """

    path: tuple[str, ...]
    hint: Any
    needs: Version
    with_value: Callable[[Any], Any]


def places(model: type[SpecModel]) -> Iterator[Place]:
    """Every field, item and map value of a document, depth first."""
    yield from _places(Place((), model, "1.0.2", lambda value: value))


def _places(place: Place) -> Iterator[Place]:
    yield place
    form = shape(place.hint)
    if is_model(form.origin):
        siblings = smallest(place.hint)
        needs = FIELDS.get(form.origin, {})
        for name, hint in hints(form.origin).items():
            yield from _places(
                _below(place, spec_name(name), hint, needs.get(name, "1.0.2"), siblings)
            )
    elif form.origin is tuple:
        yield from _places(_below(place, "[]", form.args[0], "1.0.2", []))
    elif form.origin is dict and shape(form.args[1]).origin is not JsonValue:
        yield from _places(_below(place, "{}", form.args[1], "1.0.2", {}))


def _below(place: Place, step: str, hint: Any, needs: Version, siblings: Any) -> Place:
    def with_value(value: Any) -> Any:
        return place.with_value([value] if step == "[]" else {**siblings, step: value})

    return Place((*place.path, step), hint, _later(place.needs, needs), with_value)


def _later(one: Version, other: Version) -> Version:
    return max(one, other, key=VERSIONS.index)


def words(model: type[SpecModel]) -> Iterator[tuple[Place, str, Version]]:
    """Every word of every enumeration: its place, and the version that it needs."""
    tables: dict[tuple[str, ...], Mapping[str, Version]] = {}
    for place in places(model):
        form = shape(place.hint)
        for name, table in VALUES.get(form.origin, {}).items():
            tables[*place.path, spec_name(name)] = table
        if form.origin is Literal:
            field = place.path[:-1] if place.path[-1] == "[]" else place.path
            for word in form.args:
                yield place, word, _later(place.needs, tables.get(field, {}).get(word, "1.0.2"))
