"""`ocisbx inspect`: what a container or a bundle is, and what holds of it."""

from __future__ import annotations

import os
import shlex
from typing import Any

from ocisbx.audit import REDACTED, redact
from ocisbx.backends.names import lookup_name
from ocisbx.backends.observe import observe_bundle
from ocisbx.bundle.kept import read_config
from ocisbx.bundle.owner import read_owner
from ocisbx.cli.options import JSON, Option, Syntax, parse, wants_help
from ocisbx.cli.output import put, put_fields, put_json
from ocisbx.cli.posture import render
from ocisbx.errors import BundleError, ConfigError
from ocisbx.places import bundle_names, find_places
from ocisbx.posture.file_rows import extra_variables
from ocisbx.values import show

INSPECT = Syntax(
    "ocisbx inspect [--posture|--prompt] [--json] ID|NAME|DIR",
    "Show a running container, or a bundle: owner, runtime, config.json. Values of\n"
    "environment variables are redacted, except those that every container has.\n"
    "Exit code 1: --posture found that something asked for does not hold.",
    (
        JSON,
        Option(("--posture",), "flag", "", "what is enforced, by what, and who says so"),
        Option(("--prompt",), "flag", "", "the same for a model's system prompt"),
    ),
    ("ocisbx inspect --posture my-build", "ocisbx inspect --json ./kept-bundle"),
)
EXIT_MISMATCH = 1


def inspect_main(arguments: list[str]) -> int:
    """Show one container or bundle."""
    parsed = parse(INSPECT, arguments)
    if wants_help(INSPECT, parsed):
        return 0
    if {"posture", "prompt"} <= parsed.options.keys():
        raise ConfigError("--posture and --prompt are two answers", remedy="ask for one of them")
    if len(parsed.words) != 1:
        raise ConfigError("one ID, NAME or DIR expected", remedy=f"usage: {INSPECT.usage}")
    path = find_bundle(parsed.words[0])
    if "prompt" in parsed.options:
        return _prompt(path, json="json" in parsed.options)
    if "posture" in parsed.options:
        return _posture(path, json="json" in parsed.options)
    config = redact_config(read_config(path))
    owner = _owner(path)
    if "json" in parsed.options:
        put_json({"bundle": path, "owner": owner, "config": config})
        return 0
    put_fields({"bundle": path, **_shown_owner(owner)})
    put("\n")
    put_json(config)
    return 0


def _prompt(path: str, *, json: bool) -> int:
    text = observe_bundle(path).prompt()
    if json:
        put_json({"prompt": text})
    else:
        put(text)
    return 0


def _posture(path: str, *, json: bool) -> int:
    """Print the posture; EXIT_MISMATCH where something asked for does not hold."""
    posture = observe_bundle(path).posture()
    owner = _owner(path)
    if json:
        put_json({"bundle": path, "owner": owner, **posture.to_dict()})
    else:
        shown = _shown_owner(owner)
        name = f" ({shown['name']})" if shown.get("name") else ""
        about = {"of": f"{shown['id']}{name}, {path}" if owner else path}
        put(render(posture, about | ({"runtime": shown["runtime"]} if owner else {})))
    return EXIT_MISMATCH if posture.mismatches else 0


def find_bundle(given: str) -> str:
    """The directory of a container's id or name, or of a bundle. Raises ConfigError."""
    if "/" not in given and given not in ("", ".", ".."):
        known = bundle_names()
        for container_id in (given, lookup_name(given)):
            if container_id in known:
                return f"{find_places().bundles}/{container_id}"
    if os.path.isdir(given):
        return os.path.abspath(given)
    raise ConfigError(
        f"{show(given)} is neither a container that runs, nor a directory",
        remedy="ocisbx ps lists containers; give a kept bundle's directory",
    )


def redact_config(document: Any) -> Any:  # noqa: ANN401 -- a config.json of anybody's
    """The document without what may be secret: values of variables, tokens in arguments."""
    process = document.get("process") if isinstance(document, dict) else None
    if not isinstance(process, dict):
        return document
    hidden = dict(process)
    if isinstance(process.get("env"), list):
        hidden["env"] = [_redact_variable(str(entry)) for entry in process["env"]]
    if isinstance(process.get("args"), list):
        hidden["args"] = redact([str(argument) for argument in process["args"]])
    return {**document, "process": hidden}


def _redact_variable(entry: str) -> str:
    name, _, value = entry.partition("=")
    return f"{name}={REDACTED}" if value and extra_variables([name]) else entry


def _owner(path: str) -> dict[str, Any] | None:
    try:
        owner = read_owner(path)
    except BundleError:
        # Somebody else's bundle, or one that another program made.
        return None
    return {
        "id": owner.id,
        "name": owner.name,
        "pid": owner.pid,
        "alive": owner.alive(),
        "created_at": owner.created_at,
        "command": redact(owner.command),
        "workdir": owner.workdir,
        "runtime": {
            "name": owner.runtime_name,
            "path": owner.runtime_path,
            "version": owner.runtime_version,
        },
    }


def _shown_owner(owner: dict[str, Any] | None) -> dict[str, Any]:
    if owner is None:
        return {"owner": None}
    runtime = owner["runtime"]
    text = f"{runtime['name']} {runtime['version']} ({runtime['path']})"
    return {**owner, "command": shlex.join(owner["command"]), "runtime": text}
