"""The base of all models of the runtime-spec: how names, absence and unknown fields are treated.

* Python names are snake_case, the document's names are the spec's. Models are built by Python
  name; a document is read by the spec's names only, so that a foreign `no_new_privileges` stays
  the unknown field that it is for a runtime.
* None is "not set" and is never written. In a document null is refused, as the schema does.
* Unknown fields are kept at every level and written back unchanged, after the known ones.
* Types are strict: 1.0 and true are no integers (JSON Schema draft 4, and Go's encoding/json).
"""

import json
import math
from functools import cache
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from ocisbx.oci.violation import DocumentError, violations_in

T = TypeVar("T")


class _NotNull:
    """None may be passed from Python; null may not stand in a document."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        nullable = handler(source)
        if nullable["type"] != "nullable":
            raise TypeError(source)
        return core_schema.json_or_python_schema(nullable["schema"], nullable)


def _writable(value: JsonValue) -> JsonValue:
    # Pydantic takes NaN, 1e999 and unpaired surrogates, which are no JSON text (RFC 8259).
    if isinstance(value, float) and not math.isfinite(value):
        message = "must be a finite number"
        raise ValueError(message)
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            _writable(part)
    return value


Opt = Annotated[T | None, _NotNull()]
Json = Annotated[JsonValue, AfterValidator(_writable)]

Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Uint8 = Annotated[int, Field(ge=0, le=2**8 - 1)]
Uint16 = Annotated[int, Field(ge=0, le=2**16 - 1)]
Uint32 = Annotated[int, Field(ge=0, le=2**32 - 1)]
Uint64 = Annotated[int, Field(ge=0, le=2**64 - 1)]
FileMode = Annotated[int, Field(ge=0, le=0o777)]
Strings = tuple[str, ...]
StringMap = dict[str, str]

# Words that the spec writes in its own way, where they do not open a name.
_WORDS = {
    "cpu": "CPU",
    "dns": "DNS",
    "gfn": "GFN",
    "id": "ID",
    "io": "IO",
    "iops": "IOPS",
    "mfn": "MFN",
    "mfns": "MFNs",
    "oom": "OOM",
    "tcp": "TCP",
    "vm": "VM",
}
_NAMES = {"class_": "class", "dns_search_list": "DNSSearchList"}


def spec_name(name: str) -> str:
    """The spec's name of a field: `disable_oom_killer` is `disableOOMKiller`."""
    if name in _NAMES:
        return _NAMES[name]
    first, *rest = name.split("_")
    return first + "".join(_WORDS.get(word, word.capitalize()) for word in rest)


class SpecModel(BaseModel):
    """A frozen object of the runtime-spec; build changed ones with `model_copy(update=...)`."""

    model_config = ConfigDict(
        alias_generator=spec_name,
        # Nested models are compiled once, as part of the document that is used first.
        defer_build=True,
        extra="allow",
        frozen=True,
        # Any limit makes pydantic refuse unpaired surrogates: names of files that are no UTF-8.
        str_min_length=0,
        strict=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    # The way that pydantic documents to give unknown fields a type.
    __pydantic_extra__: dict[str, Json]  # type: ignore[mutable-override]

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a document by the rules of runtime-spec 1.3.0.

        Raises DocumentError, which names the JSON path and the rule of each violation.
        """
        try:
            return cls.model_validate_json(text, by_alias=True, by_name=False)
        except ValidationError as error:
            raise DocumentError(violations_in(error)) from None

    def to_dict(self) -> dict[str, Any]:
        """The document: what was set or read and nothing else, sharing nothing with the model."""
        known = {
            key: _plain(value)
            for name, key in _keys(type(self))
            if (value := getattr(self, name)) is not None
        }
        unknown = {key: _plain(value) for key, value in (self.model_extra or {}).items()}
        return known | unknown

    def to_json(self, *, indent: int | None = None) -> str:
        """The document as text in UTF-8's range, compact unless an indent (in spaces) is given."""
        separators = (",", ":") if indent is None else None
        return json.dumps(
            self.to_dict(),
            allow_nan=False,
            ensure_ascii=False,
            indent=indent,
            separators=separators,
        )


@cache
def _keys(model: type[SpecModel]) -> tuple[tuple[str, str], ...]:
    return tuple((name, spec_name(name)) for name in model.model_fields)


def _plain(value: object) -> object:
    if isinstance(value, SpecModel):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
