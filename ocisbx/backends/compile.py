"""compile_plan(): look at the host, choose a runtime by trying, decide, lower.

The only module between the models and the hot path: a plan that is at hand is launched without
importing it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.backends.lower import lower
from ocisbx.backends.trial import Trier
from ocisbx.container.merge import merge_preset, wanted_runtime
from ocisbx.container.resolve import resolve
from ocisbx.container.select import candidates, objection
from ocisbx.errors import ConfigError, RuntimeMissing, Unsupported
from ocisbx.host import PathKind
from ocisbx.mounts import is_per_call
from ocisbx.plan import Guard, Seen, fingerprint
from ocisbx.probe.gather import gather
from ocisbx.probe.remembered import runtime_memory

# How many directories a plan with globs looks at before it is used again.
WALKED_LIMIT = 2000
# By MAJOR:MINOR (sysfs(5)).
BLOCK_DEVICES = "/sys/dev/block"
PROCESSORS = "/sys/devices/system/cpu"
PROCESSOR_FILES = frozenset({"cpu.max", "cpuset.cpus"})

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.config import SandboxConfig
    from ocisbx.container.model import ContainerConfig, Root
    from ocisbx.container.select import Wanted
    from ocisbx.host import Host, RuntimeBinary
    from ocisbx.plan import Plan


class Compiled(NamedTuple):
    """A plan with what it was lowered from."""

    config: SandboxConfig
    host: Host
    container: ContainerConfig
    plan: Plan


def compile_plan(config: SandboxConfig, *, lasting: bool = False) -> Plan:
    """A plan for this machine, as it is now. `lasting`: for a bundle that is kept, whose root has
    no copies of what may change.

    Raises:
        ConfigError, RuntimeMissing, Unsupported: as `resolve`.
    """
    check_named(config)
    return compile_for_pool(config, lasting=lasting).plan


def check_named(config: SandboxConfig) -> None:
    """Raises ConfigError where the workspace is left to the calls of a pool."""
    if is_per_call(config.workspace):
        raise ConfigError(
            "a workspace per call is for pools",
            why="all others are given theirs when they start",
            remedy="name it: workspace = DIR; or see ocisbx-pool(1)",
        )


def compile_for_pool(config: SandboxConfig, *, lasting: bool = False) -> Compiled:
    """`compile_plan`, of what may also leave the workspace to each call."""
    host = survey(config)
    if lasting:
        host = host.model_copy(update={"steady": {}})
    container = resolve(config, host)
    plan = lower(config, container, host)
    weighed = host.model_copy(update={"runtimes": _weighed(config, host, container.runtime)})
    plan = plan._replace(
        guards=(*guards(weighed), *_limit_guards(host, plan), *_copy_guards(container.root))
    )
    if is_per_call(config.workspace):
        # While one call writes in its workspace a container of another is started: whatever of the
        # host that shows is looked at once it is mounted.
        shown = (bind for bind in container.binds if bind.source.startswith("/"))
        rows = tuple((bind.source, bind.target, not bind.read_only) for bind in shown)
        plan = plan._replace(verified=rows)
    return Compiled(config, host, container, plan)


def survey(config: SandboxConfig, *, may_try: bool = True) -> Host:
    """The Host record for `config`, with what came of trying its candidates, in order, until one
    is sound. Without `may_try` only what is remembered counts: nothing is started.

    Raises:
        ConfigError: a path of the configuration cannot be looked at.
    """
    host = gather(merge_preset(config))
    wanted = wanted_runtime(config)
    if may_try:
        # What is wrong with the configuration is said before any runtime is started for it.
        with contextlib.suppress(RuntimeMissing, Unsupported):
            resolve(config, host)
    trier = Trier(may_try=may_try)
    found = _tried(host, wanted, trier)
    if may_try and all(objection(runtime, wanted) for runtime in candidates(wanted, found)):
        trier.doubt()
        return _tried(host, wanted, trier)
    return found


def forget(plan: Plan) -> None:
    """What the plan's choice of a runtime rests on has proved wrong."""
    runtime_memory().forget(plan.runtime.path)


