"""Parsers of single values, with docker's habits: text in, plain values out, ConfigError otherwise.

Standard library only, so that the command line can use it without pydantic. Every refusal says
what was given, what is expected, and shows values that are right. What names several paths at once
(volumes, mounts, tmpfs, workspace) is in `ocisbx.mounts`, capabilities are in
`ocisbx.capabilities`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ocisbx.errors import ConfigError

# The runtime-spec's own word for "no limit" (memory.limit, memory.swap, pids.limit).
UNLIMITED = -1
UNLIMITED_WORDS = ("unlimited", "-1")

# Below it no runtime can start anything; nearly always a forgotten unit (`512` for `512M`).
MIN_MEMORY_BYTES = 1 << 20
MAX_BYTES = (1 << 63) - 1
# CONFIG_NR_CPUS is 8192 at most.
MAX_CPU = 8191
# block/blk-throttle.c: operations are counted in an unsigned int.
MAX_IOPS = (1 << 32) - 1
# cgroup-v2.rst: cpu.weight and io.weight.
MAX_WEIGHT = 10_000
# Longer than any run; keeps every sum of times far from the limits of poll(2) and time_t.
MAX_SECONDS = 1e9
# (uid_t)-1 means "leave unchanged" in chown(2) and setresuid(2), so it is nobody's id.
MAX_ID = (1 << 32) - 2
# include/uapi/linux/limits.h and binfmts.h: PATH_MAX and MAX_ARG_STRLEN count the closing NUL.
MAX_PATH_BYTES = 4095
MAX_ARGUMENT_BYTES = 131_071
# execve(2): a quarter of the stack limit, which is 8 MiB unless somebody raised it.
MAX_COMMAND_BYTES = 2 << 20

# Compiled at first use (re keeps them), which halves the time that this module takes to import.
_SIZE = r"([0-9]{1,20})(\.[0-9]{1,9})? ?(?:([kKmMgGtT])[iI]?)?[bB]?"
_CPU_RANGE = r"([0-9]{1,4})(?:-([0-9]{1,4}))?"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# docker's manual writes --cpus=".5".
_NUMBER = r"[0-9]{1,20}(\.[0-9]{1,20})?|\.[0-9]{1,20}"
_USER = r"([0-9]{1,10})(?::([0-9]{1,10}))?"
_ANNOTATION = r"[A-Za-z0-9]+(?:[._/-][A-Za-z0-9]+)*"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SIZE_EXAMPLES = "expected bytes or a size such as 512M, 2g, 64k, 1.5GiB (powers of 1024)"

# getrlimit(2), the names that the runtime-spec allows on Linux; True: counted in bytes.
RLIMITS: dict[str, bool] = {
    "RLIMIT_AS": True,
    "RLIMIT_CORE": True,
    "RLIMIT_CPU": False,
    "RLIMIT_DATA": True,
    "RLIMIT_FSIZE": True,
    "RLIMIT_LOCKS": False,
    "RLIMIT_MEMLOCK": True,
    "RLIMIT_MSGQUEUE": True,
    "RLIMIT_NICE": False,
    "RLIMIT_NOFILE": False,
    "RLIMIT_NPROC": False,
    "RLIMIT_RSS": True,
    "RLIMIT_RTPRIO": False,
    "RLIMIT_RTTIME": False,
    "RLIMIT_SIGPENDING": False,
    "RLIMIT_STACK": True,
}

# Annotations that no runtime reads, by prefix. All others are refused: runtimes take orders from
# names such as run.oci.* (crun), dev.gvisor.* (host-uds among its flags), org.criu.*,
# org.systemd.property.*, io.kubernetes.cri.*, io.katacontainers.* and module.wasm.*, and the list
# of such names is theirs to lengthen.
ANNOTATIONS: dict[str, str] = {
    "label.": "the caller's own names, such as label.com.acme.task: no runtime looks there",
    "org.opencontainers.image.": "what an image says of itself (image-spec, annotations.md)",
    "com.example.": "for documents and tests: nobody can own it (RFC 2606)",
}
MAX_ANNOTATION_KEY_BYTES = 255


class User(NamedTuple):
    """Ids inside the container; `gid` None: not said."""

    uid: int
    gid: int | None


def show(value: object, length: int = 72) -> str:
    """A value in a message: one printable line (repr escapes controls and surrogates), bounded."""
    try:
        text = repr(value[: length + 1] if isinstance(value, (str, bytes)) else value)
    except ValueError:  # an integer of thousands of digits has no repr (sys.set_int_max_str_digits)
        text = f"a huge {type(value).__name__}"
    return (
        text if len(text) <= length else text[: length - 4] + "..." + text[0] * (text[0] in "'\"")
    )


def refusal(value: object, noun: str, expected: str, *, remedy: str = "") -> ConfigError:
    """`VALUE is not NOUN: EXPECTED`, to be raised."""
    return ConfigError(f"{show(value)} is not {noun}", why=expected, remedy=remedy)


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """` (did you mean 'X'?)` for a near miss, else nothing."""
    import difflib  # noqa: PLC0415 -- 1 ms of every start, for a refusal only

    near = difflib.get_close_matches(value[:80], list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_text(value: object, noun: str = "a text") -> str:
    """A str without NUL and without lone surrogates (JSON and execve(2) can carry neither)."""
    if not isinstance(value, str):
        raise refusal(value, noun, f"expected a text, not {type(value).__name__}")
    if "\0" in value:
        remedy = "the kernel ends a text there: give such data by standard input or in a file"
        raise refusal(value, noun, "it contains a NUL character", remedy=remedy)
    try:
        value.encode()
    except UnicodeEncodeError:
        why = "it is not valid UTF-8, so it cannot be written to config.json"
        raise refusal(value, noun, why) from None
    return value


def parse_size(value: object, *, minimum: int = 0) -> int:
    """Bytes from an integer or "512M", "2g", "64k", "1.5GiB": powers of 1024, as docker."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        text = check_text(value, "a size").strip(" ")
        match = re.fullmatch(_SIZE, text)
        if match is None or (match[2] and not match[3]):
            raise refusal(value, "a size", _SIZE_EXAMPLES)
        unit = _UNITS[(match[3] or "").lower()]
        digits = (match[2] or ".").removeprefix(".")
        size = int(match[1]) * unit + int(digits or "0") * unit // 10 ** len(digits)
    if size < 0:
        raise refusal(value, "a size", f"it is negative; {_SIZE_EXAMPLES}")
    if size < minimum:
        raise refusal(value, "a size that can work", f"at least {minimum} bytes; {_SIZE_EXAMPLES}")
    if size > MAX_BYTES:
        raise refusal(value, "a size", "it is over 8 EiB")
    return size


