"""Kept bundles: written from a plan, made into a plan again, and run by the bare runtime."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ocisbx.backends.compile import compile_plan
from ocisbx.backends.oci import new_id, owner_record
from ocisbx.bundle.check import check_bundle
from ocisbx.bundle.covers import COVERS
from ocisbx.bundle.directory import INIT_FILE
from ocisbx.bundle.kept import SANDBOX_FILE, STATE_DIRECTORY, read_config, write_kept
from ocisbx.bundle.owner import read_owner, read_regular
from ocisbx.bundle.view import INIT_NODE
from ocisbx.cgroup.files import cgroup_files, controllers_of
from ocisbx.command import ENVIRONMENT
from ocisbx.config import SandboxConfig
from ocisbx.container.merge import command_policy, merge_preset
from ocisbx.container.paths import is_below
from ocisbx.container.policy import FREE
from ocisbx.container.resolve import DEFAULT_GRACE_S, DEFAULT_MAX_OUTPUT_BYTES
from ocisbx.errors import BundleError, Unsupported
from ocisbx.placeholder import Placeholder, is_blank
from ocisbx.plan import CgroupPlan, Plan, Shown, Template
from ocisbx.probe.cgroups import look, user_buses
from ocisbx.probe.mounted import ANYWHERE
from ocisbx.quirks import find_quirks
from ocisbx.result import RuntimeInfo
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.backends.base import Call
    from ocisbx.bundle.owner import Owner
    from ocisbx.cgroup.files import Files
    from ocisbx.quirks import Quirks

# What a shell without ocisbx types for the cell (ocisbx-init(7)): util-linux's unshare(1) makes
# the namespaces, and mounts become private.
CELL_WORDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "mount": ("unshare", "--mount", "--cgroup"),
    "user": ("unshare", "--user", "--map-root-user", "--mount", "--cgroup"),
}
PLATFORM_FLAG = "--platform="
# systemd(1)'s own file of a scope is not ours to write: the limits stand on a cgroup below it.
LIMIT_SCRIPT = (
    'cd "$1$(sed -n s/^0:://p /proc/self/cgroup)" && mkdir c && echo 0 >c/cgroup.procs && '
    'for one in $2; do echo "+$one" >cgroup.subtree_control || exit; done; shift 2; '
    'while [ "$1" != -- ]; do echo "$2" >"c/$1" || exit; shift 2; done; shift; exec "$@"'
)
FREE_SCRIPT = 'test -e "$2" || printf %s "$1" >"$2"; shift 2; exec "$@"'
CELL_SCRIPT = 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"'


def keep_bundle(given: str, plan: Plan, call: Call) -> str:
    """Write the bundle of this call into the directory `given`; returns its absolute path.

    Raises:
        ConfigError: the directory is in use.
        BundleError: it cannot be written.
        PolicyDenied: `[commands]` does not let it run.
    """
    plan.commands.check(call.argv)
    sandbox = SandboxConfig.from_toml(plan.sandbox_toml)
    if any(node.kind == "copy" for node in plan.nodes):
        plan = compile_plan(sandbox, lasting=True)
    container_id = new_id()
    config = plan.standing_config(
        container_id,
        root=plan.root_directory or "rootfs",
        argv=call.argv,
        environment=plan.payload_environment(call.environment, call.extra_environment),
    )
    if call.extra_environment:
        # The names only: values are in config.json, which is the owner's alone.
        names = dict.fromkeys([*sandbox.env.inherit, *call.extra_environment])
        sandbox = sandbox.updated({"env.inherit": list(names)})
    return write_kept(
        given,
        plan,
        config=config,
        owner=owner_record(container_id, plan, call, ""),
        sandbox=sandbox.to_toml(),
    )


def checked_config(path: str) -> dict[str, Any]:
    """config.json of a bundle that `bundle check` finds nothing wrong with.

    Raises:
        BundleError: it is missing, or breaks a rule.
    """
    found = check_bundle(path)
    if found:
        raise BundleError(
            f"{show(path)} is not a valid bundle",
            why=str(found[0]) + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""),
            remedy=f"ocisbx bundle check {shlex.quote(path)}",
        )
    document: dict[str, Any] = read_config(path)
    return document


def kept_plan(given: str, like: Plan | None = None) -> Plan:
    """A plan that runs the kept bundle as its config.json says, whoever edited it; `like`, the
    plan that it was made from, tells the rest where it is at hand.

    Raises:
        BundleError: it is no valid bundle, or not one of ocisbx's.
        Unsupported: it wants a terminal, which its runtime cannot give it.
    """
    path = os.path.abspath(given)
    document = checked_config(path)
    process = document["process"]
    if process["args"][0] != INIT_NODE:
        raise BundleError(
            f"{show(path)}: process.args does not start with {INIT_NODE}",
            why="without the init nothing reports the command's end",
            remedy=f"ocisbx bundle rerun {shlex.quote(path)} runs it by the runtime alone",
        )
    terminal, quirks = bool(process.get("terminal")), _quirks(path, like)
    if terminal and quirks.socket_args is None:
        what = f"{show(path)}: process.terminal cannot be used with this {quirks.name}"
        raise Unsupported(what, remedy='set "terminal": false in its config.json')
    root = os.path.join(path, document["root"]["path"])
    document["root"]["path"] = root
    placeholders = _placeholders(document)
    for mount in document.get("mounts", ()):
        if "source" in mount and mount.get("type") == "bind":
            mount["source"] = os.path.join(path, mount["source"])
    cgroup, template = _place(
        document,
        always=like is not None and like.cgroup is not None,
        insists=quirks.always_placed,
    )
    own = ((f"{path}/{COVERS}", ANYWHERE, False), (f"{path}/{INIT_FILE}", INIT_NODE, False))
    if like is not None:
        verified = (*like.verified, *own) if like.verified else ()
        return like._replace(
            template=template,
            cgroup=cgroup,
            root_directory=root,
            share_root=False,
            verified=verified,
            terminal=terminal,
        )
    plan = _bare_plan(path, document, template, root)._replace(cgroup=cgroup)
    if not os.path.isdir(f"{path}/{COVERS}"):
        return plan
    return plan._replace(placeholders=placeholders, verified=(*_granted(document), *own))


def _quirks(path: str, like: Plan | None) -> Quirks:
    if like is not None:
        return find_quirks(like.runtime.name, like.runtime.version)
    owner = read_owner(path)
    return find_quirks(owner.runtime_name, owner.runtime_version)


def _place(
    document: dict[str, Any], *, always: bool, insists: bool
) -> tuple[CgroupPlan | None, Template]:
    """The limits of the document, which then hold on the cgroup above the container's, and the text
    without them; with `always` it has such a cgroup without limits too. `insists`: the runtime has
    to be told a place, also where it has none."""
    linux = document.setdefault("linux", {})
    resources = linux.pop("resources", {})
    linux.pop("cgroupsPath", None)
    held = bool(resources) or always
    if not held and not insists:
        return None, Template((json.dumps(document, ensure_ascii=False),), ())
    mark = secrets.token_hex(16)
    linux["cgroupsPath"] = mark
    before, _, after = json.dumps(document, ensure_ascii=False).partition(json.dumps(mark))
    template = Template((before, after), ("cgroup",))
    return CgroupPlan(cgroup_files(resources), resources) if held else None, template


def _bare_plan(path: str, document: dict[str, Any], template: Template, root: str) -> Plan:
    owner = read_owner(path)
    settings = _settings(path)
    return Plan(
        template=template,
        nodes=(),
        root_directory=root,
        share_root=False,
        runtime=RuntimeInfo(
            requested=owner.runtime_name,
            name=owner.runtime_name,
            path=owner.runtime_path,
            version=owner.runtime_version,
            platform=_platform(owner),
        ),
        runtime_args=tuple(owner.runtime_args),
        cell=_cell(owner),
        sealed=False,
        cgroup=None,
        environment={},
        inherit=(),
        workdir=document["process"]["cwd"],
        shown=_shown(document),
        owner=_outside(document),
        timeout_s=settings.timeout_s,
        grace_s=DEFAULT_GRACE_S if settings.grace_s is None else settings.grace_s,
        max_output_bytes=settings.capture.max_bytes or DEFAULT_MAX_OUTPUT_BYTES,
        on_output_limit=settings.capture.on_limit or "truncate",
        combine=bool(settings.capture.combine),
        terminal=bool(document["process"].get("terminal")),
        commands=command_policy(settings),
        # What was asked for is not known of a file that anybody may have edited.
        enforcement={},
        warnings=(),
        guards=(),
        placeholders=(),
        covers=(),
        verified=(),
        sandbox_toml=settings.to_toml(),
        max_sandboxes=settings.concurrency.cap,
        wait_s=settings.concurrency.wait_s,
    )


def _shown(document: dict[str, Any]) -> tuple[Shown, ...]:
    return tuple(
        Shown(mount["source"], mount["destination"])
        for mount in document.get("mounts", ())
        if mount.get("type") == "bind"
    )


def _placeholders(document: dict[str, Any]) -> tuple[Placeholder, ...]:
    """The names that the bundle's mounts keep free, and that are free on this host."""
    binds = [mount for mount in document.get("mounts", ()) if mount.get("type") == "bind"]
    found = []
    for mount in binds:
        if not mount.get("source", "/").startswith(f"{COVERS}/"):
            continue
        target = mount["destination"]
        around = [
            one
            for one in binds
            if one["source"].startswith("/") and is_below(target, one["destination"])
        ]
        if around:
            ground = max(around, key=lambda one: len(one["destination"]))
            below = os.path.relpath(target, ground["destination"])
            path = os.path.normpath(os.path.join(ground["source"], below))
            if is_blank(path) and os.path.isdir(os.path.dirname(path)):
                content = (name for name, source in FREE.items() if source == mount["source"])
                found.append(Placeholder(path, next(content, "")))
    return tuple(found)


