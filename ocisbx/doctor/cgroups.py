"""Limits that do not hold, and why: the environment told apart by what was seen of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocisbx.doctor.finding import Finding, Severity
from ocisbx.doctor.install import sudo
from ocisbx.quirks import find_quirks
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.doctor.evidence import Evidence

NEEDED = ("memory", "pids")
USER_SLICE = re.compile(r"/user\.slice/user-(\d+)\.slice/")


@dataclass(frozen=True, slots=True)
class Scene:
    """One environment: how it is recognised, what it is called, what is to be typed there."""

    met: Callable[[Evidence], bool]
    seen: str
    remedy: str


def is_wsl(seen: Evidence) -> bool:
    return "microsoft" in seen.host.kernel.lower()


def _hierarchy(*names: str) -> Callable[[Evidence], bool]:
    return lambda seen: seen.host.cgroups.hierarchy in names


def _old(seen: Evidence) -> bool:
    return _hierarchy("hybrid", "v1")(seen)


def _contained(seen: Evidence) -> bool:
    return seen.system.container is not None


def _foreign_session(seen: Evidence) -> bool:
    owner = USER_SLICE.search(seen.host.cgroups.own + "/")
    return owner is not None and int(owner[1]) != seen.host.uid


def _in_session(seen: Evidence) -> bool:
    return "/session-" in seen.host.cgroups.own


def _lacks_controllers(seen: Evidence) -> bool:
    return not set(NEEDED) <= set(seen.system.controllers)


UNIFY = (
    "{sudo}sed -i 's/^GRUB_CMDLINE_LINUX=\"/&systemd.unified_cgroup_hierarchy=1 "
    "cgroup_no_v1=all /' /etc/default/grub\n{sudo}update-grub && {sudo}reboot"
)
SCOPE = "systemd-run --user --scope -p Delegate=yes -- ocisbx run -- COMMAND"
LINGER = (
    "{sudo}loginctl enable-linger $(id -un)\nexport XDG_RUNTIME_DIR=/run/user/$(id -u)\n" + SCOPE
)
OUTER = "docker run --cgroupns=private --privileged ...  # or podman: --cgroups=enabled, systemd"
DELEGATE = (
    "{sudo}mkdir -p /etc/systemd/system/user@.service.d\n"
    "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | "
    "{sudo}tee /etc/systemd/system/user@.service.d/delegate.conf\n"
    "{sudo}systemctl daemon-reload  # then log out and in again"
)
WSL = (
    "# in %UserProfile%\\.wslconfig, below [wsl2]:\n"
    "kernelCommandLine=cgroup_no_v1=all\n"
    "# in /etc/wsl.conf, below [boot]:\n"
    "systemd=true\n"
    "# then, in Windows: wsl --shutdown"
)

# The first that is met tells; the last one always is.
SCENES: tuple[Scene, ...] = (
    Scene(lambda seen: is_wsl(seen) and _old(seen), "WSL2 with hybrid cgroups", WSL),
    Scene(
        lambda seen: _contained(seen) and _old(seen),
        "cgroup v1 or hybrid inside a container: the kernel's command line decides",
        "# on the machine that runs this container:\n" + UNIFY,
    ),
    Scene(_old, "the controllers are bound to cgroup v1", UNIFY),
    Scene(
        _hierarchy("none"),
        "no cgroup file system on /sys/fs/cgroup",
        "{sudo}mount -t cgroup2 cgroup2 /sys/fs/cgroup",
    ),
    Scene(
        lambda seen: seen.system.cgroup_read_only,
        "/sys/fs/cgroup is read-only here",
        "# on the machine that runs this container:\n" + OUTER,
    ),
    Scene(
        lambda seen: _contained(seen) and not seen.host.cgroups.delegated,
        "a container whose cgroup was not handed over",
        "# on the machine that runs this container:\n" + OUTER,
    ),
    Scene(
        _foreign_session,
        "the login session of another user (su or sudo)",
        "machinectl shell $(id -un)@  # or log in by ssh",
    ),
    Scene(
        lambda seen: not seen.host.cgroups.delegated and not seen.system.user_bus,
        "no systemd user manager: XDG_RUNTIME_DIR is not set, or no bus is there",
        LINGER,
    ),
    Scene(_in_session, "a login session's scope, which root owns", SCOPE),
    Scene(lambda seen: not seen.host.cgroups.delegated, "a cgroup that root owns", SCOPE),
    Scene(_lacks_controllers, "a delegated cgroup without memory and pids", DELEGATE),
    Scene(lambda _: True, "a delegated cgroup", ""),
)


def find_scene(seen: Evidence) -> Scene:
    """The environment that the evidence speaks of."""
    return next(scene for scene in SCENES if scene.met(seen))


def check_limits(seen: Evidence) -> Iterator[Finding]:
    """Limits of the default preset that no working runtime holds."""
    tried = next((trial for trial in seen.trials if trial.works), None)
    if tried is None:
        return
    claimed = seen.enforcement.get(tried.runtime.path, {})
    lost = {
        name: claimed[name]
        for name in NEEDED
        if name in claimed and claimed[name].state is not EnforcementState.ENFORCED
    }
    if not lost:
        return
    scene = find_scene(seen)
    reasons = "; ".join(dict.fromkeys(entry.how for entry in lost.values()))
    place = seen.host.cgroups
    yield Finding(
        name="limits-not-held",
        severity=Severity.WEAKENS,
        evidence=f"{reasons} (hierarchy {place.hierarchy}, own cgroup {place.own}: {scene.seen})",
        consequence=f"limits of {' and '.join(lost)} are not enforced: a payload can use up the "
        "host's. Presets go on without them; --memory, --pids-limit and --cpus are refused unless "
        "--allow-degraded names them. --timeout, --ulimit and the end of all processes hold",
        remedy=scene.remedy.format(sudo=sudo(seen.host.uid)),
    )


def check_hybrid(seen: Evidence) -> Iterator[Finding]:
    """crun on hybrid cgroups: it works through our cell, and not without."""
    refusing = [
        runtime.path
        for runtime in (trial.runtime for trial in seen.trials)
        if find_quirks(runtime.name, runtime.version).refuses_hybrid
    ]
    if _old(seen) and refusing:
        yield Finding(
            name="crun-hybrid",
            severity=Severity.INFORMS,
            evidence=f"cgroup hierarchy {seen.host.cgroups.hierarchy}, to which "
            f"{', '.join(refusing)} says: cgroups in hybrid mode not supported",
            consequence="ocisbx starts it in namespaces in which cgroup v2 is mounted alone "
            "(ocisbx-cell); started by hand it fails",
        )
