"""A profile from a file (`--seccomp FILE`), as config.json wants it.

Two dialects are read: the runtime-spec's `linux.seccomp` object, and what docker and podman keep in
files, which adds `archMap`, `includes` and `excludes` (capabilities, architectures, kernel),
`comment`, a single `name`, and podman's names of errnos. The additions are resolved here, because
runtimes do not know them.

A profile whose meaning differs between runtimes is an error, and so is every field that is not
known: a protection that is misspelt must not vanish.
"""

from __future__ import annotations

import errno
import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ocisbx.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# uname(2) machine -> (docker's name, seccomp's name).
MACHINES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "x86_64": ("amd64", "SCMP_ARCH_X86_64"),
        "aarch64": ("arm64", "SCMP_ARCH_AARCH64"),
        "armv7l": ("arm", "SCMP_ARCH_ARM"),
        "i686": ("x86", "SCMP_ARCH_X86"),
        "ppc64le": ("ppc64le", "SCMP_ARCH_PPC64LE"),
        "riscv64": ("riscv64", "SCMP_ARCH_RISCV64"),
        "s390x": ("s390x", "SCMP_ARCH_S390X"),
    }
)
WITH_ERRNO = frozenset({"SCMP_ACT_ERRNO", "SCMP_ACT_TRACE"})
ACTIONS = WITH_ERRNO | {
    *("SCMP_ACT_ALLOW", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD"),
    *("SCMP_ACT_LOG", "SCMP_ACT_TRAP"),
}
OPERATORS = frozenset(f"SCMP_CMP_{op}" for op in ("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"))
FLAGS = frozenset(
    f"SECCOMP_FILTER_FLAG_{flag}" for flag in ("TSYNC", "LOG", "SPEC_ALLOW", "WAIT_KILLABLE_RECV")
)
MAX_ERRNO = 4095  # the kernel's MAX_ERRNO; seccomp(2) cuts what is above
ARGUMENTS = 6
CALL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
ARCHITECTURE = re.compile(r"SCMP_ARCH_[A-Z0-9_]+\Z", re.ASCII)
KERNEL = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\Z", re.ASCII)

TOP_FIELDS = frozenset(
    {
        *("defaultAction", "defaultErrnoRet", "defaultErrno", "architectures", "archMap"),
        *("flags", "syscalls", "listenerPath", "listenerMetadata"),
    }
)
RULE_FIELDS = frozenset(
    {
        *("name", "names", "action", "errnoRet", "errno", "args"),
        *("comment", "includes", "excludes"),
    }
)


class Target(NamedTuple):
    """What the conditions of a docker-style profile are asked about; `arch` in docker's words."""

    arch: str
    kernel: tuple[int, int]
    capabilities: frozenset[str]


def load_profile(
    text: str, machine: str, kernel: tuple[int, int], capabilities: Collection[str]
) -> dict[str, object]:
    """The `linux.seccomp` object of runtime-spec 1.1.0 that the profile in `text` stands for.

    Arguments are as for `resolve.default_profile`. Raises ConfigError, which names the field at
    fault (`syscalls[3].args[0].op`).
    """
    if machine not in MACHINES:
        _fail("", f"profiles cannot be resolved for the machine {machine}")
    arch, native = MACHINES[machine]
    target = Target(arch, kernel, frozenset(capabilities))
    document = _object(_parse(text), "", TOP_FIELDS)
    for field in ("listenerPath", "listenerMetadata"):
        if document.get(field):
            _fail(field, "ocisbx has no seccomp agent that would listen")
    action = _choice(document.get("defaultAction"), "defaultAction", ACTIONS)
    profile: dict[str, object] = {"defaultAction": action}
    error = _errno(document, "default", action)
    if error is not None:
        profile["defaultErrnoRet"] = error
    architectures = _architectures(document, native)
    if architectures:
        profile["architectures"] = architectures
    flags = _strings(document, "flags", "")
    if flags:
        profile["flags"] = [_choice(f, f"flags[{i}]", FLAGS) for i, f in enumerate(flags)]
    rules = (
        _rule(item, f"syscalls[{i}]", target)
        for i, item in enumerate(_list(document, "syscalls", ""))
    )
    profile["syscalls"] = [rule for rule in rules if rule is not None]
    return profile


def _parse(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError("the seccomp profile is not JSON", why=str(error)) from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        repeated = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        _fail("", f"the field {repeated!r} stands twice in one object")
    return fields


def _architectures(document: dict[str, object], native: str) -> list[str]:
    """docker's order of things: a list as it is, or a map's line for this machine."""
    listed = _strings(document, "architectures", "")
    entries = _list(document, "archMap", "")
    if listed and entries:
        _fail("archMap", "stands beside 'architectures'; only one of them may")
    for i, name in enumerate(listed):
        _architecture(name, f"architectures[{i}]")
    for i, item in enumerate(entries):
        path = f"archMap[{i}]"
        entry = _object(item, path, frozenset({"architecture", "subArchitectures"}))
        family = [_architecture(entry.get("architecture"), f"{path}.architecture")]
        for j, name in enumerate(_strings(entry, "subArchitectures", path)):
            family.append(_architecture(name, f"{path}.subArchitectures[{j}]"))
        if family[0] == native:
            listed = family
    return listed


def _architecture(value: object, path: str) -> str:
    if not isinstance(value, str) or not ARCHITECTURE.match(value):
        _fail(path, f"{value!r} is not an architecture such as SCMP_ARCH_X86_64")
    return value


def _rule(item: object, path: str, target: Target) -> dict[str, object] | None:
    """One entry of `syscalls`; None where its conditions leave it out."""
    fields = _object(item, path, RULE_FIELDS)
    comment = fields.get("comment")
    if comment is not None and not isinstance(comment, str):
        _fail(f"{path}.comment", "is not a string")
    action = _choice(fields.get("action"), f"{path}.action", ACTIONS)
    rule: dict[str, object] = {"names": _call_names(fields, path), "action": action}
    error = _errno(fields, path, action)
    if error is not None:
        rule["errnoRet"] = error
    conditions = [
        _condition(condition, f"{path}.args[{i}]")
        for i, condition in enumerate(_list(fields, "args", path))
    ]
    if len({condition["index"] for condition in conditions}) < len(conditions):
        _fail(f"{path}.args", "has two conditions on one argument: runc takes either, crun refuses")
    if conditions:
        rule["args"] = conditions
    # Both are read, whatever the first says: a mistake shows on every machine.
    included = _applies(fields, "includes", path, target)
    excluded = _applies(fields, "excludes", path, target)
    return rule if included is not False and excluded is not True else None


def _call_names(fields: dict[str, object], path: str) -> list[str]:
    names = _strings(fields, "names", path)
    single = fields.get("name")
    if single is not None:
        if names:
            _fail(f"{path}.name", "stands beside 'names'; only one of them may")
        if not isinstance(single, str):
            _fail(f"{path}.name", "is not a string")
        names = [single]
    if not names:
        _fail(f"{path}.names", "names no system call")
    for name in names:
        if not CALL.match(name):
            _fail(f"{path}.names", f"{name!r} is not the name of a system call")
    return names


def _condition(item: object, path: str) -> dict[str, object]:
    fields = _object(item, path, frozenset({"index", "value", "valueTwo", "op"}))
    operator = _choice(fields.get("op"), f"{path}.op", OPERATORS)
    condition: dict[str, object] = {
        "index": _number(fields.get("index"), f"{path}.index", ARGUMENTS - 1),
        "value": _number(fields.get("value"), f"{path}.value", 2**64 - 1),
    }
    second = fields.get("valueTwo")
    if second is not None:
        condition["valueTwo"] = _number(second, f"{path}.valueTwo", 2**64 - 1)
    elif operator == "SCMP_CMP_MASKED_EQ":
        condition["valueTwo"] = 0
    condition["op"] = operator
    return condition


def _applies(fields: dict[str, object], which: str, path: str, target: Target) -> bool | None:
    """Whether `includes` or `excludes` holds for the target; None where it asks nothing.

    docker's meaning: includes holds when all of its parts do and every capability is there;
    excludes holds when any part does and any capability is there.
    """
    if fields.get(which) is None:
        return None
    path = f"{path}.{which}"
    asked = _object(fields[which], path, frozenset({"caps", "arches", "minKernel"}))
    capabilities = _strings(asked, "caps", path)
    arches = _strings(asked, "arches", path)
    every = all if which == "includes" else any
    answers: list[bool] = []
    if capabilities:
        answers.append(every(name in target.capabilities for name in capabilities))
    if arches:
        answers.append(target.arch in arches)
    # docker writes an unset kernel as "".
    minimum = asked.get("minKernel")
    if minimum not in (None, ""):
        found = KERNEL.match(minimum) if isinstance(minimum, str) else None
        if found is None:
            _fail(f"{path}.minKernel", f"{minimum!r} is not a version such as '4.8'")
        answers.append(target.kernel >= (int(found[1]), int(found[2])))
    return every(answers) if answers else None


def _errno(fields: dict[str, object], path: str, action: str) -> int | None:
    """`errnoRet`, or podman's `errno` by name; both come with "default" at the top."""
    number_field, name_field = "errnoRet", "errno"
    prefix = f"{path}."
    if path == "default":
        number_field, name_field, prefix = "defaultErrnoRet", "defaultErrno", ""
    number, name = fields.get(number_field), fields.get(name_field)
    if number is not None:
        number = _number(number, prefix + number_field, MAX_ERRNO)
    if name:
        named = getattr(errno, name, None) if isinstance(name, str) else None
        if not isinstance(named, int):
            _fail(prefix + name_field, f"{name!r} is not an errno's name such as ENOSYS")
        if number not in (None, named):
            _fail(prefix + name_field, f"{name} is {named}, and {number_field} is {number}")
        number = named
    if number is not None and action not in WITH_ERRNO:
        _fail(prefix + number_field, f"has no meaning with {action}")
    return number


def _object(value: object, path: str, known: frozenset[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        _fail(path, "is not an object")
    for key in value:
        if key not in known:
            _fail(f"{path}.{key}" if path else key, "is not a field of a seccomp profile")
    return value


def _list(fields: dict[str, object], key: str, path: str) -> list[object]:
    """The list, or an empty one for what Go's tools write as null."""
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        _fail(f"{path}.{key}" if path else key, "is not a list")
    return value


def _strings(fields: dict[str, object], key: str, path: str) -> list[str]:
    found: list[str] = []
    for i, value in enumerate(_list(fields, key, path)):
        if not isinstance(value, str):
            _fail(f"{path}.{key}[{i}]" if path else f"{key}[{i}]", "is not a string")
        found.append(value)
    return found


def _choice(value: object, path: str, known: frozenset[str]) -> str:
    if value == "SCMP_ACT_NOTIFY":
        _fail(path, "SCMP_ACT_NOTIFY needs a seccomp agent, and ocisbx has none")
    if not isinstance(value, str) or value not in known:
        _fail(path, f"{value!r} is none of {', '.join(sorted(known))}")
    return value


def _number(value: object, path: str, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        _fail(path, f"{value!r} is not a whole number from 0 to {highest}")
    return value


def _fail(path: str, why: str) -> NoReturn:
    raise ConfigError(f"seccomp profile: {path}" if path else "seccomp profile", why=why)
