"""gather(): the Host record for one configuration: all that resolve() may know."""

from __future__ import annotations

import os
import platform
import pwd
import re
import resource
from typing import TYPE_CHECKING

from ocisbx.container.paths import clean, is_below
from ocisbx.container.rules import allowed_paths, collect_rules, given_paths
from ocisbx.container.view import LISTED, shown_of_etc
from ocisbx.errors import ConfigError
from ocisbx.host import Cgroups, Entry, Host, IdRange, PathFact
from ocisbx.mounts import PER_CALL_PLACE, directory_wanted, is_per_call
from ocisbx.places import find_places
from ocisbx.probe import limits, paths, policy
from ocisbx.probe.cgroups import controllers_of, look, user_buses
from ocisbx.probe.processes import oom_score_adj
from ocisbx.probe.programs import find_program
from ocisbx.probe.runtimes import find_runtimes
from ocisbx.probe.system import container_mark, read_only
from ocisbx.steady import survey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.config import SandboxConfig
    from ocisbx.steady import Looked

TEXT_LIMIT_BYTES = 1 << 20

APPARMOR_RESTRICTS = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
# File systems that take idmapped mounts, with the first kernel that does (mount_setattr(2)).
IDMAP_FILESYSTEMS: dict[str, tuple[int, int]] = {
    "ext4": (5, 12),
    "vfat": (5, 12),
    "xfs": (5, 13),
    "btrfs": (5, 15),
    "f2fs": (5, 18),
    "erofs": (5, 19),
    "overlay": (5, 19),
    "tmpfs": (6, 3),
}


def gather(config: SandboxConfig) -> Host:
    """Look at this machine, as far as `config` (merged with its preset) needs.

    Raises:
        RuntimeMissing: a runtime given by path is not one.
    """
    facts, cwd = path_facts(config), _cwd_if_any()
    given = given_paths(config, facts, cwd)
    home = os.path.realpath(_home(os.geteuid()))
    matches = policy.find_matches(collect_rules(config, given, home, ()))
    # As in all that the payload may write, no program in these is ours to run.
    allowed = allowed_paths(collect_rules(config, given, home, ()), matches)
    runtimes = find_runtimes(config.runtime.names, (*given.writable, *allowed))
    own_code = policy.own_code((one.path for one in runtimes), given.writable)
    places = find_places()
    uid = os.geteuid()
    release = platform.release()
    host = Host(
        machine=platform.machine(),
        kernel=release,
        uid=uid,
        gid=os.getegid(),
        groups=tuple(sorted(set(os.getgroups()) - {os.getegid()})),
        home=home,
        cwd=cwd,
        hostname=platform.node(),
        max_user_namespaces=_number("/proc/sys/user/max_user_namespaces"),
        apparmor_restricts_user_namespaces=_number(APPARMOR_RESTRICTS) == 1,
        newuidmap=find_program("newuidmap"),
        newgidmap=find_program("newgidmap"),
        subordinate_uids=subordinate_ids("/etc/subuid", uid),
        subordinate_gids=subordinate_ids("/etc/subgid", uid),
        own_uids=own_ids("/proc/self/uid_map"),
        own_gids=own_ids("/proc/self/gid_map"),
        idmap_ready=uid == 0 and _all_idmappable(facts, allowed, release),
        time_namespaces=os.path.exists("/proc/self/ns/time"),
        oom_score_adj=oom_score_adj(),
        rlimits=_rlimits(),
        runtimes=runtimes,
        own_directories=tuple(map(os.path.realpath, (places.runtime, places.cache, places.state))),
        paths=facts | _workdir_facts(config, facts),
        listings=_listings(config, facts),
        matches=matches | policy.find_own_code(own_code),
        own_code=own_code,
        texts=_texts(config),
    )
    return host.model_copy(update=_limit_facts(config) | {"steady": _steady(config, host)})


