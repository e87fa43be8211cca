"""The environments in which limits hold or do not, told apart by what was seen of the host.

One table for `doctor` and for the refusal of a limit that was demanded (linux.md 6.4 of the
project's reference). Pure: everything stands in the Host record.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ocisbx.host import Host

# Of a preset's limits; io and cpuset are rarely there and rarely asked for.
NEEDED = ("memory", "pids")

SESSION_OWNER = re.compile(r"/user-(\d+)\.slice(?:/|$)")
# Units of a graphical session (systemd's DESKTOP_ENVIRONMENTS), and of terminals in it.
DESKTOP_UNIT = re.compile(r"/(?:app-[^/]*|session\.slice|background\.slice|vte-spawn-[^/]*)(?:/|$)")


class Scene(NamedTuple):
    """One environment; the remedy can be pasted, and is empty where limits hold."""

    name: str
    seen: str
    remedy: str


class Row(NamedTuple):
    """How an environment is recognised, and its Scene with places for what differs by host."""

    name: str
    met: Callable[[Host, frozenset[str]], bool]
    seen: str
    remedy: str = ""


def is_wsl(host: Host) -> bool:
    return "microsoft" in host.kernel.lower()


def is_old(host: Host) -> bool:
    """Whether controllers are bound to version 1, where no ordinary user can be given any."""
    return host.cgroups.hierarchy in ("hybrid", "v1")


def _is_in_session(host: Host) -> bool:
    return "/session-" in host.cgroups.own


def _is_foreign(host: Host) -> bool:
    owner = SESSION_OWNER.search(host.cgroups.own)
    return owner is not None and int(owner[1]) != host.uid


def _is_managed(host: Host) -> bool:
    return f"/user@{host.uid}.service/" in host.cgroups.own


def _is_lost(host: Host) -> bool:
    return host.cgroups.way == "none"


def _asks(host: Host) -> bool:
    return host.cgroups.way == "scope"


def _lacks(host: Host, needed: frozenset[str]) -> bool:
    return not needed <= set(host.cgroups.controllers)


LINGER = (
    "{sudo}loginctl enable-linger {uid}  # keeps the systemd user manager of uid {uid} running\n"
    "{sudo}systemctl start user@{uid}.service\n"
    "export XDG_RUNTIME_DIR=/run/user/{uid}"
)
UNIFY = (
    "{sudo}sed -i 's/^GRUB_CMDLINE_LINUX=\"/&systemd.unified_cgroup_hierarchy=1 "
    "cgroup_no_v1=all /' /etc/default/grub\n{sudo}update-grub && {sudo}reboot"
)
OUTSIDE = "# on the machine that runs this container:\n"
OUTER = (
    OUTSIDE + "docker run --cgroupns=private --privileged ...\n"
    "# or: podman run --cgroupns=private --security-opt unmask=/sys/fs/cgroup ..."
)
DELEGATE = (
    "{sudo}mkdir -p /etc/systemd/system/user@.service.d\n"
    "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | "
    "{sudo}tee /etc/systemd/system/user@.service.d/delegate.conf\n"
    "{sudo}systemctl daemon-reload  # then log out and in again"
)
USER_SCOPE = "systemd-run --user --scope -p Delegate=yes -- ocisbx run -- COMMAND"
SYSTEM_SCOPE = "systemd-run --scope -p Delegate=yes -- ocisbx run -- COMMAND"
BY_HAND = (
    "echo '{switch}' | {sudo}tee {mount}/cgroup.subtree_control\n"
    "{sudo}mkdir -p {mount}/user-{uid}/shell\n"
    "for d in {mount}/user-{uid} {mount}/user-{uid}/shell; do "
    "{sudo}chown {uid} $d $d/cgroup.procs $d/cgroup.threads $d/cgroup.subtree_control; done\n"
    "echo $$ | {sudo}tee {mount}/user-{uid}/shell/cgroup.procs"
)
WSL = (
    "# in %UserProfile%\\.wslconfig, below [wsl2]:\n"
    "kernelCommandLine=cgroup_no_v1=all\n"
    "# in /etc/wsl.conf, below [boot]:\n"
    "systemd=true\n"
    "# then, in Windows: wsl --shutdown"
)
KERNEL = (
    "# on the kernel's command line (/etc/default/grub; on a Raspberry Pi "
    "/boot/firmware/cmdline.txt), then reboot:\n"
    "cgroup_enable=memory"
)

# The first that is met tells; the last one always is.
TABLE: tuple[Row, ...] = (
    Row(
        "failed",
        lambda host, _: bool(host.cgroups.trouble),
        "a cgroup was to be had, and could not be: {trouble}",
        "systemctl --user status  # then: {sudo}systemctl restart user@{uid}.service, which ends "
        "all that runs below it",
    ),
    Row("wsl2", lambda host, _: is_wsl(host) and is_old(host), "WSL2 with hybrid cgroups", WSL),
    Row(
        "old-outside",
        lambda host, _: bool(host.cgroups.container) and is_old(host),
        "cgroup v1 or hybrid inside a container: the kernel's command line decides",
        OUTSIDE + UNIFY,
    ),
    Row("old", lambda host, _: is_old(host), "the controllers are bound to cgroup v1", UNIFY),
    Row(
        "none",
        lambda host, _: host.cgroups.hierarchy == "none",
        "no cgroup file system on /sys/fs/cgroup",
        "{sudo}mount -t cgroup2 cgroup2 /sys/fs/cgroup",
    ),
    Row(
        "unseen",
        lambda host, _: not host.cgroups.own,
        "our own cgroup lies outside of what /sys/fs/cgroup shows",
        "# start ocisbx from inside the cgroup namespace, or with the hierarchy mounted anew:\n"
        "{sudo}unshare --mount --cgroup sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && "
        "exec ocisbx run -- COMMAND'",
    ),
    Row(
        "read-only",
        lambda host, _: _is_lost(host) and host.cgroups.read_only,
        "/sys/fs/cgroup is read-only here",
        OUTER,
    ),
    Row(
        "container",
        lambda host, _: (
            _is_lost(host) and bool(host.cgroups.container) and not host.cgroups.systemd
        ),
        "a container whose cgroup was not handed over",
        OUTER,
    ),
    Row(
        "su",
        lambda host, _: _is_lost(host) and _is_foreign(host),
        "the login session of another user (su or sudo), and no systemd user manager of your own",
        LINGER + "\n# or log in as yourself: by ssh, or with `machinectl shell`",
    ),
    Row(
        "no-manager",
        lambda host, _: _is_lost(host) and host.cgroups.systemd,
        "a cgroup that root owns, and no systemd user manager runs for you (a service, cron, or "
        "what was left running after a logout)",
        LINGER,
    ),
    Row(
        "no-systemd",
        lambda host, _: _is_lost(host),
        "a cgroup that root owns, and no systemd to ask for another",
        BY_HAND,
    ),
    Row(
        "kernel",
        lambda host, needed: (
            not host.cgroups.container
            and bool(host.cgroups.offered)
            and not needed <= set(host.cgroups.offered)
        ),
        "the kernel has not all of the controllers {needed}",
        KERNEL,
    ),
    Row(
        "few-controllers",
        lambda host, needed: _lacks(host, needed) and (_asks(host) or _is_managed(host)),
        "the systemd user manager was not given all of the controllers {needed}",
        DELEGATE,
    ),
    Row(
        "few-for-root",
        lambda host, needed: _lacks(host, needed) and host.uid == 0 and host.cgroups.systemd,
        "a cgroup whose parent was not given all of the controllers {needed}",
        SYSTEM_SCOPE,
    ),
    Row(
        "few-here",
        _lacks,
        "a cgroup that was handed over without all of the controllers {needed}",
        "# give them to {parent}, as its owner; in a unit of systemd:\nDelegate=yes",
    ),
    Row(
        "session",
        lambda host, _: _asks(host) and _is_in_session(host) and not _is_foreign(host),
        "a login session's scope, which root owns; the user manager gives a delegated one",
    ),
    Row(
        "su-lingering",
        lambda host, _: _asks(host) and _is_foreign(host),
        "the login session of another user; your own user manager gives a delegated scope",
    ),
    Row(
        "desktop",
        lambda host, _: (
            _asks(host) and _is_managed(host) and bool(DESKTOP_UNIT.search(host.cgroups.own))
        ),
        "a unit of a graphical session; the user manager gives a delegated scope",
    ),
    Row(
        "undelegated",
        lambda host, _: _asks(host) and _is_managed(host),
        "a unit of the user manager without Delegate=yes; the manager gives a delegated scope",
    ),
    Row(
        "service",
        lambda host, _: _asks(host),
        "a cgroup that root owns; the user manager, which runs, gives a delegated scope",
    ),
    Row(
        "delegated",
        lambda host, _: _is_managed(host),
        "a delegated unit of the systemd user manager",
    ),
    Row("root", lambda host, _: host.uid == 0, "root, to whom all cgroups belong"),
    Row("handed-over", lambda _host, _needed: True, "a cgroup that was handed over to you"),
)


def find_scene(host: Host, needed: Collection[str] = NEEDED) -> Scene:
    """The environment that `host` speaks of, where the controllers `needed` are wanted."""
    wanted = frozenset(needed)
    row = next(row for row in TABLE if row.met(host, wanted))
    words = {
        "sudo": "" if host.uid == 0 else "sudo ",
        "uid": host.uid,
        "trouble": host.cgroups.trouble,
        "mount": host.cgroups.mount,
        "parent": host.cgroups.parent,
        "needed": ", ".join(sorted(wanted)),
        "switch": " ".join(f"+{name}" for name in host.cgroups.offered),
    }
    return Scene(row.name, row.seen.format_map(words), row.remedy.format_map(words))
