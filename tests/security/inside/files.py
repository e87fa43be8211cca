"""What the payload sees of files: mounts, devices, masks, descriptors; and what it may do there."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.security.inside.calls import LIBC, in_a_child
from tests.security.inside.processes import error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MS_REMOUNT, MS_BIND = 32, 4096
LISTED_SOCKETS = 50

# Where a service of the host listens that would do as it is told.
SERVICES = (
    "/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock",
    "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/dbus/system_bus_socket",
    "/run/systemd/private", "/run/systemd/notify", "/run/user", "/run/snapd.socket",
    "/run/libvirt", "/tmp/.X11-unix", "/run/ocisbx-canary.sock",
)  # fmt: skip


def mounts() -> list[dict[str, Any]]:
    """/proc/self/mountinfo, a row each (proc_pid_mountinfo(5))."""
    rows = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        rows.append(
            {
                "root": words[3],
                "target": words[4],
                "options": words[5].split(","),
                "propagation": words[6:],
                "type": after.split()[0],
            }
        )
    return rows


def writable_places() -> list[str]:
    """Directories of the root in which a file can be made."""
    made = []
    for directory in ("/", "/etc", "/usr", "/usr/bin", "/bin", "/run", "/var", "/.ocisbx", "/mnt"):
        path = f"{directory}/ocisbx-was-here"
        if error_of(lambda path=path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY))) == "ok":  # type: ignore[misc]
            made.append(directory)
    return made


def opens_for_writing(top: str, skip: Callable[[str], bool]) -> Iterator[str]:
    """Files below `top` that can be opened for writing; never written, never truncated."""
    for directory, names, files in os.walk(top):
        names[:] = [name for name in names if not skip(f"{directory}/{name}")]
        for name in files:
            path = f"{directory}/{name}"
            # S_ISREG first: a FIFO would block, a device might act.
            try:
                if not stat.S_ISREG(os.lstat(path).st_mode):
                    continue
                os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
            except OSError:
                continue
            yield path


def writable_sysctls() -> list[str]:
    return sorted(opens_for_writing("/proc/sys", lambda path: False))


def writable_proc() -> list[str]:
    """Beside processes' own directories and /proc/sys."""
    return sorted(
        opens_for_writing("/proc", lambda path: path == "/proc/sys" or path[6:].isdigit())
    )


def kernel_doors() -> dict[str, str]:
    """Files by which root would command the kernel."""
    paths = (
        "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/hostname",
        "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent",
        "/sys/fs/cgroup/memory/release_agent", "/sys/kernel/security/apparmor/.load",
    )  # fmt: skip
    return {path: opening(path, os.O_WRONLY) for path in paths}


def opening(path: str, flags: int) -> str:
    """What an open answers, in a child: a descriptor that it got is closed with it."""
    return in_a_child(lambda: os.close(os.open(path, flags | os.O_NONBLOCK)))


def kernel_log() -> dict[str, str]:
    return {path: opening(path, os.O_RDONLY) for path in ("/dev/kmsg", "/proc/kmsg")}


def masks() -> dict[str, str]:
    """What stands at each path of argv[3:]: absent, null, an empty directory, or something."""
    return {path: kind_of(path) for path in sys.argv[3].split(",")}


def kind_of(path: str) -> str:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return "absent"
    if stat.S_ISDIR(info.st_mode):
        return "something" if os.listdir(path) else "empty"
    if stat.S_ISCHR(info.st_mode) and info.st_rdev == os.makedev(1, 3):
        return "null"
    return "something"


def kallsyms() -> int:
    """Bytes of the kernel's symbol table that can be read."""
    try:
        return len(Path("/proc/kallsyms").read_bytes())
    except OSError:
        return 0


def sys_tree() -> dict[str, object]:
    there = os.path.isdir("/sys") and bool(os.listdir("/sys"))
    rows = [row for row in mounts() if str(row["target"]).startswith("/sys")]
    return {"there": there, "writable": [row["target"] for row in rows if "rw" in row["options"]]}


def devices() -> dict[str, list[str]]:
    """Devices anywhere below /dev: {kind: names}."""
    found: dict[str, list[str]] = {"character": [], "block": []}
    for directory, names, files in os.walk("/dev"):
        for name in (*names, *files):
            path = f"{directory}/{name}"
            mode = os.lstat(path).st_mode
            if stat.S_ISCHR(mode):
                found["character"].append(path)
            elif stat.S_ISBLK(mode):
                found["block"].append(path)
    return {kind: sorted(paths) for kind, paths in found.items()}


