"""A document, or a file, in; a Script out, or all that is wrong with it, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ocisbx.config_errors import problem_text
from ocisbx.documents import MAX_FILE_BYTES, check_document, field_name, parse_toml
from ocisbx.errors import ConfigError
from ocisbx.expect.contradictions import Problem, contradictions
from ocisbx.expect.lines import Path, line_of, locate
from ocisbx.expect.script import KINDS, Case, Script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

REMEDY = "ocisbx-expect(5) explains the file; `ocisbx schema expect` lists the fields"


def build_script(document: Mapping[str, Any]) -> Script:
    """A script from a parsed document.

    Raises:
        ConfigError: it is no script; one line a problem.
    """
    check_document(document)
    script, found = _checked(document)
    if script is None:
        raise _refused(found, {}, "")
    return script


def parse_script(text: str, name: str) -> Script:
    """The script in `text`, a file called `name` in messages.

    Raises:
        ConfigError: it is too large, no TOML, or no script; one line a problem: NAME:LINE: FIELD.
    """
    if len(text.encode(errors="replace")) > MAX_FILE_BYTES:
        raise ConfigError(f"{name} is over {MAX_FILE_BYTES} bytes")
    try:
        document = parse_toml(text)
        check_document(document)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.what}", why=error.why, remedy=error.remedy) from None
    script, found = _checked(document)
    if script is None:
        raise _refused(found, locate(text), name)
    return script


def _checked(document: Mapping[str, Any]) -> tuple[Script | None, list[Problem]]:
    """The script, or what is wrong with it."""
    try:
        script = Script.model_validate(document)
    except ValidationError as error:
        details = _without_echoes(error.errors(include_url=False))
        return None, [Problem(_path(detail), _text(detail)) for detail in details]
    found = list(contradictions(script))
    return (None if found else script), found


def _refused(found: list[Problem], lines: dict[Path, int], name: str) -> ConfigError:
    sentences = []
    for path, problem in sorted(found, key=lambda item: line_of(lines, item.path)):
        line = line_of(lines, path)
        where = ":".join(filter(None, [name, str(line or "")]))
        sentences.append(": ".join(filter(None, [where, field_name(path), problem])))
    if len(sentences) == 1:
        return ConfigError(sentences[0], remedy=REMEDY)
    head = f"the script has {len(sentences)} problems:"
    return ConfigError("\n  ".join([head, *sentences]), remedy=REMEDY)


def _path(detail: ErrorDetails) -> tuple[str | int, ...]:
    """Where, without the kind that pydantic puts before the fields of a step."""
    path = [part for part in detail["loc"] if part != "[key]"]
    if len(path) > 2 and path[0] == "steps" and path[2] in KINDS:
        del path[2]
    return tuple(path)


def _without_echoes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """A list whose every element is wrong is also too short for pydantic: that says nothing."""
    places = [detail["loc"] for detail in details]
    return [
        detail
        for detail in details
        if detail["type"] != "too_short"
        or not any(len(o) > len(detail["loc"]) and _below(o, detail["loc"]) for o in places)
    ]


def _below(inner: tuple[str | int, ...], outer: tuple[str | int, ...]) -> bool:
    return inner[: len(outer)] == outer


def _text(detail: ErrorDetails) -> str:
    place = detail["loc"]
    model: type[BaseModel] = Script
    if len(place) > 2 and place[0] == "steps" and place[2] in KINDS:
        model = Case if "cases" in place[3:-1] else KINDS[str(place[2])]
    return problem_text(detail, model)
