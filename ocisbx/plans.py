"""Compiled plans on disk: what lets `ocisbx run` start without the models.

Keyed by the options as they were typed and by the part of the environment that resolving reads;
everything else that a plan rests on stands in its guards, checked on every load.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ocisbx.errors import OcisbxError
from ocisbx.places import ensure, find_places
from ocisbx.plan import Plan, digest
from ocisbx.probe.cgroups import look
from ocisbx.probe.processes import oom_score_adj
from ocisbx.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

# What resolving looks at besides the configuration; a differing value is a different plan.
ENVIRONMENT_NAMES = (
    "HOME",
    "PATH",
    "PWD",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "OCISBX_RUNTIME",
    "OCISBX_CONFIG",
)
KEPT_PLANS = 256


def plan_key(options: Mapping[str, Any]) -> str:
    """A name for the plan of these options (JSON-shaped), here, for this user and kernel."""
    system = os.uname()
    site = look()
    document = {
        "version": VERSION,
        "options": options,
        "cwd": os.getcwd(),
        "ids": [os.geteuid(), os.getegid(), *sorted(os.getgroups())],
        "kernel": [system.release, system.version, system.machine],
        "cgroup": [site.way, site.parent, site.controllers],
        "spared": oom_score_adj() < 0,
        "environment": {name: os.environ.get(name) for name in ENVIRONMENT_NAMES},
    }
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return digest([text.encode()])


def load_plan(key: str) -> Plan | None:
    """The plan, when it is there, ours, readable and still true."""
    try:
        descriptor = os.open(f"{find_places().plans}/{key}.json", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if info.st_uid != os.geteuid() or info.st_mode & 0o022:
            return None
        data = file.read()
    try:
        plan = Plan.from_json(data.decode())
    except (ValueError, KeyError, TypeError):
        return None
    return plan if plan.holds() else None


def store_plan(key: str, plan: Plan) -> None:
    """Keep it, whole or not at all; a cache that cannot be written is no error."""
    directory = find_places().plans
    try:
        ensure(os.path.dirname(directory))
        ensure(directory)
        temporary = f"{directory}/.{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(plan.to_json())
        os.replace(temporary, f"{directory}/{key}.json")
        _prune(directory)
    except (OSError, OcisbxError):
        return


def _prune(directory: str) -> None:
    with os.scandir(directory) as entries:
        plans = sorted(entries, key=lambda entry: entry.stat().st_mtime)
    for entry in plans[:-KEPT_PLANS]:
        os.unlink(entry.path)