def sockets() -> dict[str, object]:
    """Services of the host by name, and every unix socket in a directory of the system."""
    found: list[str] = []
    for top in ("/run", "/var", "/tmp", "/home", "/root", "/mnt", "/etc"):
        for directory, _, files in os.walk(top):
            paths = (f"{directory}/{name}" for name in files)
            found += [path for path in paths if stat.S_ISSOCK(os.lstat(path).st_mode)]
    there = [path for path in SERVICES if os.path.lexists(path)]
    return {"services": there, "sockets": found[:LISTED_SOCKETS]}


def canary() -> dict[str, str]:
    """A file of the host that is not in the sandbox, by every road: its text, or the errno."""
    path = sys.argv[4]
    climb = "../" * 40
    roads = {
        "path": path,
        "climb": f"{climb}{path[1:]}",
        "self root": f"/proc/self/root{path}",
        "init root": f"/proc/1/root{path}",
        "init cwd": f"/proc/1/cwd/{climb}{path[1:]}",
        "parent cwd": f"/proc/{os.getppid()}/cwd/{climb}{path[1:]}",
    }
    return {name: text_of(road) for name, road in roads.items()}


def text_of(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def readonly_bind() -> dict[str, str]:
    """The probe's own directory, which is bound read-only: writing, and making it writable."""
    place = sys.argv[5]
    path = f"{place}/ocisbx-was-here"

    def remount() -> None:
        LIBC.mount(b"none", place.encode(), None, MS_REMOUNT | MS_BIND, None)
        os.close(os.open(f"{path}-remounted", os.O_CREAT | os.O_WRONLY))

    return {
        "write": in_a_child(lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY))),
        "remount": in_a_child(remount),
    }


def setuid_program() -> list[int]:
    """The effective id of a program that is set-user-id, in the workspace."""
    program = f"{workspace()}/setuid-id"
    if not os.path.exists(program):
        shutil.copy("/usr/bin/id", program)
        os.chmod(program, 0o6755)  # noqa: S103 -- the attack itself
    done = subprocess.run([program, "-u"], capture_output=True, text=True, check=True)
    return [os.getuid(), int(done.stdout)]


def workspace() -> str:
    return os.path.dirname(sys.argv[1])


def owned_file() -> bool:
    """Make a file in the workspace, whose owner the host looks at."""
    Path(workspace(), "made-inside").touch()
    return True


def descriptors() -> dict[str, dict[str, object]]:
    """Every open descriptor but the one that lists them."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            info = os.fstat(int(name))
        except OSError:
            continue
        flags = fcntl.fcntl(int(name), fcntl.F_GETFL)
        found[name] = {
            "target": os.readlink(f"/proc/self/fd/{name}"),
            "type": stat.S_IFMT(info.st_mode),
            "access": flags & os.O_ACCMODE,
            "path_only": bool(flags & os.O_PATH),
            "tty": os.isatty(int(name)),
        }
    return found


def working_directory() -> str:
    return os.getcwd()


def scratch() -> dict[str, dict[str, object]]:
    """Each memory file system: its bounds, and what asking for more than them answers."""
    found = {}
    for row in mounts():
        target = str(row["target"])
        if row["type"] != "tmpfs" or not os.path.isdir(target) or "ro" in row["options"]:
            continue
        info = os.statvfs(target)
        found[target] = {
            "bytes": info.f_blocks * info.f_frsize,
            "inodes": info.f_files,
            "fill": in_a_child(lambda target=target, info=info: fill(target, info)),  # type: ignore[misc]
        }
    return found


def fill(directory: str, info: os.statvfs_result) -> None:
    """One byte more than there is; where there is no bound, a terabyte, without writing it."""
    path = f"{directory}/fill-{os.getpid()}"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
    os.unlink(path)
    if info.f_blocks:
        os.posix_fallocate(descriptor, 0, info.f_blocks * info.f_frsize + 1)


def inodes() -> str:
    """A thousand files in /dev, the smallest of them."""

    def work() -> None:
        for number in range(1000):
            os.close(os.open(f"/dev/inode-{number}", os.O_CREAT | os.O_WRONLY))

    answer = in_a_child(work)
    for name in os.listdir("/dev"):
        if name.startswith("inode-"):
            os.unlink(f"/dev/{name}")
    return answer


OBSERVATIONS: dict[str, Callable[[], object]] = {
    "mounts": mounts,
    "writable_places": writable_places,
    "writable_sysctls": writable_sysctls,
    "writable_proc": writable_proc,
    "kernel_doors": kernel_doors,
    "kernel_log": kernel_log,
    "masks": masks,
    "kallsyms": kallsyms,
    "sys_tree": sys_tree,
    "devices": devices,
    "sockets": sockets,
    "canary": canary,
    "readonly_bind": readonly_bind,
    "setuid_program": setuid_program,
    "owned_file": owned_file,
    "descriptors": descriptors,
    "working_directory": working_directory,
    "scratch": scratch,
    "inodes": inodes,
}