def parse_size_limit(value: object, *, minimum: int = 0) -> int:
    """As parse_size, and "unlimited" or -1 gives UNLIMITED."""
    return UNLIMITED if _is_unlimited(value) else parse_size(value, minimum=minimum)


def parse_memory(value: object) -> int:
    """A memory limit in bytes, at least 1 MiB, or UNLIMITED."""
    return parse_size_limit(value, minimum=MIN_MEMORY_BYTES)


def parse_integer(value: object, noun: str, minimum: int, maximum: int) -> int:
    """An integer within bounds, from an int or from decimal digits."""
    number: object = value
    if isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise refusal(value, noun, f"expected an integer from {minimum} to {maximum}")
    if not minimum <= number <= maximum:
        raise refusal(value, noun, f"expected {minimum} to {maximum}")
    return number


def parse_pids(value: object) -> int:
    """A number of processes and threads, at least 1, or UNLIMITED."""
    if _is_unlimited(value):
        return UNLIMITED
    # pids.max of the kernel: PID_MAX_LIMIT on 64 bit.
    return parse_integer(value, "a limit of processes", 1, 1 << 22)


def parse_sandboxes(value: object) -> int:
    """A number of sandboxes, at least 1, or UNLIMITED."""
    if _is_unlimited(value):
        return UNLIMITED
    # Each has processes of its own, so no host runs more than pids.
    return parse_integer(value, "a number of sandboxes", 1, 1 << 22)


