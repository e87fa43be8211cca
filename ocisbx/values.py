"""Parsers of single values, with docker's habits: text in, plain values out, ConfigError otherwise.

Standard library only, so that the command line can use it without pydantic. Every refusal says
what was given, what is expected, and shows values that are right. What names several paths at once
(volumes, mounts, tmpfs, workspace) is in `ocisbx.mounts`, capabilities are in
`ocisbx.capabilities`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ocisbx.errors import ConfigError

# (uid_t)-1 means "leave unchanged" in chown(2) and setresuid(2), so it is nobody's id.
MAX_ID = (1 << 32) - 2
# include/uapi/linux/limits.h and binfmts.h: PATH_MAX and MAX_ARG_STRLEN count the closing NUL.
MAX_PATH_BYTES = 4095
MAX_ARGUMENT_BYTES = 131_071
# execve(2): a quarter of the stack limit, which is 8 MiB unless somebody raised it.
MAX_COMMAND_BYTES = 2 << 20

_USER = r"([0-9]{1,10})(?::([0-9]{1,10}))?"
_ANNOTATION = r"[A-Za-z0-9]+(?:[._/-][A-Za-z0-9]+)*"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"


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


def utc_text(seconds: float | None = None) -> str:
    """A moment of time.time(), now unless it is given, as RFC 3339 has it, in milliseconds.

    What datetime would write; it takes 1.4 ms of every start to import.
    """
    whole, thousandths = divmod(int((time.time() if seconds is None else seconds) * 1000), 1000)
    year, month, day, hour, minute, second, *_ = time.gmtime(whole)
    # Not by strftime(3), which looks for a time zone's file each time.
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{thousandths:03}+00:00"


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


def check_env(variables: Mapping[str, str] | None) -> dict[str, str]:
    """The variables of one call."""
    return {
        check_env_name(name): check_text(value, f"the variable {name}")
        for name, value in (variables or {}).items()
    }


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


def _arguments(command: object) -> Iterable[object]:
    if isinstance(command, (list, tuple)):
        return command
    if isinstance(command, (str, bytes, os.PathLike)):
        remedy = 'write a list, such as ["ls", "-l"], or pass shell=True for a shell\'s syntax'
        raise refusal(command, "a command", "it is one text, not a list of texts", remedy=remedy)
    if isinstance(command, Mapping) or not isinstance(command, Iterable):
        raise refusal(command, "a command", "expected a list of texts")
    return command


def _argument(value: object) -> str:
    if isinstance(value, str):
        return check_text(value, "an argument")
    return check_text(os.fspath(value) if isinstance(value, os.PathLike) else value, "an argument")


def check_command(command: object, *, shell: bool = False) -> tuple[str, ...]:
    """The argv to run: a sequence of texts (or paths); `shell`: one text for `/bin/sh -c`.

    Raises ConfigError for what execve(2) could never take.
    """
    if shell:
        return check_command(["/bin/sh", "-c", check_text(command, "a shell command")])
    argv = tuple([_argument(one) for one in _arguments(command)])
    if not argv or not argv[0]:
        what = "command is empty" if not argv else "command's first word is empty"
        raise ConfigError(what, remedy="name a program and its arguments: ocisbx run -- ls -l")
    # No text has more than four bytes for each character.
    if 4 * sum(map(len, argv)) + 9 * len(argv) <= MAX_ARGUMENT_BYTES:
        return argv
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
