"""report(): what this host and each of its runtimes can do, and what would be chosen, and why."""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING, Any

from ocisbx.backends.trial import Trier
from ocisbx.config import SandboxConfig
from ocisbx.container.merge import wanted_runtime
from ocisbx.container.select import candidates, objection
from ocisbx.doctor.examine import program_trouble, try_all
from ocisbx.errors import OcisbxError
from ocisbx.oci.features import Features
from ocisbx.probe.system import try_user_namespace
from ocisbx.quirks import Quirks, find_quirks, lacks
from ocisbx.runtime.client import RuntimeClient

if TYPE_CHECKING:
    from ocisbx.backends.trial import Trial
    from ocisbx.doctor.examine import Tell
    from ocisbx.host import Host, RuntimeBinary

REASONS: dict[str, str] = {
    "crun": "the fastest to start",
    "runc": "takes three to five times as long to start as crun",
    "youki": "tried last: it needs the most help to do as the others do",
    "runsc": "a kernel in user space answers the payload; starts in a tenth of a second",
}
NO_FEATURES = "none that it tells"
# Shown beside the runtime's own words already.
QUIRKS_UNTOLD = ("features",)
NEWEST = "of one name the newest first"
STRONGEST_REASON = "a kernel of the payload's own first, then the order of auto"


def report(tell: Tell = lambda _: None) -> dict[str, Any]:
    """`host`, `runtimes` (each tried for real), and the orders `auto` and `strongest`.

    Takes 5 s at most for each runtime; `tell` hears what is being done.
    """
    trier = Trier(again=True)
    host, trials = try_all(trier, tell)
    return {
        "host": describe_host(host),
        "runtimes": [describe_runtime(trial, trier) for trial in trials],
        "auto": describe_order("auto", host),
        "auto_reason": NEWEST,
        "strongest": describe_order("strongest", host),
        "strongest_reason": STRONGEST_REASON,
    }


def describe_order(name: str, host: Host) -> list[dict[str, str]]:
    """The runtimes in the order in which `name` takes them for the default preset, with why, and
    why not."""
    rows = []
    wanted = wanted_runtime(SandboxConfig(workspace="none"))._replace(names=(name,))
    for runtime in candidates(wanted, host):
        why = objection(runtime, wanted)
        reason = f"not usable: {why}" if why else REASONS[runtime.name]
        on = f" on {runtime.platform}" if runtime.platform and not why else ""
        told = f"{runtime.name} {runtime.version}{on}: {reason}"
        rows.append({"path": runtime.path, "reason": told})
    return rows


def describe_host(host: Host) -> dict[str, Any]:
    """The facts that decide what a sandbox can be here."""
    trouble = program_trouble()
    return {
        "kernel": host.kernel,
        "machine": host.machine,
        "uid": host.uid,
        "cgroups": host.cgroups.hierarchy,
        "own_cgroup": host.cgroups.own,
        "cgroup_way": host.cgroups.way,
        "cgroup_parent": host.cgroups.parent or "none",
        "cgroup_controllers": list(host.cgroups.controllers),
        "cgroup_kill": host.kernel_at_least(5, 14),
        "user_namespaces": trouble or try_user_namespace() or "yes",
        "max_user_namespaces": host.max_user_namespaces,
        "apparmor_restricts_user_namespaces": host.apparmor_restricts_user_namespaces,
        "newuidmap": host.newuidmap,
        "subordinate_uids": [f"{row.start}+{row.count}" for row in host.subordinate_uids],
        "subordinate_gids": [f"{row.start}+{row.count}" for row in host.subordinate_gids],
        "recursive_read_only": host.kernel_at_least(5, 12),
    }


def describe_runtime(trial: Trial, trier: Trier) -> dict[str, Any]:
    """One runtime: what it is, whether it works here, what it says of itself, how it is driven."""
    runtime = trial.runtime
    quirks = find_quirks(runtime.name, runtime.version)._asdict()
    since = ".".join(map(str, quirks.pop("since")))
    row = f"{quirks.pop('name')} from {since} on"
    features, missing = _features(runtime)
    return {
        "name": runtime.name,
        "version": runtime.version,
        "path": runtime.path,
        "usable": trial.works,
        "why_not": trial.words,
        "wall_ms": round(trial.wall_s * 1000, 1),
        "features": features,
        "features_missing": missing,
        "platform": runtime.platform,
        "passed_over": runtime.passed_over,
        "ignores": list(runtime.ignores),
        "enforcement": {
            name: str(entry.state)
            for name, entry in trier.plan(runtime, runtime.platform).enforcement.items()
        }
        if trial.works
        else {},
        "quirks": {"row": row, **quirks},
        "lacks": [
            {"promise": lack.promise, "evidence": lack.evidence, "instead": lack.instead}
            for lack in lacks(runtime.name, runtime.version).values()
        ],
    }


