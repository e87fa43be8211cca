"""Documents of the user (TOML, JSON, keywords) before any model sees them; standard library only.

Refuses what no field could hold and what would break a parser or a message further on: lone
surrogates, NUL, numbers beyond 64 bits, deep nesting, duplicate keys.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ocisbx.errors import ConfigError
from ocisbx.values import check_text, show

if TYPE_CHECKING:
    from pathlib import Path

K = TypeVar("K")
V = TypeVar("V")

Parser = Callable[[str], dict[str, Any]]

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 8
MAX_INTEGER = 1 << 64
READ_REMEDY = "give the path of a readable file in UTF-8"


class FrozenDict(dict[K, V]):
    """A dict that refuses changes, so that a frozen model is frozen to the bottom."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_keywords: object) -> NoReturn:
        message = "this table is part of a frozen configuration"
        raise TypeError(message)

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        # pickle and copy would fill an empty instance item by item.
        return type(self), (dict(self),)


def field_name(path: Iterable[object]) -> str:
    """`limits.rlimits`, `volumes[0].source`; a key that is no plain word is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = isinstance(part, str) and part.isascii() and part.replace("_", "a").isalnum()
            text += ("." if text else "") + (str(part) if plain else show(part))
    return text


def check_document(value: object, path: tuple[object, ...] = ()) -> None:
    """Raise ConfigError, with the field's path, for what no field could ever hold."""
    if len(path) > MAX_DEPTH:
        raise ConfigError(f"{field_name(path[:3])}: nested too deeply")
    if isinstance(value, str):
        try:
            check_text(value)
        except ConfigError as error:
            what = f"{field_name(path)}: {error.what}"
            raise ConfigError(what, why=error.why, remedy=error.remedy) from None
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ConfigError(f"{field_name(path)}: {show(value)} is beyond 64 bits")
    elif isinstance(value, Mapping):
        for key, content in value.items():
            if not isinstance(key, str):
                raise ConfigError(f"{field_name((*path, show(key)))}: a key is not a text")
            check_document(key, (*path, key))
            check_document(content, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, content in enumerate(value):
            check_document(content, (*path, index))


def expand_dotted(fields: Mapping[str, Any], tables: Iterable[str]) -> dict[str, Any]:
    """`{"limits.pids": 5}` as `{"limits": {"pids": 5}}`, for the names of tables only.

    Raises ConfigError when a field is given in both ways.
    """
    known = set(tables)
    expanded: dict[str, Any] = {}
    dotted: list[tuple[str, str, Any]] = []
    for name, content in fields.items():
        table, dot, field = name.partition(".")
        if dot and table in known:
            dotted.append((table, field, content))
        else:
            expanded[name] = content
    for table, field, content in dotted:
        inner = expanded.get(table, {})
        if not isinstance(inner, Mapping) or field in inner:
            raise ConfigError(f"{table}.{field} and {table} cannot be given together")
        expanded[table] = {**inner, field: content}
    return expanded


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: tables key by key, everything else is replaced."""
    merged = dict(base)
    for key, content in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(content, Mapping):
            merged[key] = merge(below, content)
        else:
            merged[key] = content
    return merged


def read_file(path: Path) -> str:
    """The text of a configuration file. Raises ConfigError: missing, too large, not UTF-8."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise ConfigError(f"{show(str(path))} is over {MAX_FILE_BYTES} bytes")
        return raw.decode()
    except OSError as error:
        what = f"{show(str(path))} cannot be read"
        why = (error.strerror or str(error)).lower()
        raise ConfigError(what, why=why, remedy=READ_REMEDY) from None
    except ValueError as error:  # not UTF-8, or a NUL in the path
        what = f"{show(str(path))} cannot be read"
        raise ConfigError(what, why=str(error), remedy=READ_REMEDY) from None


def show_path(path: PathLike[str]) -> str:
    """A path at the head of a message: plain where it is printable, else quoted."""
    text = fspath(path)
    return text if text.isprintable() else repr(text)


def to_json(document: Mapping[str, Any]) -> str:
    """JSON for people: indented, text as it is."""
    return json.dumps(document, ensure_ascii=False, indent=2)


def parse_toml(text: str) -> dict[str, Any]:
    """Raises ConfigError with the line of the mistake."""
    try:
        return tomllib.loads(text)
    # ValueError: also integers of thousands of digits and dates that do not exist.
    except (ValueError, RecursionError) as error:
        raise ConfigError("not valid TOML", why=_reason(error)) from None


def parse_json(text: str) -> dict[str, Any]:
    """Raises ConfigError with the line of the mistake; duplicate keys are one."""
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError("not valid JSON", why=_reason(error)) from None
    if not isinstance(document, dict):
        raise ConfigError("not a JSON object", why=f"it is {show(document)}")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{show(twice)} is there twice in one JSON object")
    return document


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