def _granted(document: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """What the bundle mounts of the host, whoever wrote it there."""
    for mount in document.get("mounts", ()):
        if mount.get("type") == "bind":
            writable = "ro" not in mount.get("options", ())
            yield os.path.realpath(mount["source"]), mount["destination"], writable


def _settings(path: str) -> SandboxConfig:
    """What config.json cannot say: the timeout and the capture's limits."""
    file = Path(path, SANDBOX_FILE)
    if not file.exists():
        return merge_preset(SandboxConfig())
    try:
        return merge_preset(SandboxConfig.from_toml(read_regular(str(file))))
    except (OSError, ValueError) as error:
        raise BundleError(f"{show(str(file))} cannot be read", why=str(error)) from error


def _outside(document: dict[str, Any]) -> tuple[int, int] | None:
    """Who the payload is on the host, when root runs it as somebody else."""
    linux = document.get("linux", {})
    user = document["process"]["user"]
    if os.geteuid() != 0 or not linux.get("uidMappings"):
        return None
    ids = []
    for field in ("uid", "gid"):
        row = next(
            row
            for row in linux[f"{field}Mappings"]
            if 0 <= user[field] - row["containerID"] < row["size"]
        )
        ids.append(row["hostID"] + user[field] - row["containerID"])
    return None if ids == [user["uid"], user["gid"]] else (ids[0], ids[1])


def _platform(owner: Owner) -> str | None:
    given = (word for word in owner.runtime_args if word.startswith(PLATFORM_FLAG))
    return next((word.removeprefix(PLATFORM_FLAG) for word in given), None)


def _cell(owner: Owner) -> Any:  # noqa: ANN401 -- Plan.cell's literals, read from JSON
    if owner.cell not in CELL_WORDS:
        raise BundleError(f"owner.json: cell {show(owner.cell)} is not known")
    return owner.cell


def rerun_command(given: str) -> list[str]:
    """The command that runs the kept bundle by its bare runtime, word by word.

    Raises:
        BundleError: it is no valid bundle, or not one of ocisbx's, or no file of cgroup v2 holds
            one of its limits.
    """
    path = os.path.abspath(given)
    document = checked_config(path)
    owner = read_owner(path)
    limits = cgroup_files(document.get("linux", {}).get("resources") or {})
    quirks = find_quirks(owner.runtime_name, owner.runtime_version)
    cell = CELL_WORDS[_cell(owner)]
    words = [*cell, "--", "sh", "-c", CELL_SCRIPT, "sh"] if cell else []
    for one in _placeholders(document):
        if one.content and not os.path.lexists(one.path):
            # The runtime would make an empty file, which is not the same.
            words = ["sh", "-c", FREE_SCRIPT, "sh", one.content, one.path, *words]
    if limits:
        words = [*_bus_words(), *(() if quirks.systemd_flag else _scope_words(limits)), *words]
    if quirks.starts_in_bundle:
        words = ["env", f"--chdir={path}", *words]
    if quirks.needs_path:
        words = ["env", f"PATH={ENVIRONMENT['PATH']}", *words]
    return [
        *words,
        owner.runtime_path,
        # In the bundle: a runtime's default place needs XDG_RUNTIME_DIR, or root.
        "--root",
        f"{path}/{STATE_DIRECTORY}",
        *owner.runtime_args,
        *([quirks.systemd_flag] if limits and quirks.systemd_flag else ()),
        "run",
        "--bundle",
        f"{path}/",
        f"ocisbx-{new_id()}",
    ]


def _bus_words() -> list[str]:
    """What tells a program where the user manager can be asked, in any environment."""
    uid = os.geteuid()
    # The manager's own socket is no bus, and root asks the system's.
    buses = (bus for bus in user_buses(uid) if uid and not bus.endswith("/systemd/private"))
    bus = next(buses, "")
    return ["env", f"DBUS_SESSION_BUS_ADDRESS=unix:path={quote(bus)}"] if bus else []


def _scope_words(limits: Files) -> list[str]:
    """What starts a program in a cgroup with these limits, made by hand."""
    manager = ["--user"] if os.geteuid() else []
    pairs = [word for name, lines in limits.items() for line in lines for word in (name, line)]
    return [
        *("systemd-run", *manager, "--scope", "--quiet", "-p", "Delegate=yes", "--"),
        *("sh", "-c", LIMIT_SCRIPT, "sh", look().mount, " ".join(sorted(controllers_of(limits)))),
        *(*pairs, "--"),
    ]


def shell_line(words: list[str]) -> str:
    """One line for a POSIX shell, also where a word holds a newline."""
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if "\n" not in word:
        return shlex.quote(word)
    # A command substitution drops newlines at the end: no word here ends in one.
    pieces = word.split("\n")
    form = "\\n".join(["%s"] * len(pieces))
    return f"\"$(printf '{form}' {' '.join(map(shlex.quote, pieces))})\""
