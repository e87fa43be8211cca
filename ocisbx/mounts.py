"""Parsers of what puts files into the sandbox: --volume, --mount, --tmpfs, --workspace.

Standard library only; docker's syntax. Paths stay as written (`..` is normalised at resolve).
"""

from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.errors import ConfigError
from ocisbx.quantities import parse_size
from ocisbx.values import check_path, check_text, did_you_mean, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

VOLUME_FORM = "expected SRC[:DST][:ro] with absolute paths, such as /opt/go:ro"
COLON_REMEDY = "for a path with a colon: --mount type=bind,src=SRC,dst=DST,ro"


class VolumeValue(NamedTuple):
    """A directory or file of the host, bound into the sandbox."""

    source: str
    target: str
    read_only: bool


class TmpfsValue(NamedTuple):
    """A fresh file system in memory; `size_bytes` None: not said."""

    target: str
    size_bytes: int | None


# What a pool's configuration says where each call names its workspace, and where that is shown. A
# rule of Landlock reaches what is mounted below its directory, but not what is mounted over it: so
# the place has a directory above it that holds nothing else.
PER_CALL = "per-call"
PER_CALL_PLACE = "/mnt/workspace"


class WorkspaceValue(NamedTuple):
    """The working tree: `path` None is the current directory, `read_only` None is not said;
    `per_call`: each call of a pool names it."""

    path: str | None
    read_only: bool | None
    per_call: bool = False


def parse_volume(value: object) -> VolumeValue:
    """`SRC[:DST][:ro|rw]`; without DST the target is the source: `/opt/go:ro`."""
    text = check_text(value, "a volume")
    parts = text.split(":")
    read_only = False
    if len(parts) > 1 and parts[-1] in {"ro", "rw"}:
        read_only = parts.pop() == "ro"
    if len(parts) > 2:
        raise refusal(text, "a volume", VOLUME_FORM, remedy=COLON_REMEDY)
    if len(parts) == 2 and parts[1] and not parts[1].startswith("/"):
        why = f"{parts[1]!r} is neither an absolute path nor ro or rw; {VOLUME_FORM}"
        raise refusal(text, "a volume", why, remedy=COLON_REMEDY)
    source = check_path(parts[0], "a volume's source")
    return VolumeValue(source, check_path(parts[-1], "a volume's target"), read_only)


def parse_tmpfs(value: object) -> TmpfsValue:
    """`DST[:size=N]`."""
    text = check_text(value, "a tmpfs")
    target, colon, options = text.rpartition(":")
    if not colon or "/" in options:
        return TmpfsValue(check_path(text, "a tmpfs"), None)
    name, _, size = options.partition("=")
    if name != "size" or not size:
        why = "expected DST or DST:size=N, such as /scratch:size=64M"
        raise refusal(text, "a tmpfs", why)
    return TmpfsValue(check_path(target, "a tmpfs"), parse_size(size, minimum=1))


def parse_workspace(value: object) -> WorkspaceValue | None:
    """`DIR[:ro|rw]`, `:ro` (the current directory, read-only), `per-call[:ro|rw]`, or `none` (gives
    None).

    Only a trailing `:ro` or `:rw` is an option: the path may contain colons, spaces, newlines.
    Raises ConfigError for a relative path: a configuration has no place of its own.
    """
    if isinstance(value, os.PathLike):
        path = check_path(value, "a workspace")
        if path.endswith((":ro", ":rw")):
            why = "a path that ends so looks like an option; write a text that ends in :ro or :rw"
            raise refusal(path, "a workspace", why)
        return WorkspaceValue(path, read_only=None)
    text = check_text(value, "a workspace")
    if text == "none":
        return None
    read_only = None
    if text.endswith((":ro", ":rw")):
        text, read_only = text[:-3], text.endswith(":ro")
        if not text:
            return WorkspaceValue(None, read_only)
    if text == PER_CALL:
        return WorkspaceValue(None, read_only, per_call=True)
    if not text.startswith("/"):
        why = "expected an absolute directory, DIR:ro, or none"
        raise refusal(text, "a workspace", why, remedy='--workspace "$PWD/DIR"')
    return WorkspaceValue(check_path(text, "a workspace"), read_only)


