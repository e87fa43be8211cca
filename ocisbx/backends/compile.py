"""compile_plan(): look at the host, choose a runtime by trying, decide, lower.

The only module between the models and the hot path: a plan that is at hand is launched without
importing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.backends.lower import lower
from ocisbx.backends.trial import Trier
from ocisbx.container.merge import merge_preset, wanted_runtime
from ocisbx.container.resolve import resolve
from ocisbx.container.select import candidates, objection
from ocisbx.plan import Guard, fingerprint
from ocisbx.probe.gather import gather
from ocisbx.probe.remembered import runtime_memory

if TYPE_CHECKING:
    from ocisbx.config import SandboxConfig
    from ocisbx.container.select import Wanted
    from ocisbx.host import Host, RuntimeBinary
    from ocisbx.plan import Plan


def compile_plan(config: SandboxConfig) -> Plan:
    """A plan for this machine, as it is now.

    Raises:
        ConfigError, RuntimeMissing, Unsupported: as `resolve`.
    """
    host = survey(config)
    plan = lower(config, resolve(config, host), host)
    return plan._replace(guards=_guards(host))


def survey(config: SandboxConfig, *, may_try: bool = True) -> Host:
    """The Host record for `config`, with what came of trying its candidates, in order, until one
    is sound. Without `may_try` only what is remembered counts: nothing is started.

    Raises:
        ConfigError: a path of the configuration cannot be looked at.
    """
    host = gather(merge_preset(config))
    wanted = wanted_runtime(config)
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


def _guards(host: Host) -> tuple[Guard, ...]:
    """What must still be so for the plan to be used again."""
    exact = [runtime.path for runtime in host.runtimes]
    exact += ["/etc/subuid", "/etc/subgid", *host.texts]
    # A directory's mtime changes when an entry comes or goes.
    exact += list(host.listings)
    identity = [path for path in host.paths if path not in exact]
    return tuple(
        Guard(path, precise, fingerprint(path, exact=precise))
        for paths, precise in ((exact, True), (identity, False))
        for path in dict.fromkeys(paths)
    )