def parse_cpus(value: object) -> float:
    """A number of CPUs such as 0.5 or 2, or UNLIMITED; 0.01 is the kernel's smallest quota."""
    if _is_unlimited(value):
        return float(UNLIMITED)
    expected = "expected a number of CPUs such as 0.5 or 2, from 0.01 on"
    return _parse_number(value, "a number of CPUs", expected, 0.01, 100_000)


def parse_weight(value: object) -> int:
    """cpu.weight and io.weight of cgroup v2, 1 to 10000."""
    return parse_integer(value, "a weight", 1, MAX_WEIGHT)


def parse_cpuset(value: object) -> str:
    """Processors as docker's --cpuset-cpus, `0-3,6`, in the kernel's own spelling (cpuset(7))."""
    text = check_text(value, "a list of processors")
    expected = "expected numbers and ranges, such as 0-3,6"
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(_CPU_RANGE, part)
        if match is None:
            raise refusal(value, "a list of processors", expected)
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last <= MAX_CPU:
            why = "a range goes up" if last < first else f"the last one there can be is {MAX_CPU}"
            raise refusal(value, "a list of processors", f"{why}; {expected}")
        numbers.update(range(first, last + 1))
    return show_cpuset(numbers)


def expand_cpuset(text: str) -> frozenset[int]:
    """The numbers of a list in the kernel's spelling; none of an empty one."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return frozenset(
        number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)
    )


def show_cpuset(numbers: Iterable[int]) -> str:
    """Numbers as `0-3,6`."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def parse_iops(value: object) -> int:
    """Operations a second, at least 1."""
    return parse_integer(value, "a number of operations a second", 1, MAX_IOPS)


def parse_device_limit(value: object) -> tuple[str, str]:
    """docker's --device-read-bps and its like, `DEVICE:LIMIT`: (device, limit), both as typed."""
    text = check_text(value, "a limit of a device")
    device, colon, limit = text.rpartition(":")
    # Of 8:0 alone the last number is the minor.
    if not colon or not limit or not re.fullmatch(r"/.*|[0-9]+:[0-9]+", device, re.DOTALL):
        why = "expected DEVICE:LIMIT, such as /dev/sda:10M, 8:0:10M or /srv:10M"
        raise refusal(text, "a limit of a device", why)
    return device, limit


def parse_seconds(value: object, *, zero: bool = False) -> float:
    """A finite duration in seconds above zero (`zero`: or zero itself), from a number or digits."""
    least = 0.0 if zero else math.ulp(0.0)
    expected = f"expected seconds {'from 0' if zero else 'above 0'} to {MAX_SECONDS:.0f}"
    return _parse_number(value, "a duration", expected, least, MAX_SECONDS)


