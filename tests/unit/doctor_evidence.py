"""What doctor has seen on recorded hosts: what its pure checks are fed with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ocisbx.backends.trial import Trial
from ocisbx.doctor.evidence import Evidence
from ocisbx.doctor.examine import judge
from ocisbx.host import Cgroups, Host, IdRange, RuntimeBinary
from ocisbx.probe.system import System
from ocisbx.result import Enforced, EnforcementState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.doctor import Finding

CRUN = RuntimeBinary(name="crun", path="/usr/bin/crun", version="1.31")
RUNC = RuntimeBinary(name="runc", path="/usr/sbin/runc", version="1.5.3")
OLD_RUNC = RuntimeBinary(name="runc", path="/usr/sbin/runc", version="1.1.5+ds1")
YOUKI = RuntimeBinary(name="youki", path="/opt/youki", version="0.7.0")
RUNSC = RuntimeBinary(
    name="runsc", path="/opt/runsc", version="release-20260907.0", platform="systrap"
)
OLD_RUNSC = RUNSC.model_copy(update={"version": "0.0~20221219.0", "platform": "ptrace"})
IDS = (IdRange(start=100000, count=65536),)
MANAGER = "/user.slice/user-1000.slice/user@1000.service"
DELEGATED = Cgroups(
    hierarchy="unified",
    mount="/sys/fs/cgroup",
    own=f"{MANAGER}/app.slice/x.scope",
    way="sibling",
    parent=f"{MANAGER}/app.slice",
    controllers=("cpu", "cpuset", "io", "memory", "pids"),
    offered=("cpu", "cpuset", "io", "memory", "pids"),
    systemd=True,
    user_bus="/run/user/1000/bus",
)
INSIDE = {
    "cap_eff": 0,
    "no_new_privs": True,
    "seccomp": 2,
    "landlock": 7,
}


def enforced(state: EnforcementState, how: str = "cgroup") -> dict[str, Enforced]:
    names = ("memory", "pids", "user_namespace")
    return {name: Enforced(1, "uid map 0->1000+1", state, how) for name in names}


HELD = enforced(EnforcementState.ENFORCED)
LOST = enforced(EnforcementState.UNSUPPORTED, "nobody holds it")


def good(runtime: RuntimeBinary = CRUN) -> Trial:
    return Trial(runtime, wall_s=0.02, inside=INSIDE)


def bad(runtime: RuntimeBinary = CRUN, words: str = "clone: Operation not permitted") -> Trial:
    return Trial(runtime.model_copy(update={"trouble": words}), words)


def host(*runtimes: RuntimeBinary, **fields: Any) -> Host:
    record: dict[str, Any] = {
        "machine": "x86_64",
        "kernel": "6.12.9-amd64",
        "uid": 1000,
        "gid": 1000,
        "home": "/home/u",
        "cwd": "/home/u/work",
        "newuidmap": "/usr/bin/newuidmap",
        "newgidmap": "/usr/bin/newgidmap",
        "subordinate_uids": IDS,
        "subordinate_gids": IDS,
        "cgroups": DELEGATED,
        "runtimes": runtimes or (CRUN,),
        **fields,
    }
    return Host.model_validate(record)


SYSTEM = System(
    distributions=("debian",),
    xdg_runtime_dir="/run/user/1000",
    runtime_place="/run/user/1000/ocisbx",
)


# A kernel of the payload's own is there, so that nothing is said about its absence.
OWN = good(RUNSC)


def seen(
    *trials: Trial,
    system: System = SYSTEM,
    held: Mapping[str, Enforced] = HELD,
    **fields: Any,
) -> Evidence:
    runtimes = tuple(trial.runtime for trial in trials)
    enforcement = {trial.runtime.path: held for trial in trials if trial.works}
    return Evidence(host(*runtimes, **fields), system, trials, enforcement=enforcement)


def by_name(evidence: Evidence) -> dict[str, Finding]:
    return {finding.name: finding for finding in judge(evidence)}
