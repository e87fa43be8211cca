"""What /proc says about one process of a container, seen from the host.

Fields are None where the kernel does not tell us: it ended, it is somebody else's, or this kernel
has no such file. What a container's init may be asked: it is not dumpable, so its links and
descriptors are for those only who have CAP_SYS_PTRACE in its user namespace (ptrace(2), "access
mode checking"); the user who made that namespace has.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.probe.processes import command_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

# namespaces(7): the link's name below /proc/PID/ns, and the spec's word for it.
NAMESPACES: dict[str, str] = {
    "user": "user",
    "mnt": "mount",
    "pid": "pid",
    "net": "network",
    "ipc": "ipc",
    "uts": "uts",
    "cgroup": "cgroup",
}
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
CGROUP_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
# Limits of a cgroup (cgroup-v2.rst), by the names of `enforcement`.
CGROUP_FILES: dict[str, str] = {
    "memory": "memory.max",
    "swap": "memory.swap.max",
    "cpus": "cpu.max",
    "pids": "pids.max",
}


class Status(NamedTuple):
    """Of /proc/PID/status (proc_pid_status(5)); `seccomp`: 0 none, 1 strict, 2 filters."""

    uids: tuple[int, ...]
    gids: tuple[int, ...]
    groups: tuple[int, ...]
    capabilities: int
    no_new_privileges: bool
    seccomp: int
    filters: int | None


class IdRow(NamedTuple):
    """A row of uid_map or gid_map, `outside` as the reader's own user namespace numbers it."""

    inside: int
    outside: int
    size: int


class Mount(NamedTuple):
    """A line of mountinfo (proc_pid_mountinfo(5)); `root` is the path within the file system."""

    id: int
    device: str
    root: str
    point: str
    options: frozenset[str]
    propagation: tuple[str, ...]
    type: str
    super_options: tuple[str, ...]


class Evidence(NamedTuple):
    """What was read of a container by its init and its payload (the init's first child)."""

    init: int
    payload: int | None
    status: Status | None
    uid_map: tuple[IdRow, ...] | None
    gid_map: tuple[IdRow, ...] | None
    # The spec's names: True, it is the container's own; those that could not be compared are left
    # out.
    namespaces: Mapping[str, bool]
    mounts: tuple[Mount, ...] | None
    # Of the reader: what a container's mounts show is found among them by its device.
    host_mounts: tuple[Mount, ...]
    # What this kernel has of the paths that were asked for.
    existing: frozenset[str]
    rlimits: Mapping[str, tuple[int, int]] | None
    interfaces: tuple[str, ...] | None
    # Limits of its own cgroup by the names of `enforcement`, None: "max"; nothing where it has no
    # cgroup of its own.
    cgroup_limits: Mapping[str, float | None] | None
    security_label: str | None
    oom_score_adj: int | None
    # Where descriptors lead that were opened through a mount of somebody else's.
    foreign_files: tuple[str, ...] | None


def read_container(
    init: int, *, driver: int, paths: Iterable[str] = (), proc: str = "/proc"
) -> Evidence | None:
    """All evidence about the container whose process 1 is `init`; None when it has ended.

    `driver`: who started it, and so whose namespaces it could share. `paths`: absolute ones below
    /proc, of which is said whether this kernel has them.
    """
    status = read_status(f"{proc}/{init}/status")
    if status is None:
        return None
    payload = first_child(init, proc)
    links = {pid: namespace_links(f"{proc}/{pid}/ns") for pid in (init, payload) if pid}
    inner = payload and read_status(f"{proc}/{payload}/status")
    # A payload that has made a user namespace of its own says nothing about ours.
    if inner and links[payload or 0].get("user") == links[init].get("user"):
        status = weakest(status, inner)
    foreign = [namespace_links(f"{proc}/{pid}/ns") for pid in ("self", driver)]
    mounts = read_mounts(f"{proc}/{init}/mountinfo")
    return Evidence(
        init=init,
        payload=payload,
        status=status,
        uid_map=read_id_map(f"{proc}/{init}/uid_map"),
        gid_map=read_id_map(f"{proc}/{init}/gid_map"),
        namespaces=compare_namespaces(links[init], foreign),
        mounts=mounts,
        host_mounts=read_mounts(f"{proc}/self/mountinfo") or (),
        existing=frozenset(path for path in paths if os.path.exists(proc + path[len("/proc") :])),
        rlimits=read_rlimits(f"{proc}/{init}/limits"),
        interfaces=read_interfaces(f"{proc}/{init}/net/dev"),
        cgroup_limits=read_cgroup_limits(
            read_text(f"{proc}/{init}/cgroup"), read_text(f"{proc}/{driver}/cgroup")
        ),
        security_label=_label(f"{proc}/{init}/attr/current"),
        oom_score_adj=_number(f"{proc}/{init}/oom_score_adj"),
        foreign_files=None
        if mounts is None
        else foreign_files(f"{proc}/{payload or init}", {mount.id for mount in mounts}),
    )


