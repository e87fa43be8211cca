"""Mutants: what a sandbox would be without a protection. Each takes away every layer of it.

A mutant changes config.json, the plan, or one step of the driver; nothing else of the product is
touched. Which assertions each must break stands with the assertions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ocisbx.plan import RootNode
from ocisbx.probe.gather import subordinate_ids
from tests.security import steps
from tests.security.scene import HOSTILE_ENVIRONMENT, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ocisbx.plan import Plan
    from tests.security.scene import Scene

Document = dict[str, Any]
ALL_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
)  # fmt: skip
SETS = ("bounding", "effective", "permitted", "inheritable", "ambient")


@dataclass(frozen=True)
class Mutant:
    """One weakened run.

    `reports`: the init still does. `contained`: only in a pid namespace of the test's own, since a
    runtime might signal what is not the container's. `starts`: some runtime goes on without it.
    `runtimes`: where it can be made.
    """

    name: str
    takes_away: str
    change: Callable[[Document, Scene], None] | None = None
    replan: Callable[[Plan], Plan] | None = None
    step: Callable[[Scene], AbstractContextManager[None]] | None = None
    reports: bool = True
    contained: bool = False
    starts: bool = True
    runtimes: tuple[str, ...] = ("runc", "crun")

    def spec(self, scene: Scene) -> Callable[[Document], None]:
        def change(document: Document) -> None:
            if self.change is not None:
                self.change(document, scene)

        return change

    def plan(self, plan: Plan) -> Plan:
        return plan if self.replan is None else self.replan(plan)

    def weakened(self, scene: Scene) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if self.step is None else self.step(scene)


def both(*changes: Callable[[Document, Scene], None]) -> Callable[[Document, Scene], None]:
    def change(document: Document, scene: Scene) -> None:
        for one in changes:
            one(document, scene)

    return change


def no_landlock(document: Document, _: Scene) -> None:
    """The init is told where writing is allowed by options before `--` (ocisbx-init(7))."""
    args = document["process"]["args"]
    document["process"]["args"] = [args[0], *args[args.index("--") :]]


def gain_rights(document: Document, _: Scene) -> None:
    document["process"]["noNewPrivileges"] = False


def no_filter(document: Document, _: Scene) -> None:
    del document["linux"]["seccomp"]


def no_fallback(document: Document, _: Scene) -> None:
    """glibc takes clone where clone3 answers ENOSYS, and only there."""
    rule = {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
    document["linux"]["seccomp"]["syscalls"].append(rule)


def capabilities(*names: str, sets: tuple[str, ...] = SETS[:3]) -> Callable[..., None]:
    def change(document: Document, _: Scene) -> None:
        document["process"]["capabilities"] = {
            one: [f"CAP_{name}" for name in names] for one in sets
        }

    return change


def without_namespace(kind: str) -> Callable[[Document, Scene], None]:
    def change(document: Document, _: Scene) -> None:
        spaces = document["linux"]["namespaces"]
        document["linux"]["namespaces"] = [one for one in spaces if one["type"] != kind]
        if kind == "uts":
            del document["hostname"]

    return change


def without_pid_namespace(document: Document, scene: Scene) -> None:
    """/proc is the host's then, and the init refuses to run: the payload is started bare. So is the
    cgroup gone, whose end is the daemons' too.

    crun makes a pid namespace to enter a time namespace, asked for or not.
    """
    without_namespace("pid")(document, scene)
    without_namespace("time")(document, scene)
    document["process"]["args"] = document["process"]["args"][-1:]
    proc = {"destination": "/proc", "type": "bind", "source": "/proc", "options": ["rbind"]}
    document["mounts"][0] = proc
    document["linux"].pop("cgroupsPath", None)
    document["linux"]["maskedPaths"] = document["linux"]["readonlyPaths"] = []


def no_masks(document: Document, _: Scene) -> None:
    document["linux"]["maskedPaths"] = []


def no_readonly_paths(document: Document, _: Scene) -> None:
    document["linux"]["readonlyPaths"] = []


def writable_root(document: Document, _: Scene) -> None:
    document["root"]["readonly"] = False


def without_options(*words: str) -> Callable[[Document, Scene], None]:
    """Mounts without these options; `size` stands for `size=...`, which then has no bound."""

    def change(document: Document, _: Scene) -> None:
        for mount in document["mounts"]:
            kept = [o for o in mount.get("options", []) if o.partition("=")[0] not in words]
            lost = [o for o in mount.get("options", []) if o not in kept and "=" in o]
            mount["options"] = kept + [o.partition("=")[0] + "=0" for o in lost]

    return change


def shared_propagation(document: Document, _: Scene) -> None:
    document["linux"]["rootfsPropagation"] = "shared"
    for mount in document["mounts"]:
        options = mount.get("options", [])
        mount["options"] = ["rshared" if one == "rprivate" else one for one in options]


def bound(source: str, target: str, *options: str) -> Callable[[Document, Scene], None]:
    def change(document: Document, scene: Scene) -> None:
        mount = {
            "destination": target.format(private=scene.secret.parent),
            "type": "bind",
            "source": source.format(base=scene.box.base, private=scene.secret.parent),
            "options": ["rbind", *options],
        }
        document["mounts"].append(mount)

    return change


def writable_probe(document: Document, _: Scene) -> None:
    for mount in document["mounts"]:
        if mount["destination"] == PROBE:
            mount["options"] = ["rbind", "rw"]


def with_socket(document: Document, scene: Scene) -> None:
    """A directory of the host with the socket of a service in it, at /run."""
    place = scene.box.base / "services"
    place.mkdir()
    os.mknod(place / "ocisbx-canary.sock", 0o140666)
    bound("{base}/services", "/run")(document, scene)


def host_device(kind: Callable[[int], bool]) -> str | None:
    """A device of the host beside the usual ones; whether it can be opened is no matter."""
    usual = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "console")
    with os.scandir("/dev") as entries:
        names = sorted(one.name for one in entries if kind(one.stat(follow_symlinks=False).st_mode))
    return next((f"/dev/{name}" for name in names if name not in usual), None)


def with_device(kind: Callable[[int], bool]) -> Callable[[Document, Scene], None]:
    def change(document: Document, scene: Scene) -> None:
        source = host_device(kind)
        assert source is not None
        bound(source, source)(document, scene)
        document["mounts"][-1]["options"] = ["bind"]

    return change


def with_directories(*paths: str) -> Callable[[Plan], Plan]:
    def replan(plan: Plan) -> Plan:
        nodes = tuple(RootNode("directory", path, "", 0o755) for path in paths)
        return plan._replace(nodes=(*plan.nodes, *nodes))

    return replan


def inherit_everything(plan: Plan) -> Plan:
    return plan._replace(inherit=(*plan.inherit, *HOSTILE_ENVIRONMENT))


def other_user(document: Document, _: Scene) -> None:
    """The payload as a subordinate id, with set-user-id programs of the caller's in reach."""
    document["process"]["user"] = {"uid": 1, "gid": 1}
    for what, own in (("uid", os.getuid()), ("gid", os.getgid())):
        first = subordinate_ids(f"/etc/sub{what}", os.getuid())[0]
        document["linux"][f"{what}Mappings"] = [
            {"containerID": 0, "hostID": own, "size": 1},
            {"containerID": 1, "hostID": first.start, "size": first.count},
        ]