def _tried(host: Host, wanted: Wanted, trier: Trier) -> Host:
    known: dict[str, RuntimeBinary] = {}
    for runtime in candidates(wanted, host):
        known[runtime.path] = trier.try_runtime(runtime, wanted.platform).runtime
        if not objection(known[runtime.path], wanted):
            break
    runtimes = tuple(known.get(runtime.path, runtime) for runtime in host.runtimes)
    return host.model_copy(update={"runtimes": runtimes})


def _weighed(config: SandboxConfig, host: Host, chosen: RuntimeBinary) -> tuple[RuntimeBinary, ...]:
    """Those that would be taken before this one, if they changed: of a name the newest is."""
    found = candidates(wanted_runtime(config), host)
    before = [one.path for one in found].index(chosen.path)
    names = {one.name for one in found[: before + 1]}
    return tuple(one for one in found if one.name in names)


def guards(host: Host) -> tuple[Guard, ...]:
    """What must still be so for the plan to be used again."""
    content = [runtime.path for runtime in host.runtimes]
    content += ["/etc/subuid", "/etc/subgid", *host.texts]
    # A directory's mtime changes when an entry comes or goes.
    content += list(host.listings)
    sights: list[tuple[str, Seen]] = [(path, "content") for path in content]
    sights += [(path, "identity") for path in host.paths if path not in content]
    guards = [Guard(path, sight, fingerprint(path, sight)) for path, sight in dict.fromkeys(sights)]
    return (*guards, *_rule_guards(host))


def _limit_guards(host: Host, plan: Plan) -> tuple[Guard, ...]:
    """What its limits were checked against: the disks, and how many processors there are."""
    sights: list[tuple[str, Seen]] = [
        (key if key.startswith("/") else f"{BLOCK_DEVICES}/{key}", "identity") for key in host.disks
    ]
    if plan.cgroup is not None and not PROCESSOR_FILES.isdisjoint(plan.cgroup.files):
        sights.append((PROCESSORS, "processors"))
    return tuple(Guard(path, sight, fingerprint(path, sight)) for path, sight in sights)


def _copy_guards(root: Root) -> list[Guard]:
    """That what its copies were made of has not changed."""
    copies = (node for node in root.nodes if node.kind == "copy")
    return [Guard(node.content, "steady", node.looked) for node in copies]


def _rule_guards(host: Host) -> list[Guard]:
    """Where the rules of [filesystem] led, and what their globs were looked for in."""
    sights: list[tuple[str, Seen]] = []
    missing: dict[str, None] = {}
    for pattern, found in host.matches.items():
        sights += [(directory, "entries") for directory in found.walked]
        for place in found.places:
            if place.missing:
                missing[place.missing] = None
            if place.instead:
                sights += [(place.instead, "identity"), (place.instead, "link")]
            sights += [(link.path, "link") for link in place.links]
            if place.kind is not PathKind.MISSING and place.missing != place.real:
                sights.append((pattern if not found.walked else place.real, "identity"))
    if sum(sight == "entries" for _, sight in sights) > WALKED_LIMIT:
        # Looking at so many directories costs more than a plan: this one is used once.
        return [Guard("/", "entries", ())]
    guards = [Guard(path, sight, fingerprint(path, sight)) for path, sight in dict.fromkeys(sights)]
    return [*_missing_guards(missing), *guards]


def _missing_guards(paths: Iterable[str]) -> list[Guard]:
    """That what was taken for missing is so, or cannot be looked at for the same reason; and
    whether it could be made."""
    guards = []
    by_parent: dict[str, list[str]] = {}
    for path in paths:
        if (trouble := fingerprint(path, "trouble")) is not None:
            guards.append(Guard(path, "trouble", trouble))
        else:
            parent, _, name = path.rpartition("/")
            by_parent.setdefault(parent or "/", []).append(name)
    for parent, names in by_parent.items():
        guards.append(Guard(parent, "blanks", tuple(names)))
        guards.append(Guard(parent, "writable", fingerprint(parent, "writable")))
    return guards