def _features(runtime: RuntimeBinary) -> tuple[dict[str, Any] | None, str]:
    """A summary of the features document, or None and why there is none."""
    quirks = find_quirks(runtime.name, runtime.version)
    with tempfile.TemporaryDirectory(prefix="ocisbx-features-") as scratch:
        client = RuntimeClient(
            path=runtime.path,
            quirks=quirks,
            root=os.path.join(scratch, "root"),
            args=quirks.global_args,
            log=os.path.join(scratch, "log"),
        )
        try:
            document = client.features()
            return (None, NO_FEATURES) if document is None else (summarize(document), "")
        except (OcisbxError, ValueError) as error:
            return None, f"{NO_FEATURES}: {error}"


def summarize(document: dict[str, Any]) -> dict[str, Any]:
    """The part of a features document that matters here; None in it means: it does not say.

    Raises:
        DocumentError (a ValueError): it is no features document.
    """
    features = Features.from_json(json.dumps(_said(document)))
    linux = features.linux
    cgroup = linux.cgroup if linux else None
    seccomp = linux.seccomp if linux else None
    idmap = linux.mount_extensions.idmap if linux and linux.mount_extensions else None
    kinds = ("v1", "v2", "systemd", "systemd_user")
    return {
        "oci_versions": f"{features.oci_version_min} to {features.oci_version_max}",
        "seccomp": seccomp.enabled if seccomp else None,
        "idmapped_mounts": idmap.enabled if idmap else None,
        "cgroup_kinds": [kind for kind in kinds if cgroup and getattr(cgroup, kind)],
    }


def _said(value: Any) -> Any:  # noqa: ANN401 -- any JSON
    """Without what is null: youki writes so what it does not tell."""
    if isinstance(value, dict):
        return {key: _said(one) for key, one in value.items() if one is not None}
    return value


def render_report(document: dict[str, Any]) -> str:
    """A page for a person."""
    lines = ["host", *_rows(document["host"])]
    for runtime in document["runtimes"]:
        lines += ["", *_runtime_lines(runtime)]
    for name in ("auto", "strongest"):
        lines += ["", f"--runtime {name}, in this order ({document[f'{name}_reason']})"]
        lines += [
            f"  {at}. {row['path']}  {row['reason']}"
            for at, row in enumerate(document[name], start=1)
        ]
        lines += [] if document[name] else ["  nothing: `ocisbx doctor` tells what to install"]
    return "\n".join(lines) + "\n"


def _runtime_lines(runtime: dict[str, Any]) -> list[str]:
    works = f"works ({runtime['wall_ms']} ms)"
    state = works if runtime["usable"] else f"not usable: {runtime['why_not']}"
    tried = {key: runtime[key] for key in ("platform", "passed_over", "ignores") if runtime[key]}
    quirks = {
        key: value
        for key, value in runtime["quirks"].items()
        if key not in QUIRKS_UNTOLD and value != Quirks._field_defaults.get(key)
    }
    driven = quirks.pop("row")
    if "kept_state" in quirks:
        quirks["kept_state"] = [name for name, _ in quirks["kept_state"]]
    return [
        f"{runtime['path']}: {runtime['name']} {runtime['version']}, {state}",
        *_rows(tried),
        *_rows(runtime["features"] or {"features": runtime["features_missing"]}),
        f"  driven as {driven}",
        *_rows(quirks),
        *(f"  cannot offer: {lack['promise']}" for lack in runtime["lacks"]),
    ]


def _rows(table: dict[str, Any]) -> list[str]:
    return [f"  {name:<35} {_word(value)}" for name, value in table.items()]


def _word(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "yes", False: "no"}[value]
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_word, value)) or "none"
    return str(value)