def no_rlimits(document: Document, _: Scene) -> None:
    document["process"]["rlimits"] = []


def inside_proc(document: Document, _: Scene) -> None:
    document["process"]["cwd"] = "/proc/self"


ROWS = (
    Mutant(
        "gains rights",
        "no_new_privileges, and Landlock, which sets it too",
        change=both(no_landlock, gain_rights),
    ),
    Mutant("no filter", "the seccomp filter", change=no_filter),
    Mutant("threads refused", "ENOSYS as clone3's answer", change=no_fallback),
    Mutant(
        "a capability",
        "the empty capability sets",
        change=capabilities("CHOWN", sets=SETS),
    ),
    Mutant(
        "all rights",
        "the empty capability sets, no_new_privileges and the seccomp filter",
        change=both(
            no_landlock, gain_rights, no_filter, capabilities(*ALL_CAPABILITIES, sets=SETS)
        ),
    ),
    Mutant(
        "sees processes",
        "the lack of CAP_SYS_PTRACE, and Landlock",
        change=both(no_landlock, capabilities("SYS_PTRACE")),
    ),
    Mutant(
        "dumpable init",
        "PR_SET_DUMPABLE of the init, and Landlock",
        change=no_landlock,
        step=steps.changed_programs(("init.c", "PR_SET_DUMPABLE, 0,", "PR_SET_DUMPABLE, 1,")),
    ),
    *(
        Mutant(f"no {kind} namespace", f"the {kind} namespace", change=without_namespace(kind))
        for kind in ("network", "ipc", "uts")
    ),
    # crun refuses hybrid cgroups and then runs in a cell, which has a cgroup namespace as well.
    Mutant(
        "no cgroup namespace",
        "the cgroup namespace",
        change=without_namespace("cgroup"),
        runtimes=("runc",),
    ),
    Mutant(
        "no pid namespace",
        "the pid namespace, with it the init and a /proc of its own, and the cgroup",
        change=without_pid_namespace,
        reports=False,
        contained=True,
        # crun makes a cgroup where it may, told to or not, and ends what is in it.
        runtimes=("runc",),
    ),
    Mutant(
        "no mount namespace",
        "the mount namespace",
        change=without_namespace("mount"),
        starts=False,
    ),
    Mutant("no masks", "the masked paths", change=no_masks),
    Mutant("no read-only paths", "the read-only paths", change=no_readonly_paths),
    Mutant(
        "writable root", "the read-only root, and Landlock", change=both(no_landlock, writable_root)
    ),
    Mutant("no nosuid", "nosuid on every mount", change=without_options("nosuid", "rnosuid")),
    Mutant("no nodev", "nodev on every mount", change=without_options("nodev", "rnodev")),
    Mutant(
        "no bounds", "size= and nr_inodes= of tmpfs", change=without_options("size", "nr_inodes")
    ),
    Mutant("shared mounts", "private propagation", change=shared_propagation),
    Mutant(
        "a /sys",
        "the absence of /sys (bound `ro`, which is not recursive), and the masks",
        change=both(no_masks, bound("/sys", "/sys", "ro", "nosuid", "nodev")),
        replan=with_directories("/sys"),
    ),
    Mutant("a character device", "the list of devices", change=with_device(stat.S_ISCHR)),
    Mutant("a block device", "the list of devices", change=with_device(stat.S_ISBLK)),
    Mutant("a kernel log", "the list of devices", change=bound("/dev/kmsg", "/dev/kmsg")),
    Mutant("a service", "the absence of the host's sockets", change=with_socket),
    Mutant(
        "the host's file",
        "the view of the host, and the lack of CAP_SYS_PTRACE",
        change=both(no_landlock, bound("{private}", "{private}", "ro"), capabilities("SYS_PTRACE")),
    ),
    Mutant(
        "a writable bind",
        "ro and rro of a bind, and Landlock",
        change=both(no_landlock, writable_probe),
    ),
    Mutant(
        "the caller's environment",
        "the list of names that are inherited",
        replan=inherit_everything,
    ),
    Mutant("another user", "the map of one id only", change=other_user, runtimes=("runc",)),
    Mutant(
        "another user gains rights",
        "the map of one id only, nosuid and no_new_privileges",
        change=both(no_landlock, other_user, gain_rights, without_options("nosuid", "rnosuid")),
        runtimes=("runc",),
    ),
    Mutant("no rlimits", "the rlimits", change=no_rlimits),
    Mutant("a directory of /proc", "the check of the working directory", change=inside_proc),
    Mutant(
        "a kept descriptor",
        "closing descriptors: ours at the start, the runtime's by --preserve-fds, the init's",
        step=steps.descriptor_kept,
    ),
    Mutant(
        "LISTEN_FDS",
        "closing descriptors, and the environment that we make for a runtime",
        step=steps.listen_fds,
    ),
    Mutant(
        "the caller's descriptors",
        "closing what the caller left inheritable",
        step=steps.inheriting,
    ),
    Mutant(
        "the caller's environment for the runtime",
        "the environment that we make for a runtime",
        step=steps.environment_passed,
    ),
    Mutant("a file as output", "the pipe between payload and capture", step=steps.stdout_is_a_file),
    Mutant(
        "a terminal as input", "the pipe between caller and payload", step=steps.stdin_is_a_terminal
    ),
    Mutant(
        "an open bundle", "the modes of the bundle's directory and files", step=steps.open_bundle
    ),
    Mutant("a bundle that stays", "the removal of the bundle", step=steps.bundle_stays),
)
MUTANTS = {mutant.name: mutant for mutant in ROWS}
