"""Is this directory a bundle that a runtime can run? The schema's rules, and the spec's prose.

The prose rules are those that a hand that edits config.json breaks most easily, and that runtimes
report late, obscurely or not at all. Sections are those of runtime-spec 1.3.0.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ocisbx.bundle.directory import CONFIG_FILE
from ocisbx.bundle.kept import read_config
from ocisbx.bundle.view import INIT_NODE, payload_argv
from ocisbx.errors import BundleError
from ocisbx.oci import Violation, violations
from ocisbx.oci.violation import json_path
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Found = Iterator[tuple[tuple[str | int, ...], str]]
    Document = dict[str, Any]


def check_bundle(path: str) -> list[Violation]:
    """Every violation in the bundle at `path`; none when it is a good one.

    Raises:
        BundleError: there is no such directory.
    """
    if not os.path.isdir(path):
        raise BundleError(
            f"{show(path)} is not a directory", remedy="give the directory that holds config.json"
        )
    if not os.path.lexists(f"{path}/{CONFIG_FILE}"):
        return [Violation("$", f"is missing: there is no {CONFIG_FILE}")]
    try:
        document = read_config(path)
    except BundleError as error:
        return [Violation("$", f"must be JSON: {error.why}")]
    found = violations(document, "config")
    if found:
        # The prose rules read what the schema promises.
        return found
    return [
        Violation(json_path(where), rule) for look in RULES for where, rule in look(document, path)
    ]


def _process(document: Document, _: str) -> Found:
    process = document.get("process")
    if process is None:
        yield ("process",), "is required to start a container (config.md, Process)"
        return
    if not process["cwd"].startswith("/"):
        yield ("process", "cwd"), "must be an absolute path"
    if not process.get("args"):
        yield ("process", "args"), "must name a program"
    for index, entry in enumerate(process.get("env") or ()):
        if "=" not in entry.lstrip("="):
            yield ("process", "env", index), "must have the form NAME=value"
    types = [row["type"] for row in process.get("rlimits") or ()]
    for index, name in enumerate(types):
        if name in types[:index]:
            yield ("process", "rlimits", index, "type"), f"{name} is there twice"


def _root(document: Document, path: str) -> Found:
    root = document.get("root")
    if root is None:
        yield ("root",), "is required on Linux (config.md, Root)"
    elif not os.path.isdir(os.path.join(path, root["path"])):
        yield ("root", "path"), f"{show(root['path'])} must be a directory that exists"


def _mounts(document: Document, path: str) -> Found:
    for index, mount in enumerate(document.get("mounts") or ()):
        if not mount["destination"].startswith("/"):
            yield ("mounts", index, "destination"), "must be an absolute path"
        options = mount.get("options") or ()
        if mount.get("type") == "bind" or {"bind", "rbind"} & set(options):
            source = mount.get("source")
            if source is None:
                yield ("mounts", index), "a bind needs a source"
            elif not os.path.exists(os.path.join(path, source)):
                yield ("mounts", index, "source"), f"{show(source)} does not exist"
        if bool(mount.get("uidMappings")) != bool(mount.get("gidMappings")):
            yield ("mounts", index), "uidMappings and gidMappings must be given together"


def _linux(document: Document, _: str) -> Found:
    linux = document.get("linux") or {}
    types = [row["type"] for row in linux.get("namespaces") or ()]
    for index, name in enumerate(types):
        if name in types[:index]:
            yield ("linux", "namespaces", index, "type"), f"{name} is there twice"
    if document.get("hostname") and "uts" not in types:
        yield ("hostname",), "needs a uts namespace of the container's own"
    for field in ("maskedPaths", "readonlyPaths"):
        for index, entry in enumerate(linux.get(field) or ()):
            if not entry.startswith("/"):
                yield ("linux", field, index), "must be an absolute path"


def _ids(document: Document, _: str) -> Found:
    linux = document.get("linux") or {}
    uids, gids = linux.get("uidMappings") or (), linux.get("gidMappings") or ()
    if bool(uids) != bool(gids):
        yield ("linux",), "uidMappings and gidMappings must be given together"
    types = [row["type"] for row in linux.get("namespaces") or ()]
    if not (uids or gids):
        return
    if "user" not in types:
        yield ("linux", "namespaces"), "id mappings need a user namespace"
    user = (document.get("process") or {}).get("user") or {}
    for field, rows in (("uid", uids), ("gid", gids)):
        number = user.get(field)
        inside = [range(row["containerID"], row["containerID"] + row["size"]) for row in rows]
        if rows and number is not None and not any(number in ids for ids in inside):
            yield ("process", "user", field), f"{number} is not mapped by linux.{field}Mappings"


def _init(document: Document, path: str) -> Found:
    """Our own: the program that process.args names first has to be there."""
    args = (document.get("process") or {}).get("args") or [""]
    if args[0] != INIT_NODE:
        return
    if not payload_argv(args):
        usage = f"{INIT_NODE}, for Landlock -w and an absolute path each, --, and the command"
        yield ("process", "args"), f"must be {usage}"
    if any(mount["destination"] == INIT_NODE for mount in document.get("mounts") or ()):
        return
    root = (document.get("root") or {}).get("path", "")
    program = os.path.join(path, root) + INIT_NODE
    # What holds a NUL exists nowhere; access(2) cannot even be asked.
    if not os.path.exists(program) or not os.access(program, os.X_OK):
        yield ("process", "args", 0), f"{INIT_NODE} is not there, or cannot be executed"


RULES: tuple[Callable[[Document, str], Found], ...] = (
    _process,
    _root,
    _mounts,
    _linux,
    _ids,
    _init,
)
