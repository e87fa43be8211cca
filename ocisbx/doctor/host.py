"""Findings about the host: user namespaces, ids, our own programs, directories, the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocisbx.container.scenes import is_wsl
from ocisbx.doctor.finding import Finding, Severity
from ocisbx.doctor.install import install, install_newuidmap, sudo
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.doctor.evidence import Evidence

IDS_WANTED = 65536

APPARMOR_PROFILE = """\
{sudo}tee /etc/apparmor.d/ocisbx-{name} <<'END'
abi <abi/4.0>,
include <tunables/global>
profile ocisbx-{name} {path} flags=(unconfined) {{
  userns,
  include if exists <local/ocisbx-{name}>
}}
END
{sudo}apparmor_parser -r /etc/apparmor.d/ocisbx-{name}"""
APPARMOR_ELSE = """\
# or, for runc and crun in their usual places, which have profiles already:
{install}
# or, which weakens the whole host:
{sudo}sysctl kernel.apparmor_restrict_unprivileged_userns=0"""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why user namespaces are refused: how it shows, in words, and the cure."""

    met: Callable[[Evidence], bool]
    words: str
    remedy: str


# The first that is met is the cause: linux.md 6.5 gives the order.
CAUSES: tuple[Cause, ...] = (
    Cause(
        lambda seen: seen.host.max_user_namespaces == 0,
        "user.max_user_namespaces is 0",
        "echo user.max_user_namespaces=16384 | {sudo}tee /etc/sysctl.d/90-ocisbx.conf\n"
        "{sudo}sysctl --system",
    ),
    Cause(
        lambda seen: seen.system.unprivileged_userns_clone == 0,
        "kernel.unprivileged_userns_clone is 0",
        "echo kernel.unprivileged_userns_clone=1 | {sudo}tee /etc/sysctl.d/90-ocisbx.conf\n"
        "{sudo}sysctl --system",
    ),
    Cause(
        lambda seen: seen.host.apparmor_restricts_user_namespaces,
        "kernel.apparmor_restrict_unprivileged_userns is 1, and no profile allows it by path",
        "",
    ),
    Cause(
        lambda seen: seen.system.container is not None,
        "this is a container, whose seccomp profile or engine forbids it",
        "# on the machine that runs this container:\n"
        "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined ...",
    ),
    Cause(
        lambda seen: seen.system.selinux_enforcing,
        "SELinux is enforcing (class user_namespace)",
        "{sudo}ausearch -m avc -ts recent | audit2why",
    ),
    Cause(lambda _: True, "the kernel refuses, with no sysctl that says why", ""),
)


def check_user_namespaces(seen: Evidence) -> Iterator[Finding]:
    """Tried with a program of ours; a runtime that works may still be allowed where it is not."""
    if not seen.user_namespace:
        return
    cause = next(cause for cause in CAUSES if cause.met(seen))
    remedy = cause.remedy.format(sudo=sudo(seen.host.uid))
    if not remedy and seen.host.apparmor_restricts_user_namespaces:
        remedy = _apparmor_remedy(seen)
    yield Finding(
        name="user-namespaces",
        severity=Severity.INFORMS if seen.works else Severity.BLOCKS,
        evidence=f"{seen.user_namespace}; {cause.words}",
        consequence="a runtime that works here is allowed to make them, others are not"
        if seen.works
        else "a rootless sandbox is made of them: none can run",
        remedy=remedy,
    )


def _apparmor_remedy(seen: Evidence) -> str:
    """A profile for each runtime that fails: AppArmor attaches them by the program's real path."""
    root = sudo(seen.host.uid)
    failing = [trial.runtime for trial in seen.trials if not trial.works]
    profiles = {
        path: APPARMOR_PROFILE.format(sudo=root, name=_profile_name(path), path=path)
        for path in (seen.real_paths.get(runtime.path, runtime.path) for runtime in failing)
    }
    otherwise = APPARMOR_ELSE.format(
        install=install("crun", seen.system.distributions, seen.host.uid), sudo=root
    )
    return "\n".join([*profiles.values(), otherwise])


def _profile_name(path: str) -> str:
    """usr.local.bin.crun, as AppArmor's own profiles are named."""
    return path.strip("/").replace("/", ".")


def check_ids(seen: Evidence) -> Iterator[Finding]:
    """newuidmap and subordinate ids: needed only for --user on runc, and for root's own mapping."""
    host = seen.host
    if host.uid == 0:
        return
    missing = [
        words
        for lacks, words in (
            (host.newuidmap is None, "newuidmap is not installed"),
            (host.newgidmap is None, "newgidmap is not installed"),
            *((True, words) for words in seen.system.helper_troubles),
            (_count(host.subordinate_uids) < IDS_WANTED, "no 65536 ids of yours in /etc/subuid"),
            (_count(host.subordinate_gids) < IDS_WANTED, "no 65536 ids of yours in /etc/subgid"),
        )
        if lacks
    ]
    if missing:
        root = sudo(host.uid)
        yield Finding(
            name="subordinate-ids",
            severity=Severity.INFORMS,
            evidence=", ".join(missing),
            consequence="`--user` with another id than 0 needs crun; nothing else needs them",
            remedy=f"{install_newuidmap(seen.system.distributions, host.uid)}\n"
            f"{root}usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)",
        )


def _count(ranges: tuple[object, ...]) -> int:
    return max((getattr(entry, "count", 0) for entry in ranges), default=0)