def gather_workspace(host: Host, config: SandboxConfig) -> Host:
    """`host`, gathered for a configuration that differs from `config` (merged with its preset) in
    the workspace only, for this one; of its runtimes those that this one may use.

    Raises:
        RuntimeMissing: as `gather`.
    """
    workspace = directory_wanted(config.workspace)
    assert workspace is not None
    written = host.cwd if workspace.path is None else clean(workspace.path)
    facts = host.paths | {written: paths.look_at(written)}
    given = given_paths(config, facts, host.cwd)
    rules = collect_rules(config, given, host.home, ())
    matches = policy.find_matches(rules)
    own_code = policy.own_code((one.path for one in host.runtimes), given.writable)
    writable = (*given.writable, *allowed_paths(rules, matches))
    usable = {one.path for one in find_runtimes(config.runtime.names, writable)}
    return host.model_copy(
        update={
            "paths": facts,
            "matches": matches | policy.find_own_code(own_code),
            "own_code": own_code,
            "runtimes": tuple(one for one in host.runtimes if one.path in usable),
        }
    )


def _limit_facts(config: SandboxConfig) -> dict[str, object]:
    """Fields of Host: who holds limits, and what they are checked against."""
    place = cgroups()
    own_directory = f"{place.mount}{place.own}".rstrip("/")
    return {
        "cgroups": place,
        "cpus": limits.usable_cpus(own_directory),
        "swap_accounting": limits.swap_accounting(own_directory),
        "disks": {key: limits.find_disk(key) for key in config.limits.io},
    }


def path_facts(config: SandboxConfig) -> dict[str, PathFact]:
    """A fact for each host path that the configuration names, and for resolv.conf."""
    named = ["/etc/resolv.conf"]
    workspace = directory_wanted(config.workspace)
    if workspace is not None:
        named.append(_cwd() if workspace.path is None else clean(workspace.path))
    named += [volume.source for volume in config.volumes]
    # Where a mount point may lie in the workspace.
    named += [clean(target) for target in _inner_targets(config)]
    if config.rootfs not in (None, "host"):
        named.append(config.rootfs or "")
    return {path: paths.look_at(path) for path in named}


def _workdir_facts(config: SandboxConfig, facts: dict[str, PathFact]) -> dict[str, PathFact]:
    """What lies where the working directory is, of what the caller shows."""
    if config.workdir is None:
        return {}
    shown = [(facts[v.source].real, clean(v.target)) for v in config.volumes]
    shown += [(fact.real, fact.real) for fact in facts.values()]
    if config.rootfs not in (None, "host"):
        shown.append((facts[config.rootfs or ""].real, "/"))
    places = paths.below(os.path.normpath(config.workdir), shown)
    found = (os.path.normpath(os.path.join(source, relative)) for source, relative in places)
    return {path: paths.look_at(path) for path in found}


def _inner_targets(config: SandboxConfig) -> list[str]:
    """Targets of mounts, if there are rules because of which no mount point can be made."""
    if not (config.filesystem.deny_read or config.filesystem.deny_write):
        return []
    return [*(volume.target for volume in config.volumes), *config.tmpfs]


def _texts(config: SandboxConfig) -> dict[str, str]:
    path = config.isolation.seccomp
    if path is None or not path.startswith("/"):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            return {path: file.read(TEXT_LIMIT_BYTES)}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"seccomp profile {path} cannot be read",
            why=(getattr(error, "strerror", None) or str(error)).lower(),
            remedy="give a readable JSON profile, or `--seccomp default`",
        ) from error


def _listings(config: SandboxConfig, facts: dict[str, PathFact]) -> dict[str, tuple[Entry, ...]]:
    """What the view is made of, and what lies on the way to mount points that do not exist."""
    if config.rootfs in (None, "host"):
        root, tops = "/", list(LISTED)
    else:
        root = facts[config.rootfs or ""].real
        tops = [root]
    found = {path: paths.list_directory(path) for path in tops}
    shown = [
        (os.path.join(root, entry.name), f"/{entry.name}")
        for entry in found[root]
        if entry.kind == "directory" and (root != "/" or entry.name == "usr")
    ]
    shown += [(facts[v.source].real, clean(v.target)) for v in config.volumes if v.read_only]
    for target in _targets(config, facts):
        for source, relative in paths.below(target, shown):
            found |= paths.listings_towards(source, relative)
    return found


def _steady(config: SandboxConfig, host: Host) -> dict[str, tuple[Looked, ...]]:
    if config.rootfs not in (None, "host"):
        return {}
    surveyed = {path: survey(path) for path in shown_of_etc(host.listings)}
    return {path: looked for path, looked in surveyed.items() if looked is not None}