def is_init(pid: int, program: str) -> bool:
    """Whether this process was started as `program`: a pid alone may be reused, and the process
    that a user-space kernel names is not the container's."""
    return command_line(pid)[:1] == [program.encode()]


def read_text(path: str) -> str | None:
    """The file's text; None where it cannot be read."""
    try:
        # A mount's name may hold a carriage return, which ends no line.
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read()
    except OSError:
        return None


def read_status(path: str) -> Status | None:
    """None when the process has ended, also as a zombie that nobody has waited for."""
    fields: dict[str, str] = {}
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.strip()
    if "CapBnd" not in fields or fields.get("State", "")[:1] in ("Z", "X"):
        return None
    capabilities = 0
    for name in CAPABILITY_SETS:
        capabilities |= int(fields[name], 16)
    return Status(
        uids=_numbers(fields["Uid"]),
        gids=_numbers(fields["Gid"]),
        groups=_numbers(fields["Groups"]),
        capabilities=capabilities,
        no_new_privileges=fields["NoNewPrivs"] == "1",
        seccomp=int(fields["Seccomp"]),
        # Since Linux 5.9.
        filters=int(fields["Seccomp_filters"]) if "Seccomp_filters" in fields else None,
    )


def weakest(one: Status, other: Status) -> Status:
    """What holds of both processes."""
    return one._replace(
        capabilities=one.capabilities | other.capabilities,
        no_new_privileges=one.no_new_privileges and other.no_new_privileges,
        seccomp=min(one.seccomp, other.seccomp),
    )


def first_child(pid: int, proc: str = "/proc") -> int | None:
    """Of an init: its payload, which it starts before it adopts anybody; None while there is none.

    /proc/PID/task/TID/children lists in the order of birth (needs CONFIG_PROC_CHILDREN).
    """
    numbers = _numbers(read_text(f"{proc}/{pid}/task/{pid}/children") or "")
    return numbers[0] if numbers else None


def read_id_map(path: str) -> tuple[IdRow, ...] | None:
    """user_namespaces(7): INSIDE OUTSIDE SIZE, one row a line."""
    text = read_text(path)
    if text is None:
        return None
    return tuple(IdRow(*map(int, line.split())) for line in text.splitlines())


def namespace_links(directory: str) -> dict[str, str]:
    """`net` -> `net:[4026531833]`, as far as they may be read."""
    found = {}
    for name in NAMESPACES:
        try:
            found[name] = os.readlink(f"{directory}/{name}")
        except OSError:
            continue
    return found


def compare_namespaces(
    own: Mapping[str, str], foreign: Iterable[Mapping[str, str]]
) -> dict[str, bool]:
    """By the spec's names: whether none of the `foreign` processes is in the same one."""
    others = list(foreign)
    return {
        word: own[name] not in (links.get(name) for links in others)
        for name, word in NAMESPACES.items()
        if name in own
    }


def read_mounts(path: str) -> tuple[Mount, ...] | None:
    text = read_text(path)
    return None if text is None else tuple(map(_mount, text.split("\n")[:-1]))


def _mount(line: str) -> Mount:
    fields = line.split(" ")
    dash = fields.index("-", 6)
    return Mount(
        id=int(fields[0]),
        device=fields[2],
        root=_unescape(fields[3]),
        point=_unescape(fields[4]),
        options=frozenset(fields[5].split(",")),
        propagation=tuple(fields[6:dash]),
        type=fields[dash + 1],
        super_options=tuple(fields[dash + 3].split(",")),
    )


