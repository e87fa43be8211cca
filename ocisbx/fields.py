"""Types of SandboxConfig's fields: each the value, its parser from `ocisbx.values`, its schema.

A parser's refusal becomes one problem of pydantic's list, so that all problems are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from ocisbx import capabilities, commands, mounts, quantities, values
from ocisbx.documents import FrozenDict
from ocisbx.errors import ConfigError
from ocisbx.presets import PRESETS

ENFORCEMENT_NAMES = (
    "memory",
    "swap",
    "cpus",
    "pids",
    "io",
    "rlimits",
    "network",
    "seccomp",
    "capabilities",
    "no_new_privileges",
    "user_namespace",
    "read_only_root",
    "filesystem",
    "landlock",
    "kernel",
)
RUNTIME_NAMES = ("auto", "strongest", "crun", "runc", "youki", "runsc")


# ------------------------------------------------------------------------- parsers as field types
def parsed(parser: Callable[[Any], Any]) -> BeforeValidator:
    """A parser of ours as pydantic's: its refusal becomes one problem among others."""

    def validate(value: Any) -> Any:  # noqa: ANN401 -- whatever a document holds
        try:
            return parser(value)
        except ConfigError as error:
            raise problem(str(error), error.remedy) from None

    return BeforeValidator(validate)


def problem(message: str, remedy: str = "") -> PydanticCustomError:
    """One problem for pydantic's list, in our words."""
    return PydanticCustomError("ocisbx", "{message}", {"message": message, "remedy": remedy})


def _frozen(table: Mapping[Any, Any]) -> FrozenDict[Any, Any]:
    # Sorted: the dump of a configuration is a cache key.
    return FrozenDict(sorted(table.items()))


def _one_of(noun: str, known: Sequence[str]) -> Callable[[object], str]:
    def check(value: object) -> str:
        text = values.check_text(value, noun)
        if text not in known:
            hint = values.did_you_mean(text, known)
            raise values.refusal(text, noun, f"expected one of {', '.join(known)}{hint}")
        return text

    return check


def _one_of_or_path(noun: str, known: Sequence[str]) -> Callable[[object], str]:
    def check(value: object) -> str:
        text = fspath(value) if isinstance(value, PathLike) else value
        if isinstance(text, str) and text.startswith("/"):
            return values.check_path(text, noun)
        return _one_of(noun, [*known, "an absolute path"])(text)

    return check


def _not_empty(value: object) -> str:
    text = values.check_text(value)
    if not text:
        raise values.refusal(text, "a reference", "it is empty")
    return text


def _command_pattern(value: object) -> str:
    commands.parse_pattern(value)
    return str(value)


def _workspace(value: object) -> str:
    mounts.parse_workspace(value)
    return fspath(value) if isinstance(value, PathLike) else str(value)


def _user(value: object) -> str:
    uid, gid = values.parse_user(value)
    return f"{uid}" if gid is None else f"{uid}:{gid}"


def _volume(value: object) -> object:
    if isinstance(value, str):
        value = mounts.parse_volume(value)
    if isinstance(value, mounts.VolumeValue):
        return value._asdict()
    if isinstance(value, Mapping) and "source" in value:
        return {"target": value["source"], **value}
    return value


