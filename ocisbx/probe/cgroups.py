"""Where we are in the cgroup hierarchy, and where a sandbox's cgroup can be made.

cgroups(7); systemd's "Control Group APIs and Delegation". Cheap enough for every run: a handful of
small files, no models. Every reader takes the root below which the files lie.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Hierarchy = Literal["unified", "hybrid", "v1", "none"]
Way = Literal["sibling", "below", "scope", "none"]

# What our limits and counters need; a hierarchy may have more (hugetlb, rdma, misc).
CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
# Where the driver moves to when it sits in a cgroup that has to be divided.
DRIVER_LEAF = "ocisbx-driver"
# The scope that cgroup/scope.py asks for: systemd before 251 leaves no other mark on it.
OWN_SCOPE = re.compile(r"ocisbx-\d+-[0-9a-f]+\.scope")
MOUNT_POINT = "/sys/fs/cgroup"
# One of these is there wherever version 1 is.
V1_MOUNTS = ("memory", "pids", "cpu", "cpu,cpuacct", "systemd")


class Site(NamedTuple):
    """`own` and `parent` (where sandboxes' cgroups go) are paths from `mount` on.

    sibling: parent is ours to divide, and we are below it (or in the root of all, which may hold
    processes); below: own is ours, and we have to leave it for a leaf first; scope: the systemd
    user manager has to be asked for a delegated scope; none: nowhere.
    """

    hierarchy: Hierarchy
    # Directory where cgroup v2 is mounted; empty where it is not.
    mount: str = ""
    # Empty: not known, or not to be seen from `mount`.
    own: str = ""
    way: Way = "none"
    parent: str = ""
    # That `parent` will have; for scope: that the user manager has to give.
    controllers: tuple[str, ...] = ()
    # Why no cgroup could be made, although all looked well: in the words of who tried.
    trouble: str = ""


_doubt: ContextVar[str] = ContextVar("doubt", default="")


@contextlib.contextmanager
def doubted(trouble: str) -> Iterator[None]:
    """Within it `look()` finds no place for cgroups, and says why."""
    token = _doubt.set(trouble)
    try:
        yield
    finally:
        _doubt.reset(token)


def look(root: str = "/") -> Site:
    """This process's place, now."""
    base = root.rstrip("/")
    hierarchy, mount = find_mount(base + MOUNT_POINT)
    if not mount:
        return Site(hierarchy)
    own = own_cgroup(mount, root)
    if not own or _doubt.get():
        return Site(hierarchy, mount, own, trouble=_doubt.get())
    uid = os.geteuid()
    manager = manager_cgroup(own, uid)
    way, parent = choose_way(mount, own, manager, root)
    if way == "none":
        return Site(hierarchy, mount, own)
    giver = manager if way == "scope" else parent
    return Site(hierarchy, mount, own, way, parent, available_controllers(join(mount, giver)))


def find_mount(directory: str = MOUNT_POINT) -> tuple[Hierarchy, str]:
    """The kind of hierarchy below `directory`, and where its version 2 is (empty: nowhere)."""
    if os.path.exists(f"{directory}/cgroup.controllers"):
        return "unified", directory
    if os.path.exists(f"{directory}/unified/cgroup.controllers"):
        return "hybrid", f"{directory}/unified"
    if any(os.path.isdir(f"{directory}/{name}") for name in V1_MOUNTS):
        return "v1", ""
    return "none", ""


def own_cgroup(mount: str, root: str = "/") -> str:
    """Our cgroup from `mount` on; empty when it is not to be seen there.

    What /proc/self/cgroup tells counts from the root of our cgroup namespace, which need not be
    what is mounted (cgroup_namespaces(7)): then mountinfo knows the difference.
    """
    base = root.rstrip("/")
    path = unified_path(read_text(f"{base}/proc/self/cgroup"))
    if path is None:
        return ""
    if path != "/" and not _is_outside(path) and os.path.isdir(mount + path):
        return path
    text = read_text(f"{base}/proc/self/mountinfo")
    seen = relative_to(path, mounted_root(text, mount[len(base) :]))
    return seen if seen and os.path.isdir(mount + seen) else ""


def cgroup_of(pid: int) -> str | None:
    """The cgroup of a process, counted as ours is; None: it has ended."""
    return unified_path(read_text(f"/proc/{pid}/cgroup"))


def unified_path(text: str) -> str | None:
    """The path in a /proc/PID/cgroup text's line of version 2; None: there is none."""
    return next((line[3:] for line in text.split("\n") if line.startswith("0::/")), None)


def mounted_root(text: str, point: str) -> str:
    """Which cgroup a mountinfo text shows at `point` (proc_pid_mountinfo(5), field 4).

    The last mount on a point covers the others; "/" where the text does not tell.
    """
    found = "/"
    for line in text.split("\n"):
        fields = line.split(" ")
        if len(fields) > 9 and unescape(fields[4]) == point and "cgroup2" in fields[7:]:
            found = unescape(fields[3])
    return found


def unescape(text: str) -> str:
    r"""A field of mountinfo: space, tab, newline and backslash stand there as \040 and so on."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def relative_to(path: str, shown: str) -> str:
    """`path` as it is called below a mount that shows the cgroup `shown`; empty: not there."""
    if _is_outside(path) or _is_outside(shown):
        return ""
    if shown == "/":
        return path
    if path == shown:
        return "/"
    return path[len(shown) :] if path.startswith(f"{shown}/") else ""


def _is_outside(path: str) -> bool:
    return path == "/.." or path.startswith("/../")


def manager_cgroup(own: str, uid: int) -> str:
    """Where the systemd user manager of `uid` has its part of the hierarchy, if it runs.

    Above its own slices there may be a container's cgroup.
    """
    service = f"/user@{uid}.service"
    within, found, _ = own.partition(f"{service}/")
    if found:
        return within + service
    above = own[: max(0, *(f"{own}/".rfind(f"/{name}.slice/") for name in ("user", "system")))]
    return f"{above}/user.slice/user-{uid}.slice{service}"


def choose_way(mount: str, own: str, manager: str, root: str = "/") -> tuple[Way, str]:
    """How a place for sandboxes is come by, and which ("" where that is still to be asked for)."""
    parent = os.path.dirname(own)
    # All below the user manager belongs to the user, handed over or not: only a mark tells.
    managed = own.startswith(f"{manager}/")
    parent_is_ours = own != "/" and is_divisible(join(mount, parent))
    if parent_is_ours and (not managed or is_handed_over(mount, own, manager, root)):
        return "sibling", parent
    if not managed and is_divisible(join(mount, own)):
        # Only the root of the whole hierarchy has no type; it may have processes and children.
        typed = os.path.exists(join(mount, f"{own}/cgroup.type"))
        return ("below" if typed else "sibling"), own
    # Where the manager's own part cannot be written (a read-only mount), a scope of it cannot be.
    if os.access(mount + manager, os.W_OK) and any(user_buses(os.geteuid(), root)):
        return "scope", ""
    return ("sibling", parent) if parent_is_ours else ("none", "")


def is_handed_over(mount: str, own: str, manager: str, root: str = "/") -> bool:
    """Whether `own`, or what lies above it below the manager, is of a unit with Delegate=yes.

    systemd marks these with an extended attribute since 251, but a user manager does not (as of
    257): there the unit's file tells.
    """
    path = own
    while path != manager:
        name = os.path.basename(path)
        if name == DRIVER_LEAF or OWN_SCOPE.fullmatch(name) or has_mark(mount + path):
            return True
        if name.endswith((".scope", ".service")) and delegates(unit_text(name, root)):
            return True
        path = os.path.dirname(path)
    return False


def unit_text(name: str, root: str = "/") -> str:
    """The file of a unit of our user manager, and the drop-ins that change it (systemd.unit(5))."""
    base = root.rstrip("/")
    home = os.environ.get("HOME", "/nonexistent")
    places = [f"{place}/systemd/transient" for place in runtime_directories(os.geteuid(), root)]
    places += [f"{home}/.config/systemd/user", f"{base}/etc/systemd/user"]
    places += [f"{base}/usr/lib/systemd/user"]
    # An instance of a template is read from the template's file.
    names = (name, re.sub(r"@.*\.", "@.", name))
    files = [f"{place}/{one}" for one in dict.fromkeys(names) for place in places]
    text = next(filter(None, map(read_text, files)), "")
    for path in files:
        with contextlib.suppress(OSError):
            drop_ins = sorted(os.listdir(f"{path}.d"))
            text += "".join(f"\n{read_text(f'{path}.d/{one}')}" for one in drop_ins)
    return text


def delegates(text: str) -> bool:
    """Whether a unit's text says Delegate=, and not no; the last one counts."""
    values = re.findall(r"^Delegate[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)
    return bool(values) and values[-1].lower() not in ("", "no", "n", "false", "f", "off", "0")


def has_mark(path: str) -> bool:
    try:
        return os.getxattr(path, "user.delegate") == b"1"
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT, errno.EACCES):
            return False
        raise


def is_divisible(path: str) -> bool:
    """Whether we can make cgroups in it, and move processes from one of them to the other."""
    return os.access(path, os.W_OK | os.X_OK) and os.access(f"{path}/cgroup.procs", os.W_OK)


def available_controllers(path: str) -> tuple[str, ...]:
    """What children of the cgroup can have: what it has, or what is enabled where we may not."""
    if os.access(f"{path}/cgroup.subtree_control", os.W_OK):
        return controllers_of(path)
    return controllers_of(path, "cgroup.subtree_control")


def controllers_of(path: str, file: str = "cgroup.controllers") -> tuple[str, ...]:
    """The controllers of a cgroup, of those that matter; none where there is no such file."""
    words = read_text(f"{path}/{file}").split()
    return tuple(name for name in CONTROLLERS if name in words)


def user_buses(uid: int, root: str = "/") -> Iterator[str]:
    """Sockets at which the user manager of `uid` may answer: that are there, and the user's own.

    The environment's may be somebody else's (su(1) keeps it), or missing where a manager runs
    nevertheless (cron(8) of a user that lingers). The last of each place is the manager's own,
    which answers where there is no bus.
    """
    places = runtime_directories(uid, root)
    found = list(bus_paths(os.environ.get("DBUS_SESSION_BUS_ADDRESS", "")))
    found += [f"{place}/bus" for place in places]
    found += [f"{place}/systemd/private" for place in places]
    return (path for path in dict.fromkeys(found) if _owner(path) == uid)


def runtime_directories(uid: int, root: str = "/") -> list[str]:
    """Where the user manager of `uid` keeps its files, the likeliest place first."""
    usual = f"{root.rstrip('/')}/run/user/{uid}"
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    return [usual] if given in ("", usual) or not given.startswith("/") else [given, usual]


def bus_paths(address: str) -> Iterator[str]:
    """Paths in a D-Bus address (D-Bus specification, "Server Addresses"): unix:path=ONE;..."""
    if not address:
        return
    from urllib.parse import unquote  # noqa: PLC0415 -- 5 ms, where a bus is told of only

    for one in address.split(";"):
        transport, _, rest = one.partition(":")
        for pair in rest.split(",") if transport == "unix" else ():
            key, _, value = pair.partition("=")
            if key == "path" and "\0" not in (path := unquote(value)):
                yield path


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def join(mount: str, path: str) -> str:
    """The directory of a cgroup."""
    return mount + path.rstrip("/")


def read_text(path: str) -> str:
    """What the file holds; empty when it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