def _unescape(text: str) -> str:
    """The kernel writes blanks, tabs, newlines and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


# proc_pid_limits(5) has words of its own for getrlimit(2)'s names.
RLIMIT_WORDS: dict[str, str] = {
    "Max cpu time": "RLIMIT_CPU",
    "Max file size": "RLIMIT_FSIZE",
    "Max data size": "RLIMIT_DATA",
    "Max stack size": "RLIMIT_STACK",
    "Max core file size": "RLIMIT_CORE",
    "Max resident set": "RLIMIT_RSS",
    "Max processes": "RLIMIT_NPROC",
    "Max open files": "RLIMIT_NOFILE",
    "Max locked memory": "RLIMIT_MEMLOCK",
    "Max address space": "RLIMIT_AS",
    "Max file locks": "RLIMIT_LOCKS",
    "Max pending signals": "RLIMIT_SIGPENDING",
    "Max msgqueue size": "RLIMIT_MSGQUEUE",
    "Max nice priority": "RLIMIT_NICE",
    "Max realtime priority": "RLIMIT_RTPRIO",
    "Max realtime timeout": "RLIMIT_RTTIME",
}
UNLIMITED = -1


def read_rlimits(path: str) -> dict[str, tuple[int, int]] | None:
    """Soft and hard limits by the spec's names; UNLIMITED for none."""
    text = read_text(path)
    if text is None:
        return None
    found = {}
    for line in text.splitlines()[1:]:
        # A column of 25 characters, then two numbers (fs/proc/base.c, proc_pid_limits).
        name, values = line[:25].strip(), line[25:].split()
        if name in RLIMIT_WORDS:
            soft, hard = (UNLIMITED if v == "unlimited" else int(v) for v in values[:2])
            found[RLIMIT_WORDS[name]] = (soft, hard)
    return found


def read_interfaces(path: str) -> tuple[str, ...] | None:
    """Names of the network devices (proc_pid_net(5), dev): two lines of headings come first."""
    text = read_text(path)
    if text is None:
        return None
    return tuple(line.partition(":")[0].strip() for line in text.splitlines()[2:])


def read_cgroup_limits(
    own: str | None, driver: str | None, roots: Iterable[str] = CGROUP_ROOTS
) -> dict[str, float | None] | None:
    """From two /proc/PID/cgroup texts: what is set on the container's own cgroup of version 2, and
    on those above it that it does not share with the driver: of all, the least.

    Where it shares the driver's, nothing is set for it alone. None where controllers are in
    hierarchies of version 1 (cgroups(7): lines that name them), of which nothing is read.
    """
    if own is None or driver is None or re.search(r"^[1-9]\d*:(?!name=)[^:]", own, re.MULTILINE):
        return None
    mine, theirs = (_unified_path(text) for text in (own, driver))
    if mine is None or mine == theirs:
        return {}
    root = next((root for root in roots if os.path.isdir(root + mine)), None)
    if root is None:
        return None
    found: dict[str, float | None] = {}
    for path in _unshared(mine, theirs or "/"):
        for name, file in CGROUP_FILES.items():
            if text := read_text(f"{root}{path}/{file}"):
                numbers = (found.get(name), _cgroup_number(text))
                found[name] = min((one for one in numbers if one is not None), default=None)
    return found


def _unshared(path: str, other: str) -> list[str]:
    """`path` and those above it that are not above `other` too."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(len(parts), 1, -1))
    return [one for one in above if not f"{other}/".startswith(f"{one}/")]


def _unified_path(text: str) -> str | None:
    return next((line[3:] for line in text.splitlines() if line.startswith("0::")), None)


def _cgroup_number(text: str) -> float | None:
    """`max`, a number, or cpu.max's `QUOTA PERIOD` as a number of processors."""
    words = text.split()
    if words[0] == "max":
        return None
    return int(words[0]) / int(words[1]) if len(words) > 1 else int(words[0])


# What the driver gives as an empty stdin, and memory that has a name only.
HARMLESS = ("/dev/null", "/memfd:")


def foreign_files(process: str, mount_ids: Collection[int]) -> tuple[str, ...] | None:
    """What the process at /proc/PID has open through none of these mounts: files and directories
    of the host, whatever the container's own mounts show. Pipes and sockets have no path."""
    try:
        names = os.listdir(f"{process}/fd")
    except OSError:
        return None
    found = []
    for name in sorted(names, key=int):
        try:
            link = os.readlink(f"{process}/fd/{name}")
        except OSError:
            continue
        info = read_text(f"{process}/fdinfo/{name}") or ""
        mount_id = re.search(r"^mnt_id:\s*(\d+)$", info, re.MULTILINE)
        named = link.startswith("/") and not link.startswith(HARMLESS)
        if named and mount_id and int(mount_id[1]) not in mount_ids:
            found.append(f"{name} -> {link}")
    return tuple(found)


def _label(path: str) -> str | None:
    """Empty files and errors: no security module has a word here."""
    return (read_text(path) or "").rstrip("\n\0 ") or None


def _number(path: str) -> int | None:
    text = read_text(path)
    return None if text is None else int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))
