"""What `run` does when no plan is at hand: options to a SandboxConfig, and that to a plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ocisbx.backends.compile import check_named, compile_plan, survey
from ocisbx.backends.lower import lower
from ocisbx.backends.oci import client_for, new_id
from ocisbx.bundle.directory import BundleDirectory
from ocisbx.capabilities import apply_capabilities
from ocisbx.cli.notes import notes
from ocisbx.cli.output import put_json, say
from ocisbx.cli.run import config_path
from ocisbx.cli.run_options import DEVICE_LIMITS, FIELDS, RELATIVE
from ocisbx.config import SandboxConfig
from ocisbx.container.resolve import resolve
from ocisbx.documents import read_file
from ocisbx.errors import ConfigError
from ocisbx.host import Host
from ocisbx.mounts import TmpfsValue, parse_mount, parse_tmpfs
from ocisbx.places import find_places
from ocisbx.quantities import parse_device_limit, parse_ulimit
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.backends.base import Call
    from ocisbx.plan import Plan


def compile_options(options: Mapping[str, Any]) -> Plan:
    """A plan for this machine. Raises ConfigError, RuntimeMissing, Unsupported."""
    return compile_plan(build_config(options))


def build_config(options: Mapping[str, Any]) -> SandboxConfig:
    """The file, where there is one, with the options over it; lists of the file are added to.

    Raises:
        ConfigError: the file, or an option's value, is wrong.
    """
    path = config_path(options)
    base = SandboxConfig() if path is None else SandboxConfig.from_toml(Path(path))
    if path is not None and "preset" in options:
        base = base.updated({"preset": options["preset"]})
    fields = {field: options[key] for key, field in FIELDS.items() if key in options}
    for key, words in RELATIVE.items():
        if key in options and options[key] not in words:
            fields[FIELDS[key]] = os.path.abspath(options[key])
    if "runtime" not in options and (named := os.environ.get("OCISBX_RUNTIME")):
        fields["runtime.names"] = [name.strip() for name in named.split(",")]
    _add_files(fields, options, base)
    _add_lists(fields, options, base)
    return base.updated(fields) if fields else base


def _add_files(fields: dict[str, Any], options: Mapping[str, Any], base: SandboxConfig) -> None:
    said = base.said()
    volumes: list[Any] = [*options.get("volume", ())]
    scratch = [parse_tmpfs(text) for text in options.get("tmpfs", ())]
    for text in options.get("mount", ()):
        mount = parse_mount(text)
        if isinstance(mount, TmpfsValue):
            scratch.append(mount)
        else:
            volumes.append(mount._asdict())
    if volumes:
        fields["volumes"] = [*said.get("volumes", ()), *volumes]
    if scratch:
        fields["tmpfs"] = {mount.target: mount.size_bytes for mount in scratch}


def _add_lists(fields: dict[str, Any], options: Mapping[str, Any], base: SandboxConfig) -> None:
    if "allow-degraded" in options:
        fields["allow_degraded"] = [*base.allow_degraded, *options["allow-degraded"]]
    if "ulimit" in options:
        fields["limits.rlimits"] = dict(map(parse_ulimit, options["ulimit"]))
    devices: dict[str, dict[str, str]] = {}
    for key, field in DEVICE_LIMITS.items():
        for device, limit in map(parse_device_limit, options.get(key, ())):
            devices.setdefault(device, {})[field] = limit
    if devices:
        fields["limits.io"] = devices
    changes = [f"-{name}" for name in options.get("cap-drop", ())]
    changes += [f"+{name}" for name in options.get("cap-add", ())]
    if changes:
        mine = base.isolation.capabilities or ()
        # The file's own list, where it names them exactly, is what the options change.
        exact = bool(mine) and mine[0][0] not in "+-"
        checked = SandboxConfig.build({"isolation": {"capabilities": changes}})
        wanted = checked.isolation.capabilities or ()
        fields["isolation.capabilities"] = (
            list(apply_capabilities(mine, wanted)) if exact else [*mine, *wanted]
        )


def dry_run(options: Mapping[str, Any], argv: tuple[str, ...], extra: dict[str, str]) -> int:
    """Print what would be run: config.json; with --json the runtime's command line too."""
    config = build_config(options)
    check_named(config)
    if "host" in options:
        host = read_host(options["host"])
        plan = plan_for(config, host)
    else:
        # What is only shown is not tried: nothing is started.
        host = survey(config, may_try=False)
        plan = lower(config, resolve(config, host), host)
    plan.commands.check(argv)
    container_id = new_id()
    document = plan.standing_config(
        container_id,
        root=plan.root_directory or "rootfs",
        argv=argv,
        environment=plan.payload_environment(os.environ, extra),
    )
    if "posture" in options:
        from ocisbx.cli.posture import say_plan  # noqa: PLC0415 -- for --posture only

        say_plan(plan, extra)
    if "json" not in options:
        for note in notes(plan):
            say(note)
        put_json(document)
        return 0
    bundle = BundleDirectory(f"{find_places().bundles}/{container_id}")
    put_json(
        {
            "config": document,
            "argv": client_for(plan, bundle).run_args(container_id, bundle.path, socket=True),
            "enforcement": {name: entry._asdict() for name, entry in plan.enforcement.items()},
            "warnings": list(plan.warnings),
            "host": host.model_dump(mode="json"),
        }
    )
    return 0


def read_host(path: str) -> Host:
    """The described host of `--host FILE`. Raises ConfigError: the file is no Host."""
    try:
        return Host.model_validate_json(read_file(Path(path)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise ConfigError(
            f"--host {show(path)} does not describe a host",
            why=f"{where}: {first['msg']}",
            remedy="ocisbx run --dry-run --json prints this machine's, under `host`",
        ) from None


def plan_for(config: SandboxConfig, host: Host) -> Plan:
    """A plan for a described host, which this machine need not be.

    Raises:
        ConfigError: the host does not tell what this configuration needs.
    """
    try:
        return lower(config, resolve(config, host), host)
    except KeyError as error:
        raise ConfigError(
            f"the host of --host does not tell about {error.args[0]}",
            remedy="add it to `paths` of the file (a pattern of [filesystem] to `matches`, a key "
            "of [limits.io] to `disks`)",
        ) from None


def keep_for_run(directory: str, plan: Plan, call: Call) -> tuple[Plan, str]:
    """Write the bundle that is to be kept; the plan that runs exactly it, and where it lies."""
    from ocisbx.backends.kept import keep_bundle, kept_plan  # noqa: PLC0415 -- for --keep-bundle

    path = keep_bundle(directory, plan, call)
    return kept_plan(path, like=plan), path
