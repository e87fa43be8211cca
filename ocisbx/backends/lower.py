"""Lowering: ContainerConfig -> Spec -> Plan, pure."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from ocisbx.cgroup.files import cgroup_files
from ocisbx.plan import CgroupPlan, Plan, RootNode, Shown, Template, hash_of
from ocisbx.quirks import find_quirks
from ocisbx.result import Enforced, RuntimeInfo
from ocisbx.specgen.build import build_spec
from ocisbx.specgen.resources import build_resources

if TYPE_CHECKING:
    from ocisbx.config import SandboxConfig
    from ocisbx.container.model import ContainerConfig, EnforcementEntry, Node
    from ocisbx.host import Host


def enforced(entry: EnforcementEntry) -> Enforced:
    """As a result tells it."""
    return Enforced(entry.requested, entry.actual, entry.state, entry.how)


def lower(config: SandboxConfig, container: ContainerConfig, host: Host) -> Plan:
    """The plan of a container; pure, so without guards."""
    quirks = find_quirks(container.runtime.name, container.runtime.version)
    return Plan(
        template=make_template(container),
        nodes=tuple(_root_node(node) for node in container.root.nodes),
        root_directory=container.root.directory,
        share_root=container.root.shared,
        runtime=_runtime_info(container),
        runtime_args=runtime_args(container),
        cell=container.cell,
        # Ubuntu's AppArmor lets a runtime make user namespaces by its path, which a memfd hides.
        sealed=bool(quirks.sealed_pays) and not host.apparmor_restricts_user_namespaces,
        cgroup=_cgroup(container),
        environment=container.environment.fixed,
        inherit=container.environment.inherit,
        workdir=container.workdir,
        shown=_shown(container),
        owner=_owner(container, host),
        timeout_s=container.timeout_s,
        grace_s=container.grace_s,
        max_output_bytes=container.capture.max_bytes,
        on_output_limit=container.capture.on_limit,
        combine=container.capture.combine,
        terminal=container.terminal,
        commands=container.commands,
        enforcement={name: enforced(entry) for name, entry in container.enforcement.items()},
        warnings=container.warnings,
        guards=(),
        placeholders=container.host_side.placeholders,
        covers=container.host_side.covers,
        verified=container.host_side.verified,
        sandbox_toml=config.to_toml(),
        max_sandboxes=config.concurrency.cap,
        wait_s=config.concurrency.wait_s,
    )


def _runtime_info(container: ContainerConfig) -> RuntimeInfo:
    return RuntimeInfo(
        requested=container.runtime_requested,
        name=container.runtime.name,
        path=container.runtime.path,
        version=container.runtime.version,
        platform=container.runtime.platform,
    )


def _cgroup(container: ContainerConfig) -> CgroupPlan | None:
    if not container.cgroup:
        return None
    resources = build_resources(container.limits)
    document = {} if resources is None else resources.to_dict()
    return CgroupPlan(cgroup_files(document), document)


def runtime_args(container: ContainerConfig) -> tuple[str, ...]:
    """What the runtime has to be told on its command line, beside what config.json says."""
    quirks = find_quirks(container.runtime.name, container.runtime.version)
    found = [*quirks.global_args]
    if quirks.network_flag:
        found.append(f"--network={container.network}")
    if container.runtime.platform is not None:
        found.append(f"--platform={container.runtime.platform}")
    if container.confinement.seccomp != "none":
        found += quirks.seccomp_args
    return tuple(found)


def _shown(container: ContainerConfig) -> tuple[Shown, ...]:
    """What lies in the bundle (sources that are relative) is nothing of the host's."""
    return tuple(
        Shown(bind.source, bind.target) for bind in container.binds if bind.source.startswith("/")
    )


def _owner(container: ContainerConfig, host: Host) -> tuple[int, int] | None:
    who = container.identity
    if host.uid != 0 or who.uid_map[0].host == 0:
        return None
    return who.uid_map[0].host + who.uid, who.gid_map[0].host + who.gid


def _root_node(node: Node) -> RootNode:
    usual = 0o644 if node.kind == "file" else 0o755
    mode = usual if node.mode is None else node.mode
    looked = hash_of(node.looked) if node.kind == "copy" else ""
    return RootNode(node.kind, node.path, node.content, mode, looked)


def make_template(container: ContainerConfig) -> Template:
    """config.json with random marks in its slots, cut there: no value of a caller's can be one."""
    mark = secrets.token_hex(16)
    marks = {
        "args": json.dumps(f"{mark}:args"),
        "env": json.dumps(f"{mark}:env"),
        "cgroup": json.dumps(f"{mark}:cgroup"),
        "root": json.dumps(f"{mark}:root"),
    }
    spec = build_spec(
        container,
        root=f"{mark}:root",
        argv=[f"{mark}:args"],
        environment=[f"{mark}:env"],
        cgroup=f"{mark}:cgroup",
    )
    rest = spec.to_json()
    parts: list[str] = []
    slots: list[str] = []
    while True:
        found = {slot: rest.find(text) for slot, text in marks.items() if text in rest}
        if not found:
            break
        slot = min(found, key=lambda name: found[name])
        before, _, rest = rest.partition(marks[slot])
        parts.append(before)
        slots.append(slot)
    return Template((*parts, rest), tuple(slots))