def _tmpfs(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return dict(mounts.parse_tmpfs(entry) for entry in value)
    return value


def _tmpfs_size(value: object) -> int | None:
    return None if value in (None, "default") else quantities.parse_size(value, minimum=1)


def _rlimits(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    limits: dict[str, tuple[int, int]] = {}
    for key, ends in value.items():
        name = quantities.check_rlimit_name(key)
        pair = ends if isinstance(ends, (list, tuple)) else (ends,)
        if name in limits or len(pair) not in {1, 2}:
            expected = "expected one limit for each resource: soft, or [soft, hard]"
            raise values.refusal(value, "a table of limits", expected)
        limits[name] = quantities.parse_rlimit(name, *pair)
    return limits


def _capabilities(value: object) -> object:
    return value if not isinstance(value, (list, tuple)) else capabilities.parse_capabilities(value)


def _annotations(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return dict(values.check_annotation(key, text) for key, text in value.items())


def _io_key(value: object) -> str:
    text = fspath(value) if isinstance(value, PathLike) else value
    if isinstance(text, str) and _DEVICE.fullmatch(text):
        return text
    return values.check_path(text, "a device (MAJOR:MINOR) or path")


# ------------------------------------------------------------------ schemas of what parsers accept
_DEVICE = re.compile(r"[0-9]{1,4}:[0-9]{1,7}", re.ASCII)
_TEXT: dict[str, Any] = {"type": "string"}
_PATH: dict[str, Any] = {"type": "string", "pattern": "^/"}
_SIZE: list[dict[str, Any]] = [
    {"type": "integer", "minimum": 0},
    {"type": "string", "pattern": "^ *[0-9]+(\\.[0-9]+)? ?([kKmMgGtT][iI]?)?[bB]? *$"},
]
_NUMBER: dict[str, Any] = {"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?|\\.[0-9]+)$"}
_INTEGER: dict[str, Any] = {"type": "string", "pattern": "^[0-9]+$"}
_UNLIMITED: dict[str, Any] = {"enum": [-1, "-1", "unlimited"]}
_LIMIT: dict[str, Any] = {"anyOf": [*_SIZE, _UNLIMITED]}
_RLIMIT_PAIR: dict[str, Any] = {"type": "array", "items": _LIMIT, "minItems": 1, "maxItems": 2}
_TMPFS_SIZE: dict[str, Any] = {"anyOf": [*_SIZE, {"enum": ["default", None]}]}


def _table(content: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    return {"type": "object", "additionalProperties": content, **more}


def _either(*choices: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(choices)})


# ------------------------------------------------------------------------------------------- types
Text = Annotated[str, parsed(values.check_text)]
Reference = Annotated[str, parsed(_not_empty)]
AbsolutePath = Annotated[str, parsed(values.check_path), WithJsonSchema(_PATH)]
Pattern = Annotated[str, parsed(values.check_pattern)]
CommandPattern = Annotated[str, parsed(_command_pattern)]
Workspace = Annotated[str, parsed(_workspace)]
Rootfs = Annotated[
    str, parsed(_one_of_or_path("a root", ["host"])), _either({"enum": ["host"]}, _PATH)
]
Seccomp = Annotated[
    str,
    parsed(_one_of_or_path("a seccomp profile", ["default", "none"])),
    _either({"enum": ["default", "none"]}, _PATH),
]
RuntimeName = Annotated[
    str,
    parsed(_one_of_or_path("a runtime", RUNTIME_NAMES)),
    _either({"enum": list(RUNTIME_NAMES)}, _PATH),
]
PresetName = Annotated[
    str, parsed(_one_of("a preset", list(PRESETS))), WithJsonSchema({"enum": list(PRESETS)})
]
EnforcementName = Annotated[
    str,
    parsed(_one_of("a name of enforcement", [*ENFORCEMENT_NAMES, "all"])),
    WithJsonSchema({"enum": [*ENFORCEMENT_NAMES, "all"]}),
]
HostName = Annotated[str, parsed(values.check_hostname)]
UserIds = Annotated[str, parsed(_user), _either(_TEXT, {"type": "integer", "minimum": 0})]
Seconds = Annotated[
    float,
    parsed(quantities.parse_seconds),
    _either({"type": "number", "exclusiveMinimum": 0}, _NUMBER),
]
Grace = Annotated[
    float,
    parsed(lambda value: quantities.parse_seconds(value, zero=True)),
    _either({"type": "number", "minimum": 0}, _NUMBER),
]
Size = Annotated[int, parsed(quantities.parse_size), _either(*_SIZE)]
Memory = Annotated[int, parsed(quantities.parse_memory), WithJsonSchema(_LIMIT)]
Swap = Annotated[int, parsed(quantities.parse_swap), WithJsonSchema(_LIMIT)]
Cpus = Annotated[
    float,
    parsed(quantities.parse_cpus),
    _either({"type": "number", "exclusiveMinimum": 0}, _NUMBER, _UNLIMITED),
]
Weight = Annotated[
    int,
    parsed(quantities.parse_weight),
    _either({"type": "integer", "minimum": 1, "maximum": quantities.MAX_WEIGHT}, _INTEGER),
]
Cpuset = Annotated[
    str,
    parsed(quantities.parse_cpuset),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"}),
]
Pids = Annotated[
    int,
    parsed(quantities.parse_pids),
    _either({"type": "integer", "minimum": 1}, _INTEGER, _UNLIMITED),
]
Sandboxes = Annotated[
    int,
    parsed(quantities.parse_sandboxes),
    _either({"type": "integer", "minimum": 1}, _INTEGER, _UNLIMITED),
]
Rate = Annotated[
    int, parsed(lambda value: quantities.parse_size(value, minimum=1)), _either(*_SIZE)
]
Operations = Annotated[
    int, parsed(quantities.parse_iops), _either({"type": "integer", "minimum": 1}, _INTEGER)
]
EnvName = Annotated[str, parsed(values.check_env_name)]
IoKey = Annotated[str, parsed(_io_key)]
TmpfsSize = Annotated[
    int | None,
    parsed(_tmpfs_size),
    # TOML has no null.
    PlainSerializer(lambda value: "default" if value is None else value, when_used="json"),
]
Capabilities = Annotated[
    tuple[str, ...],
    parsed(_capabilities),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": "^[+-]?[A-Za-z_]+$"}}),
]

Frozen = AfterValidator(_frozen)
Variables = Annotated[Mapping[EnvName, Text], Frozen]
Annotations = Annotated[
    Mapping[str, str], parsed(_annotations), Frozen, WithJsonSchema(_table(_TEXT))
]
Rlimits = Annotated[
    Mapping[str, tuple[int, int]],
    parsed(_rlimits),
    Frozen,
    WithJsonSchema(_table({"anyOf": [_LIMIT, _RLIMIT_PAIR]})),
]
Tmpfs = Annotated[
    Mapping[AbsolutePath, TmpfsSize],
    parsed(_tmpfs),
    Frozen,
    _either(_table(_TMPFS_SIZE), {"type": "array", "items": _TEXT}),
]
as_volume = parsed(_volume)