def check_root(seen: Evidence) -> Iterator[Finding]:
    """Called by root: which ids the payload has outside."""
    if seen.host.uid != 0:
        return
    working = [trial for trial in seen.trials if trial.works]
    chosen = seen.chosen
    for trial in working:
        entry = seen.enforcement.get(trial.runtime.path, {}).get("user_namespace")
        if entry is None:
            continue
        shifted = entry.state is EnforcementState.ENFORCED
        yield Finding(
            name="called-by-root",
            severity=Severity.INFORMS
            if shifted or trial.runtime.path != chosen
            else Severity.WEAKENS,
            evidence=f"{trial.runtime.path}: {entry.actual}",
            consequence="uid 0 inside is an id without rights outside; workspaces are idmapped"
            if shifted
            else "uid 0 inside is the host's root, without capabilities: a hole in the runtime "
            "or the kernel gives all of the host",
            remedy=""
            if shifted
            else "run ocisbx as an ordinary user, or use runc >= 1.2 or "
            "crun >= 1.10 with the workspace on ext4, xfs, btrfs or tmpfs",
        )


def check_programs(seen: Evidence) -> Iterator[Finding]:
    """The init and the cell: built for this machine, on a file system that lets them run."""
    if seen.programs:
        yield Finding(
            name="init-unusable",
            severity=Severity.INFORMS if seen.works else Severity.BLOCKS,
            evidence=seen.programs,
            consequence="process 1 of every container is the init: none can start without it",
            remedy="python tools/build_init.py  # in a clone; else: pip install --force-reinstall "
            "ocisbx",
        )


def check_directories(seen: Evidence) -> Iterator[Finding]:
    """Where bundles lie."""
    system = seen.system
    if system.xdg_runtime_dir and not system.xdg_trouble:
        return
    yield Finding(
        name="runtime-directory",
        severity=Severity.INFORMS,
        evidence=system.xdg_trouble or "XDG_RUNTIME_DIR is not set",
        consequence=f"bundles and runtime state lie in {system.runtime_place} instead",
        remedy="export XDG_RUNTIME_DIR=/run/user/$(id -u)  # set by a login with systemd",
    )


@dataclass(frozen=True, slots=True)
class Fact:
    """Something worth knowing that needs one look at the evidence."""

    name: str
    met: Callable[[Evidence], bool]
    severity: Severity
    evidence: str
    consequence: str
    remedy: str = ""


FACTS: tuple[Fact, ...] = (
    Fact(
        "kernel-age",
        lambda seen: not seen.host.kernel_at_least(5, 12),
        Severity.WEAKENS,
        "Linux {kernel} is older than 5.12 (mount_setattr(2))",
        "read-only is not recursive: file systems mounted below a read-only volume stay writable",
        "uname -r  # boot a kernel from 5.12 on",
    ),
    Fact(
        "kernel-age",
        lambda seen: seen.host.kernel_at_least(5, 12) and not seen.host.kernel_at_least(5, 14),
        Severity.INFORMS,
        "Linux {kernel} is older than 5.14 (cgroup.kill)",
        "a cgroup's processes are killed one by one",
    ),
    Fact(
        "yama",
        lambda seen: seen.system.yama_scope == 2,
        Severity.INFORMS,
        "kernel.yama.ptrace_scope is 2",
        "debuggers do not work inside; gVisor traces its own processes, on systrap as on ptrace: "
        "a runsc without directfs (before 2023) cannot start",
        "{sudo}sysctl kernel.yama.ptrace_scope=1",
    ),
    Fact(
        "yama",
        lambda seen: (seen.system.yama_scope or 0) >= 3,
        Severity.INFORMS,
        "kernel.yama.ptrace_scope is {yama}",
        "debuggers do not work inside; gVisor, which traces its own processes on every platform "
        "but kvm, cannot start",
        "# it cannot be lowered before the next boot:\n"
        "echo kernel.yama.ptrace_scope=1 | {sudo}tee /etc/sysctl.d/90-ocisbx.conf && {sudo}reboot",
    ),
    Fact(
        "selinux",
        lambda seen: seen.system.selinux_enforcing,
        Severity.INFORMS,
        "SELinux is enforcing",
        "the sandbox has the caller's own label: SELinux adds nothing between the two",
    ),
    Fact(
        "wsl2",
        lambda seen: is_wsl(seen.host),
        Severity.INFORMS,
        "Linux {kernel} is WSL's kernel",
        "drives of Windows (/mnt/c) show neither owners nor modes inside",
    ),
    Fact(
        "nested-container",
        lambda seen: seen.system.container is not None,
        Severity.INFORMS,
        "{mark} says that this is a container of {engine}",
        "the outer engine decides about user namespaces, /proc and cgroups",
    ),
)


def check_facts(seen: Evidence) -> Iterator[Finding]:
    """The table above."""
    engine, mark = seen.system.container or ("", "")
    words = {
        "kernel": seen.host.kernel,
        "yama": seen.system.yama_scope,
        "engine": engine,
        "mark": mark,
        "sudo": sudo(seen.host.uid),
    }
    for fact in FACTS:
        if fact.met(seen):
            yield Finding(
                name=fact.name,
                severity=fact.severity,
                evidence=fact.evidence.format_map(words),
                consequence=fact.consequence,
                remedy=fact.remedy.format_map(words),
            )