def _parse_number(value: object, noun: str, expected: str, least: float, most: float) -> float:
    number: object = value
    if isinstance(value, str) and re.fullmatch(_NUMBER, value):
        number = float(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise refusal(value, noun, expected)
    # Compared before it is converted: float() of a huge integer overflows. NaN fails both.
    if not least <= number <= most:
        raise refusal(value, noun, expected)
    return float(number)


def _is_unlimited(value: object) -> bool:
    if isinstance(value, str):
        return value in UNLIMITED_WORDS
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == UNLIMITED


def check_path(value: object, noun: str = "a path") -> str:
    """An absolute path as text; `..` is allowed here and normalised where it is used."""
    text = check_text(os.fspath(value) if isinstance(value, os.PathLike) else value, noun)
    if not text.startswith("/"):
        why = "it is empty" if not text else "it is relative"
        remedy = '"$PWD/DIR" in a shell is the absolute path of DIR' if text else ""
        expected = f"{why}; expected an absolute path, such as /opt/go"
        raise refusal(text, noun, expected, remedy=remedy)
    if len(text.encode()) > MAX_PATH_BYTES:
        raise refusal(text, noun, f"it is longer than {MAX_PATH_BYTES} bytes, the kernel's limit")
    return text


def check_pattern(value: object) -> str:
    """A path or glob: absolute, or below the workspace (no `..`, no `~`)."""
    text = check_text(os.fspath(value) if isinstance(value, os.PathLike) else value, "a pattern")
    if not text:
        raise refusal(text, "a pattern", "it is empty; expected such as /opt/data or **/.env")
    if len(text.encode()) > MAX_PATH_BYTES:
        raise refusal(text, "a pattern", f"it is longer than {MAX_PATH_BYTES} bytes")
    if text.startswith("~"):
        raise refusal(text, "a pattern", "~ is not expanded; write the absolute path")
    if ".." in text.split("/"):
        problem = "leads upwards" if text.startswith("/") else "leaves the workspace"
        raise refusal(text, "a pattern", f"it {problem}; write the absolute path without '..'")
    return text


def check_name(value: object, noun: str = "a name") -> str:
    """A container's, session's or pool's name, which becomes part of paths and cgroup names."""
    text = check_text(value, noun)
    if re.fullmatch(_NAME, text) is None or ".." in text:
        why = "expected a letter or digit, then up to 63 of letters, digits, _ . - (and no '..')"
        raise refusal(text, noun, why)
    return text


def check_hostname(value: object) -> str:
    """RFC 1123 labels joined by dots; sethostname(2) takes at most 64 bytes in all."""
    text = check_text(value, "a host name")
    if len(text) > 64 or not all(re.fullmatch(_LABEL, label) for label in text.split(".")):
        why = "expected letters, digits and inner hyphens, labels up to 63, at most 64 in all"
        raise refusal(text, "a host name", why)
    return text


def parse_user(value: object) -> User:
    """`UID[:GID]`, numeric: names of the host mean nothing inside."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID:
        return User(value, None)
    text = show(value) if isinstance(value, int) else check_text(value, "a user")
    match = re.fullmatch(_USER, text)
    ids = [int(part) for part in match.groups() if part is not None] if match else []
    if not ids or max(ids) > MAX_ID:
        why = "expected UID or UID:GID in digits, such as 1000 or 1000:1000"
        remedy = "ids of a name: id -u NAME, id -g NAME"
        raise refusal(value, "a user", why, remedy=remedy)
    return User(ids[0], ids[1] if len(ids) == 2 else None)


def check_env_name(value: object) -> str:
    """A variable's name: not empty, no `=` (environ(7))."""
    text = check_text(value, "a variable's name")
    if not text or "=" in text:
        why = "it is empty" if not text else "it contains '='"
        raise refusal(text, "a variable's name", f"{why}; expected a name such as PATH")
    return text


def parse_env(value: object) -> tuple[str, str | None]:
    """`K=V` gives (K, V); `K` gives (K, None): the caller's value is forwarded."""
    name, equals, content = check_text(value, "an environment variable").partition("=")
    if not name:
        why = "the name is empty; expected NAME=VALUE or NAME"
        raise refusal(value, "an environment variable", why)
    return name, content if equals else None


def parse_env_file(text: str, path: str = "env file") -> list[tuple[str, str | None]]:
    """docker's --env-file: `K=V` or `K` a line, # comments, values as they stand (no quoting).

    Raises ConfigError that names `path` and the line's number.
    """
    entries: list[tuple[str, str | None]] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        stripped = line.removesuffix("\r").lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            name, content = parse_env(stripped)
        except ConfigError as error:
            raise ConfigError(f"{path}: line {number}: {error.what}", why=error.why) from None
        if any(character.isspace() for character in name):
            what = f"{path}: line {number}: {show(name)} is not a variable's name"
            raise ConfigError(what, why="it contains white space; expected NAME=VALUE or NAME")
        entries.append((name, content))
    return entries


def check_rlimit_name(value: object) -> str:
    """A resource of getrlimit(2) in the spec's spelling: `nofile` gives `RLIMIT_NOFILE`."""
    text = check_text(value, "a resource")
    name = text.upper()
    name = name if name.startswith("RLIMIT_") else f"RLIMIT_{name}"
    if name not in RLIMITS:
        known = [resource.removeprefix("RLIMIT_").lower() for resource in RLIMITS]
        hint = did_you_mean(text.lower(), known)
        raise refusal(text, "a resource", f"expected one of {', '.join(known)}{hint}")
    return name


def parse_rlimit(name: str, soft: object, hard: object | None = None) -> tuple[int, int]:
    """(soft, hard) of RLIMIT `name`, UNLIMITED for RLIM_INFINITY; `hard` None: as soft.

    Raises ConfigError: not a number (of bytes: not a size), or soft above hard.
    """
    low, high = (_parse_rlimit_end(name, end) for end in (soft, soft if hard is None else hard))
    if high != UNLIMITED and (low == UNLIMITED or low > high):
        why = f"the soft limit {show(soft)} is above the hard one {show(hard)}"
        raise ConfigError(f"{name} cannot be set", why=why)
    return low, high


def _parse_rlimit_end(name: str, value: object) -> int:
    if RLIMITS[name]:
        return parse_size_limit(value)
    return UNLIMITED if _is_unlimited(value) else parse_integer(value, f"an {name}", 0, MAX_BYTES)


def parse_ulimit(value: object) -> tuple[str, tuple[int, int]]:
    """docker's --ulimit, `NAME=SOFT[:HARD]`: (RLIMIT_NAME, (soft, hard))."""
    text = check_text(value, "a ulimit")
    name, equals, limits = text.partition("=")
    soft, colon, hard = limits.partition(":")
    if not equals or not soft or (colon and not hard):
        why = "expected NAME=SOFT or NAME=SOFT:HARD, such as nofile=1024:4096"
        raise refusal(text, "a ulimit", why)
    resource = check_rlimit_name(name)
    return resource, parse_rlimit(resource, soft, hard if colon else None)


def check_annotation(key: object, value: object) -> tuple[str, str]:
    """One annotation of config.json: a key below one of ANNOTATIONS, and one line of text."""
    name = check_text(key, "an annotation's key")
    if re.fullmatch(_ANNOTATION, name) is None or len(name) > MAX_ANNOTATION_KEY_BYTES:
        why = "expected letters and digits, parted by single . _ - or /, such as label.task"
        raise refusal(name, "an annotation's key", why)
    if not name.startswith(tuple(ANNOTATIONS)):
        why = f"only keys below {', '.join(ANNOTATIONS)} steer no runtime"
        remedy = f"label.{name} says the same to whoever reads it"
        raise refusal(name, "an annotation that a caller may set", why, remedy=remedy)
    text = check_text(value, "an annotation's value")
    if not text.isprintable():
        why = "it holds a control character: it would forge lines where it is shown"
        raise refusal(text, "an annotation's value", why)
    return name, text


def check_command(command: object, *, shell: bool = False) -> tuple[str, ...]:
    """The argv to run: a sequence of texts (or paths); `shell`: one text for `/bin/sh -c`.

    Raises ConfigError for what execve(2) could never take.
    """
    if shell:
        return check_command(["/bin/sh", "-c", check_text(command, "a shell command")])
    if isinstance(command, (str, bytes, os.PathLike)):
        remedy = 'write a list, such as ["ls", "-l"], or pass shell=True for a shell\'s syntax'
        raise refusal(command, "a command", "it is one text, not a list of texts", remedy=remedy)
    if isinstance(command, Mapping) or not isinstance(command, Iterable):
        raise refusal(command, "a command", "expected a list of texts")
    argv = tuple(
        check_text(
            os.fspath(argument) if isinstance(argument, os.PathLike) else argument, "an argument"
        )
        for argument in command
    )
    if not argv or not argv[0]:
        what = "command is empty" if not argv else "command's first word is empty"
        raise ConfigError(what, remedy="name a program and its arguments: ocisbx run -- ls -l")
    # Each argument costs its bytes, a NUL and a pointer (execve(2)).
    sizes = [len(argument.encode()) for argument in argv]
    remedy = "pass large data by standard input or by a file in the workspace"
    if max(sizes) > MAX_ARGUMENT_BYTES:
        what = f"argument {sizes.index(max(sizes))} of the command has {max(sizes)} bytes"
        raise ConfigError(what, why=f"the kernel takes {MAX_ARGUMENT_BYTES}", remedy=remedy)
    if (total := sum(sizes) + 9 * len(sizes)) > MAX_COMMAND_BYTES:
        what = f"command has {total} bytes"
        raise ConfigError(what, why=f"the kernel takes {MAX_COMMAND_BYTES}", remedy=remedy)
    return argv
