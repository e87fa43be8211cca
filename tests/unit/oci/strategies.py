"""Hypothesis strategies for models, JSON values and mutated documents."""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from hypothesis import strategies as st
from pydantic import JsonValue

from ocisbx.oci import Kind
from ocisbx.oci.base import SpecModel
from ocisbx.oci.check import MODELS
from ocisbx.oci.version import VALUES
from tests.unit.oci.vocabulary import Shape, hints, is_model, shape

TEXT = st.text(max_size=6)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
UNKNOWN = st.dictionaries(
    st.sampled_from(("x-a", "enableCMT", "no_new_privileges_", "model_dump", "__class__")),
    JSON,
    max_size=1,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type as its model's constructor takes them."""
    form = shape(hint)
    return models(form.origin) if is_model(form.origin) else _VALUES[form.origin](form)


def _tuples(form: Shape) -> st.SearchStrategy[tuple[Any, ...]]:
    least = form.rules.get("min_length", 0)
    return st.lists(values(form.args[0]), min_size=least, max_size=2).map(tuple)


def _texts(form: Shape) -> st.SearchStrategy[str]:
    pattern = form.rules.get("pattern")
    return TEXT if pattern is None else st.from_regex(pattern, fullmatch=True)


_VALUES: dict[Any, Callable[[Shape], st.SearchStrategy[Any]]] = {
    JsonValue: lambda _: JSON,
    Literal: lambda form: st.sampled_from(form.args),
    bool: lambda _: st.booleans(),
    dict: lambda form: st.dictionaries(TEXT, values(form.args[1]), max_size=2),
    int: lambda form: st.integers(form.rules.get("ge"), form.rules.get("le")),
    str: _texts,
    tuple: _tuples,
}


@cache
def models(model: type[SpecModel]) -> st.SearchStrategy[Any]:
    """Any model of this class, with all its fields in reach and with unknown ones."""
    fields = {name: _field(model, name, hint) for name, hint in hints(model).items()}
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    known = st.fixed_dictionaries(
        {name: fields[name] for name in fields if name in required},
        optional={name: fields[name] for name in fields if name not in required},
    )
    return st.builds(lambda known, unknown: model(**known, **unknown), known, UNKNOWN)


def _field(model: type[SpecModel], name: str, hint: Any) -> st.SearchStrategy[Any]:
    field = st.deferred(lambda: values(hint))
    if (table := VALUES.get(model, {}).get(name)) and shape(shape(hint).args[0]).origin is str:
        return field | st.lists(st.sampled_from(sorted(table)), max_size=2).map(tuple)
    return field


# Values on both sides of every bound, pattern and type of the spec.
SUSPECTS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.0, 0.5, -0.0, 1e300),
    *(
        sign * 2**bits + step
        for sign in (1, -1)
        for bits in (8, 16, 31, 32, 63, 64)
        for step in (-1, 0, 1)
    ),
    *(511, 512, 10**400, "", "a", "A", " ", "0", "\n", "é", "\0"),
    *("RLIMIT_CPU", "RLIMIT_", "RLIMIT_cpu", "xRLIMIT_CPU", "RLIMIT_CPU\n", "RLIMIT_CPU2"),
    *("0-3", "0-3\n", "0;3", "٣", "2MB", "0MB", "64kB", "2MB\n", "2TB", "12GB", "x2MB"),
    *("c", "cc", "c\n", "d", "MB:0=1", "MB:0\n1", "xMB:", "CAP_KILL", "CAP_", "CAP_kill"),
    *("SCMP_ACT_ALLOW", "scmp_act_allow", "SCMP_ARCH_X86", "private", "Private", "inherit", "pid"),
    *([], [None], [0], [""], ["a"], ["a", 1], [{}], [[]], {}, {"a": None}, {"a": 0}, {"a": "a"}),
    *({"": "a"}, {"a": {}}, {"a": []}, {"path": "a"}, {"type": "pid"}, {"enabled": 1}),
)


@st.composite
def mutated(draw: st.DrawFn, kind: Kind, originals: list[Any]) -> Any:
    """A fixture or generated document in which one to three places are changed."""
    whole = st.sampled_from(originals) | models(MODELS[kind]).map(lambda model: model.to_dict())
    document = draw(whole)
    for _ in range(draw(st.integers(1, 3))):
        document = _change(draw, document)
    return document


def _change(draw: st.DrawFn, value: Any) -> Any:
    """Go down at random, then replace, delete, rename, repeat or add."""
    if not isinstance(value, list | dict) or not value or draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(SUSPECTS) | JSON)
    if isinstance(value, list):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], *_versions(draw, value[place]), *value[place + 1 :]]
    key = draw(st.sampled_from(sorted(value)))
    rest = {name: item for name, item in value.items() if name != key}
    new_key = draw(st.sampled_from((key, key, key, key.upper(), key + "_", "")))
    changed = _versions(draw, value[key])
    return {**rest, new_key: changed[-1]} if changed else rest


def _versions(draw: st.DrawFn, value: Any) -> list[Any]:
    changed = _change(draw, value)
    return draw(st.sampled_from(([changed], [changed], [changed], [], [value, changed])))
