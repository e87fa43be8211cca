"""What differs between two JSON documents, as paths: `bundle diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.oci.violation import json_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    Place = tuple[str | int, ...]


class _Absent:
    """What stands for a value that one side does not have."""


ABSENT = _Absent()


class Difference(NamedTuple):
    """One place at which the documents differ; ABSENT where a side has nothing there."""

    path: str
    left: Any
    right: Any


def differences(left: object, right: object) -> list[Difference]:
    """Every difference, in the documents' order; objects by key, arrays by position."""
    return [Difference(json_path(where), a, b) for where, a, b in _walk((), left, right)]


def _walk(where: Place, left: Any, right: Any) -> Iterator[tuple[Place, Any, Any]]:  # noqa: ANN401 -- JSON
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys([*left, *right]):
            yield from _walk((*where, key), left.get(key, ABSENT), right.get(key, ABSENT))
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            yield from _walk((*where, index), _at(left, index), _at(right, index))
    # JSON's true is not its 1, which Python takes for equal.
    elif left != right or isinstance(left, bool) != isinstance(right, bool):
        yield where, left, right


def _at(items: list[Any], index: int) -> Any:  # noqa: ANN401 -- JSON
    return items[index] if index < len(items) else ABSENT