def directory_wanted(workspace: str | None) -> WorkspaceValue | None:
    """The working tree of a configuration with its preset in it; None: there is none (yet)."""
    value = parse_workspace(workspace or ":rw")
    return None if value is None or value.per_call else value


def is_per_call(workspace: str | None) -> bool:
    """Whether it is still to be named, by each call."""
    return (
        workspace is not None
        and (parse_workspace(workspace) or WorkspaceValue(None, None)).per_call
    )


# docker's keys and their aliases: docs of `docker run --mount`.
_MOUNT_KEYS: dict[str, str] = {
    "type": "type",
    "src": "source",
    "source": "source",
    "dst": "target",
    "target": "target",
    "destination": "target",
    "ro": "read_only",
    "readonly": "read_only",
    "size": "size",
    "tmpfs-size": "size",
}
_TRUTH: dict[str, bool] = {"": True, "true": True, "1": True, "false": False, "0": False}
_MOUNT_FORM = "expected type=bind,src=SRC,dst=DST[,ro] or type=tmpfs,dst=DST[,size=N]"


def parse_mount(value: object) -> VolumeValue | TmpfsValue:
    """docker's --mount, one CSV record: `type=bind,src=,dst=,ro` or `type=tmpfs,dst=,size=`.

    A field with a comma or a quote is quoted as a whole, as in docker: `"src=/a,b"`.
    """
    text = check_text(value, "a mount")
    options = _mount_options(text)
    kind = options.pop("type", "bind")
    build = _MOUNT_KINDS.get(kind)
    if build is None:
        why = f"type {kind!r} is not known here; {_MOUNT_FORM}"
        raise refusal(text, "a mount", why, remedy="there are no named volumes: bind a directory")
    target = options.pop("target", None)
    if target is None:
        raise refusal(text, "a mount", f"dst is missing; {_MOUNT_FORM}")
    mount = build(text, check_path(target, "a mount's dst"), options)
    if options:
        why = f"{next(iter(options))!r} does not belong to type {kind}; {_MOUNT_FORM}"
        raise refusal(text, "a mount", why)
    return mount


def _mount_options(text: str) -> dict[str, str]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise refusal(text, "a mount", f"{error}; {_MOUNT_FORM}") from None
    if len(rows) != 1:
        raise refusal(text, "a mount", _MOUNT_FORM)
    options: dict[str, str] = {}
    for entry in rows[0]:
        name, equals, content = entry.partition("=")
        key = _MOUNT_KEYS.get(name.strip().lower())
        if key is None:
            why = f"{name!r} is not an option{did_you_mean(name, _MOUNT_KEYS)}; {_MOUNT_FORM}"
            raise refusal(text, "a mount", why)
        if key in options:
            raise refusal(text, "a mount", f"{name!r} is there twice")
        if not content and (equals or key != "read_only"):
            raise refusal(text, "a mount", f"{name!r} has no value; {_MOUNT_FORM}")
        options[key] = content
    return options


def _bind(text: str, target: str, options: dict[str, str]) -> VolumeValue:
    if "source" not in options:
        raise refusal(text, "a mount", f"src is missing; {_MOUNT_FORM}")
    source = check_path(options.pop("source"), "a mount's src")
    word = options.pop("read_only", "false").lower()
    if word not in _TRUTH:
        raise refusal(text, "a mount", "ro is true or false")
    return VolumeValue(source, target, _TRUTH[word])


def _tmpfs(text: str, target: str, options: dict[str, str]) -> TmpfsValue:
    size = options.pop("size", None)
    try:
        return TmpfsValue(target, None if size is None else parse_size(size, minimum=1))
    except ConfigError as error:
        raise refusal(text, "a mount", str(error)) from None


_MOUNT_KINDS: dict[str, Callable[[str, str, dict[str, str]], VolumeValue | TmpfsValue]] = {
    "bind": _bind,
    "tmpfs": _tmpfs,
}
