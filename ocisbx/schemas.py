"""JSON schemas of what we read and write: the files in schemas/, and `ocisbx schema NAME`."""

from __future__ import annotations

import ast
import inspect
import json
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic takes typing's from Python 3.12 on only

from ocisbx import config, result
from ocisbx.errors import ConfigError
from ocisbx.expect import script
from ocisbx.values import did_you_mean, show

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(name: str) -> dict[str, Any]:
    """The JSON schema called `name`. Raises ConfigError for an unknown name."""
    if name not in SCHEMAS:
        why = f"expected one of {', '.join(SCHEMAS)}{did_you_mean(name, SCHEMAS)}"
        raise ConfigError(f"{show(name)} is not a schema", why=why)
    return {"$schema": DIALECT, **SCHEMAS[name]()}


def generate(root: Path) -> dict[Path, str]:
    """The files of `root`/schemas and their text, for tools/generate."""
    return {
        root / "schemas" / f"{name}.json": json.dumps(schema(name), indent=2) + "\n"
        for name in SCHEMAS
    }


def sandbox_schema() -> dict[str, Any]:
    """SandboxConfig as TOML or JSON, with the descriptions of its fields."""
    document = _described(config.SandboxConfig, config)
    volume = document["$defs"]["Volume"]
    volume["required"].remove("target")
    volumes = document["properties"]["volumes"]
    volumes["items"] = {"anyOf": [{"type": "string"}, volumes["items"]]}
    return document


def expect_schema() -> dict[str, Any]:
    """The file of `ocisbx expect`, with the descriptions of its fields."""
    return _described(script.Script, script)


def _described(model: type[BaseModel], module: ModuleType) -> dict[str, Any]:
    """The schema of a model; descriptions are the texts under the fields in its module."""
    document = model.model_json_schema()
    texts = field_texts(module)
    for name, content in {model.__name__: document, **document["$defs"]}.items():
        classes = [base.__name__ for base in getattr(module, name).__mro__]
        for field, part in content["properties"].items():
            part.pop("title", None)
            told = [texts[base, field] for base in classes if (base, field) in texts]
            if told:
                part["description"] = told[0]
    return document


def field_texts(module: ModuleType) -> dict[tuple[str, str], str]:
    """(class, field): the text under the field in the module's source.

    Read from the source here, because pydantic's use_attribute_docstrings does that at every
    import, for 15 ms.
    """
    texts: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                texts[node.name, field.target.id] = " ".join(str(text.value.value).split())
    return texts


def result_schema() -> dict[str, Any]:
    """RunResult as `--json` and `to_json()` print it (result.RunResult.to_dict)."""
    definitions: dict[str, Any] = {}

    def part(kind: type) -> dict[str, Any]:
        content = TypeAdapter(_table(kind)).json_schema(ref_template="#/$defs/{model}")
        definitions.update(content.pop("$defs", {}))
        # Every key is always written; null where nothing was measured.
        return _closed(content)

    properties: dict[str, Any] = {
        "id": {"type": "string"},
        "command": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "termination": {"enum": [member.value for member in result.Termination]},
        "exit_code": _nullable("integer", "null unless exited"),
        "signal": _nullable("integer", "null unless a signal ended the payload"),
        **_stream("stdout"),
        **_stream("stderr"),
        "runtime": part(result.RuntimeInfo),
        "usage": part(result.ResourceUsage),
        "enforcement": {"type": "object", "additionalProperties": part(result.Enforced)},
        "bundle": _nullable("string", "path of the kept bundle"),
        "started_at": {"type": "string", "format": "date-time"},
        "timings": part(result.Timings),
    }
    optional = {"stdout_base64", "stderr_base64"}
    return {
        "title": "RunResult",
        "description": inspect.getdoc(result.RunResult),
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        "$defs": {name: _closed(content) for name, content in definitions.items()},
    }


def _table(kind: Any) -> Any:  # noqa: ANN401 -- a NamedTuple's class; a TypedDict
    """The object that a NamedTuple's `_asdict()` is, down to the bottom."""
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return kind
    hints = {name: _table(hint) for name, hint in get_type_hints(kind).items()}
    table: Any = TypedDict(kind.__name__, hints)  # type: ignore[misc]
    table.__doc__ = kind.__doc__
    return table


def _stream(name: str) -> dict[str, Any]:
    return {
        name: {"type": "string", "description": "text, U+FFFD where it is not UTF-8"},
        f"{name}_base64": {"type": "string", "description": "the bytes, where the text lost some"},
        f"{name}_path": _nullable("string", "where the stream was kept"),
        f"{name}_bytes": {"type": "integer", "minimum": 0, "description": "all that was written"},
        f"{name}_truncated": {"type": "boolean"},
    }


def _nullable(kind: str, description: str) -> dict[str, Any]:
    return {"type": [kind, "null"], "description": description}


def _closed(content: dict[str, Any]) -> dict[str, Any]:
    if content.get("type") != "object":
        return content
    names = list(content["properties"])
    return {**content, "required": names, "additionalProperties": False}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "sandbox": sandbox_schema,
    "result": result_schema,
    "expect": expect_schema,
}