def _targets(config: SandboxConfig, facts: dict[str, PathFact]) -> list[str]:
    """Every place in the container at which something of ours or the caller's has to exist."""
    targets = ["/dev", "/proc", "/tmp", "/root", "/home/user"]
    targets += ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"]
    targets += [fact.real for fact in facts.values()]
    targets += [link.path for fact in facts.values() for link in fact.links]
    targets += [clean(volume.target) for volume in config.volumes]
    targets += [clean(target) for target in config.tmpfs]
    if is_per_call(config.workspace):
        targets.append(PER_CALL_PLACE)
    return targets


def _home(uid: int) -> str:
    if os.environ.get("HOME", "").startswith("/"):
        return os.environ["HOME"]
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/nonexistent"


def _cwd() -> str:
    """The caller's directory; by its logical name ($PWD) where that is true, as in a shell."""
    try:
        physical = os.getcwd()
    except FileNotFoundError:
        raise ConfigError(
            "the current directory does not exist any more",
            remedy="change to another one, or give --workspace DIR or --workspace none",
        ) from None
    try:
        physical.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"the current directory {physical!a} has a name that is not UTF-8",
            why="config.json cannot hold it",
            remedy="change to another one, or give --workspace DIR or --workspace none",
        ) from None
    logical = os.environ.get("PWD", "")
    try:
        same = logical.startswith("/") and os.path.samefile(logical, physical)
    except OSError:
        same = False
    return logical.rstrip("/") or "/" if same and ".." not in logical.split("/") else physical


def _cwd_if_any() -> str:
    try:
        return _cwd()
    except ConfigError:
        # Gone; who has a use for it has asked before.
        return "/"


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def subordinate_ids(path: str, uid: int) -> tuple[IdRange, ...]:
    """The ranges that `path` (subuid(5): NAME:START:COUNT) gives to `uid`."""
    try:
        names = {str(uid), pwd.getpwuid(uid).pw_name}
    except KeyError:
        names = {str(uid)}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            rows = [line.strip().split(":") for line in file]
    except OSError:
        return ()
    return tuple(
        IdRange(start=int(row[1]), count=int(row[2]))
        for row in rows
        if len(row) == 3 and row[0] in names and row[1].isdigit() and row[2].isdigit()
    )


def own_ids(path: str) -> tuple[IdRange, ...]:
    """The ids that a map file (user_namespaces(7): INSIDE OUTSIDE COUNT) says exist here."""
    with open(path, encoding="ascii") as file:
        rows = [line.split() for line in file]
    return tuple(IdRange(start=int(row[0]), count=int(row[2])) for row in rows)


def cgroups(root: str = "/") -> Cgroups:
    """Our place in the hierarchy, and what surrounds it."""
    site = look(root)
    container = container_mark(root)
    return Cgroups(
        **site._asdict(),
        offered=controllers_of(site.mount),
        read_only=bool(site.mount) and read_only(site.mount),
        systemd=os.path.isdir(f"{root.rstrip('/')}/run/systemd/system"),
        user_bus=next(user_buses(os.geteuid(), root), ""),
        container="" if container is None else container[0],
    )


def _rlimits() -> dict[str, tuple[int, int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def _all_idmappable(facts: dict[str, PathFact], allowed: Iterable[str], release: str) -> bool:
    """Whether every path that the caller gives lies on a file system that takes idmapped mounts."""
    mounts = _mounts()
    version = tuple(int(part) for part in release.split("-", maxsplit=1)[0].split(".")[:2])
    for path in (*(fact.real for fact in facts.values()), *allowed):
        covering = [point for point in mounts if is_below(path, point)]
        since = IDMAP_FILESYSTEMS.get(mounts[max(covering, key=len)])
        if since is None or version < since:
            return False
    return True


def _mounts() -> dict[str, str]:
    """File system types by mount point (proc_pid_mountinfo(5)); the last on a point counts."""
    found: dict[str, str] = {}
    path = "/proc/self/mountinfo"
    # A name may hold a carriage return, which ends no line.
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for line in file:
            fields = line.split(" ")
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
            found[point] = fields[fields.index("-") + 1]
    return found
