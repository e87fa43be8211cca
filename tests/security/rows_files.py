"""Assertions 32 to 48, 59 and 67: files, descriptors, terminals."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

from tests.security.mutants import host_device
from tests.security.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.security.scene import Seen

DEVICES = {f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero", "ptmx",
                                       "pts/ptmx", "console")}  # fmt: skip
# Mounts of the runtime's own making: single devices, and what it puts over a masked path.
OF_THE_RUNTIME = ("/dev/", "/proc/")
GIB = 1 << 30
SECRET_DIRECTORY = "/private"


def own_mounts(seen: Seen) -> Iterator[dict[str, Any]]:
    """Mounts in which something could lie."""
    for mount in seen["mounts"]:
        target = mount["target"]
        runtime_made = target.startswith(OF_THE_RUNTIME) and target not in ("/dev/shm", "/dev/pts")
        if target != "/" and not runtime_made:
            yield mount


def every_mount(option: str, *but: str) -> Callable[[Seen], bool]:
    return lambda seen: all(
        option in mount["options"] for mount in own_mounts(seen) if mount["target"] not in but
    )


def road(name: str) -> Callable[[Seen], bool]:
    return lambda seen: seen["canary"][name] != seen["secret"]


def stdout_of(seen: Seen) -> dict[str, Any]:
    found: dict[str, Any] = seen["descriptors"]["1"]
    return found


def closed_modes(seen: Seen, wanted: Callable[[str], bool]) -> bool:
    """No rights for group and others on these paths of the bundle."""
    chosen = [mode for path, mode in seen["modes"].items() if wanted(path)]
    assert chosen
    return not any(mode & 0o077 for mode in chosen)


FILES = (
    Row(32, "every mount is nosuid", "mount options", every_mount("nosuid"), ("no nosuid",)),
    Row(
        32,
        "every mount is nodev",
        "mount options",
        every_mount("nodev", "/dev", "/dev/pts"),
        ("no nodev",),
    ),
    Row(
        33,
        "the root cannot be written",
        "read-only root",
        lambda seen: not seen["writable_places"],
        ("writable root",),
    ),
    Row(
        34,
        "no mount is shared with a peer",
        "rprivate",
        lambda seen: not any(mount["propagation"] for mount in seen["mounts"]),
        ("shared mounts",),
    ),
    Row(
        35,
        "no device can be made",
        "user namespace",
        lambda s: s["mknod_device"] == "EPERM",
        kernel=True,
    ),
    Row(
        36,
        "the usual character devices only",
        "a /dev of its own",
        lambda seen: set(seen["devices"]["character"]) <= DEVICES,
        ("a character device",),
        here=lambda: host_device(stat.S_ISCHR) is not None,
    ),
    Row(
        36,
        "no block device",
        "a /dev of its own",
        lambda seen: not seen["devices"]["block"],
        ("a block device",),
        here=lambda: host_device(stat.S_ISBLK) is not None,
    ),
    Row(
        37,
        "a set-user-id program gains nothing",
        "one id only, no_new_privileges, nosuid",
        lambda seen: seen["setuid_program"][0] == seen["setuid_program"][1],
        ("another user gains rights",),
        kernel=True,
    ),
    Row(
        38,
        "no service of the host",
        "the view",
        lambda s: not s["sockets"]["services"],
        ("a service",),
    ),
    Row(
        38,
        "no unix socket in a system's directory",
        "the view",
        lambda s: not s["sockets"]["sockets"],
        ("a service",),
    ),
    *(
        Row(
            40,
            f"a file of the host is not there ({name})",
            "the view",
            road(name),
            ("the host's file",),
        )
        for name in ("path", "climb", "self root", "init root", "init cwd", "parent cwd")
    ),
    Row(
        41,
        "a read-only bind cannot be written",
        "ro, rro",
        lambda seen: seen["readonly_bind"]["write"] == "EROFS",
        ("a writable bind",),
    ),
    Row(
        41,
        "a read-only bind cannot be remounted",
        "capabilities, seccomp, Landlock",
        lambda seen: seen["readonly_bind"]["remount"] == "EROFS",
        ("all rights", "a writable bind"),
    ),
    Row(
        42,
        "what it writes belongs to the caller",
        "user namespace",
        lambda seen: seen["owner"] == seen["host_uid"],
        ("another user",),
        side="host",
    ),
    Row(
        59,
        "every tmpfs has a size",
        "mount options",
        lambda seen: all(0 < one["bytes"] <= GIB for one in seen["scratch"].values()),
        ("no bounds",),
    ),
    Row(
        59,
        "every tmpfs has a number of inodes",
        "mount options",
        lambda seen: all(0 < one["inodes"] <= GIB >> 12 for one in seen["scratch"].values()),
        ("no bounds",),
    ),
    Row(
        59,
        "filling a tmpfs is ENOSPC",
        "mount options",
        lambda seen: all(one["fill"] == "ENOSPC" for one in seen["scratch"].values()),
        ("no bounds",),
    ),
    Row(
        59,
        "files in /dev are ENOSPC at last",
        "mount options",
        lambda s: s["inodes"] == "ENOSPC",
        ("no bounds",),
    ),
)

DESCRIPTORS = (
    Row(
        43,
        "three descriptors and no more",
        "ours at the start, the runtime, the init",
        lambda seen: set(seen["descriptors"]) == {"0", "1", "2"},
        ("a kept descriptor", "LISTEN_FDS"),
    ),
    Row(
        44,
        "no directory is open",
        "the same",
        lambda seen: (
            not any(
                one["path_only"] or stat.S_ISDIR(one["type"])
                for one in seen["descriptors"].values()
            )
        ),
        ("a kept descriptor", "LISTEN_FDS"),
    ),
    Row(
        45,
        "its working directory is a path, and not of /proc",
        "resolve()",
        lambda seen: not seen["working_directory"].startswith(("/proc", "(")),
        ("a directory of /proc",),
    ),
    Row(
        46,
        "stdout is the writing end of a pipe",
        "capture",
        lambda seen: stat.S_ISFIFO(stdout_of(seen)["type"]) and stdout_of(seen)["access"] == 1,
        ("a file as output",),
    ),
    Row(
        47,
        "a runtime gets nothing that the caller left open",
        "ours at the start",
        lambda seen: not any(p.endswith(SECRET_DIRECTORY) for p in seen["runtime_descriptors"]),
        ("the caller's descriptors",),
        side="host",
    ),
    Row(
        47,
        "a runtime gets an environment that we made",
        "ours at the start",
        lambda seen: (
            set(seen["runtime_environment"]) <= {"PATH", "LC_ALL", "_LIBCONTAINER_STATEDIR"}
        ),
        ("the caller's environment for the runtime", "LISTEN_FDS"),
        side="host",
    ),
    Row(
        48,
        "no descriptor is a terminal",
        "pipes, /dev/null",
        lambda seen: not any(one["tty"] for one in seen["descriptors"].values()),
        ("a terminal as input",),
    ),
    *(
        Row(
            48,
            f"{name} on a terminal of its own is refused",
            "seccomp",
            lambda seen, name=name: seen["terminal_input"][name] == "EPERM",  # type: ignore[misc]
            ("no filter",),
        )
        for name in ("TIOCSTI", "TIOCSTI + 2**32", "TIOCLINUX")
    ),
    Row(
        67,
        "the call's directories are closed to others",
        "modes",
        lambda seen: closed_modes(seen, lambda path: path.count("/") < 3),
        ("an open bundle",),
        side="host",
    ),
    Row(
        67,
        "its files are closed to others",
        "modes",
        lambda seen: closed_modes(seen, lambda path: path.endswith((".json", "stdout", "stderr"))),
        ("an open bundle",),
        side="host",
    ),
    Row(
        67,
        "nothing of the call is left",
        "the driver",
        lambda s: not s["left"],
        ("a bundle that stays",),
        side="host",
    ),
)

ROWS = (*FILES, *DESCRIPTORS)
