"""What a container sees by default: the system's programs, nothing of the caller's, little else."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.container.view import ETC_PATTERNS
from ocisbx.errors import Unsupported

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

SEE = """
import json, os, stat
mounts = []
for line in open("/proc/self/mountinfo"):
    left, right = line.rstrip("\\n").split(" - ")
    fields = left.split(" ")
    mounts.append({"root": fields[3], "target": fields[4], "options": fields[5].split(","),
                   "propagation": [f for f in fields[6:] if f], "type": right.split(" ")[0],
                   "super": right.split(" ")[2].split(",")})
def names(path):
    return sorted(os.listdir(path))
sockets = []
for top, directories, files in os.walk("/"):
    directories[:] = [d for d in directories if os.path.join(top, d) not in ("/proc", "/usr")]
    paths = [os.path.join(top, f) for f in files]
    sockets += [path for path in paths if stat.S_ISSOCK(os.lstat(path).st_mode)]
lines = [line for line in open("/proc/self/status") if ":\\t" in line]
statuses = dict(line.rstrip("\\n").split(":\\t", 1) for line in lines)
places = ("/", "/etc", "/dev", "/run", "/var", "/mnt", "/tmp", "/root", "/dev/shm")
print(json.dumps({
    "mounts": mounts, "status": statuses, "sockets": sockets,
    "names": {d: names(d) for d in places},
    "home": os.environ["HOME"], "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "pids": [int(p) for p in names("/proc") if p.isdigit()], "hostname": os.uname().nodename,
    "namespaces": {n: os.readlink(f"/proc/self/ns/{n}") for n in names("/proc/self/ns")},
    "cgroup": open("/proc/self/cgroup").read(),
}))
"""

SCRATCH = {"/tmp": 1 << 30, "/root": 1 << 30, "/dev/shm": 256 << 20, "/dev": 64 << 10}
DEVICES = {"full", "null", "random", "tty", "urandom", "zero"}
LINKS_AND_MOUNTS = {"core", "fd", "ptmx", "pts", "shm", "stderr", "stdin", "stdout", "mqueue"}


DEV_AND_SYS = "/dev holds the default devices only, and there is no /sys"
FLAGS = "every mount shows nosuid and nodev"
INODES = "tmpfs have a bound on inodes"
NAMESPACES = "namespaces are the host kernel's"
STATUS = "/proc/self/status tells of no_new_privs and ambient capabilities"


def look(box: Box, **fields: Any) -> dict[str, Any]:
    result = box.python(SEE, **fields)
    assert result.exit_code == 0, result.stderr
    seen: dict[str, Any] = json.loads(result.stdout)
    return seen


def test_nothing_of_the_host_but_its_system(box: Box) -> None:
    (box.workspace / "mine").touch()
    seen = look(box)
    names = seen["names"]
    own = {"sys"} if box.lacks(DEV_AND_SYS) else set()
    assert set(names["/"]) - own <= {
        "bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "dev", "proc", "tmp",
        "run", "var", "mnt", "root", ".ocisbx",
    }  # fmt: skip
    assert names["/run"] == names["/mnt"] == names["/root"] == names["/dev/shm"] == []
    assert names["/var"] == ["tmp"]
    # Only the way to the workspace.
    assert names["/tmp"] == [box.workspace.parts[2]]
    assert seen["sockets"] == []


def test_etc_is_cut(box: Box) -> None:
    from fnmatch import fnmatchcase  # noqa: PLC0415 -- for one test

    generated = {"passwd", "group", "nsswitch.conf", "hosts", "hostname"}
    shown = set(look(box)["names"]["/etc"])
    assert generated <= shown
    for name in shown - generated:
        assert any(fnmatchcase(name, row[0].split("/")[0]) for row in ETC_PATTERNS), name
    assert not shown & {"shadow", "sudoers", "ssh", "fstab", "resolv.conf", "machine-id"}
    host_names = {line.split(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    lines = box.text("cat /etc/passwd").splitlines()
    assert {line.split(":")[0] for line in lines} == {"root", "nobody"} <= host_names


def test_scratch_is_bounded_memory(box: Box) -> None:
    seen = look(box)
    tmpfs = {mount["target"]: mount for mount in seen["mounts"] if mount["type"] == "tmpfs"}
    for target, size in SCRATCH.items():
        if target == "/dev" and box.lacks(DEV_AND_SYS):
            continue
        assert {f"size={size >> 10}k", f"size={size}"} & set(tmpfs[target]["super"]), target
        bounded = any(option.startswith("nr_inodes=") for option in tmpfs[target]["super"])
        assert bounded != bool(box.lacks(INODES)), target
    assert seen["home"] == "/root"
    script = (
        "import os\n"
        "for d in (os.environ['HOME'], '/tmp', '/dev/shm'):\n"
        "    open(f'{d}/a', 'w').close(); print(oct(os.stat(d).st_mode & 0o7777))\n"
    )
    assert box.python(script).stdout == b"0o700\n0o1777\n0o1777\n"


def test_every_mount_is_closed(box: Box) -> None:
    """nosuid and nodev wherever something can lie; read-only but for scratch and the workspace."""
    (box.base / "volume").mkdir()
    seen = look(box, volumes=[f"{box.base}/volume:/volume:ro"])
    writable = {*SCRATCH, "/proc", "/dev/pts", str(box.workspace)}
    for mount in seen["mounts"]:
        target, options = mount["target"], set(mount["options"])
        assert not mount["propagation"], mount
        if mount["type"] == "sysfs" and box.lacks(DEV_AND_SYS):
            continue
        if target == "/" or target.startswith(("/dev/", "/proc/")):
            continue
        if not box.lacks(FLAGS):
            assert "nosuid" in options, mount
            assert "nodev" in options or target == "/dev", mount
        assert ("ro" in options) == (target not in writable), mount
    root = next(mount for mount in reversed(seen["mounts"]) if mount["target"] == "/")
    assert "ro" in root["options"]


def test_the_root_cannot_be_written(box: Box) -> None:
    script = (
        "for d in / /etc /usr /usr/bin /bin /run /var /.ocisbx /mnt /dev /proc /proc/sys/kernel; do"
        " touch $d/ocisbx-was-here 2>/dev/null && echo $d; done; :"
    )
    # /dev is a tmpfs of the container's own.
    assert box.text(script).split() in ([], ["/dev"])
    for path in ("/etc/passwd", "/usr/bin/env", "/.ocisbx/init", "/proc/sysrq-trigger"):
        assert box.sh(f"echo x >>{path}").exit_code != 0, path


def test_dev_is_minimal(box: Box) -> None:
    names = set(look(box)["names"]["/dev"])
    own = {"char", "fuse", "net"} if box.lacks(DEV_AND_SYS) else set()
    assert DEVICES <= names - own <= DEVICES | LINKS_AND_MOUNTS
    text = box.text("echo x >/dev/null; head -c 4 /dev/zero | od -An -tx1; cd /dev/pts; echo *")
    assert text.split() == ["00", "00", "00", "00", "ptmx"]


def test_processes_and_namespaces_of_its_own(box: Box) -> None:
    seen = look(box)
    assert len(seen["pids"]) <= 3
    assert 1 in seen["pids"]
    assert seen["hostname"] == "sandbox"
    own = {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}
    for name in ("mnt", "pid", "user", "net", "ipc", "uts", "cgroup"):
        if name in seen["namespaces"] or not box.lacks(NAMESPACES):
            assert seen["namespaces"][name] != own[name], name
    assert all(line.endswith(":/") for line in seen["cgroup"].splitlines() if line.startswith("0:"))


def test_no_rights(box: Box) -> None:
    status = look(box)["status"]
    untold = ("NoNewPrivs", "CapAmb") if box.lacks(STATUS) else ()
    assert not set(untold) & set(status)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert name in untold or int(status[name], 16) == 0, name
    assert "NoNewPrivs" in untold or status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Groups"].split() in ([], ["0"], ["0", "65534"], ["65534"])


def test_masked_and_readonly_paths(box: Box) -> None:
    script = (
        "for f in kallsyms keys interrupts timer_list; do cat /proc/$f 2>/dev/null; done;"
        "echo 1 2>/dev/null >/proc/sys/kernel/panic && echo written; :"
    )
    assert box.text(script) == ""


def test_sockets_of_the_caller_cannot_be_reached(box: Box) -> None:
    """Neither by path nor, without network, by an abstract name."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as abstract:
        name = f"ocisbx-proof-{os.getpid()}"
        listener.bind(f"/tmp/{name}")
        abstract.bind(f"\0{name}")
        listener.listen()
        abstract.listen()
        script = (
            "import socket, sys\n"
            "for path in ('/tmp/' + sys.argv[1], chr(0) + sys.argv[1]):\n"
            "    s = socket.socket(socket.AF_UNIX)\n"
            "    try: s.connect(path); print('connected')\n"
            "    except OSError as e: print(type(e).__name__)\n"
        )
        try:
            words = box.python(script, name).stdout.split()
        finally:
            os.unlink(f"/tmp/{name}")
    assert words == [b"FileNotFoundError", b"ConnectionRefusedError"]


def test_no_setuid_program_gains_anything(box: Box) -> None:
    (box.workspace / "suid").write_bytes(Path("/usr/bin/id").read_bytes())
    (box.workspace / "suid").chmod(0o6755)
    assert box.text("./suid -u") == "0\n"
    assert box.sh("mount -t tmpfs t /mnt").exit_code != 0
    made = box.sh("mknod /tmp/x b 8 0").exit_code == 0
    assert made == bool(box.lacks("mknod(2) of a device is refused"))
    assert box.sh("mknod /tmp/x b 8 0; cat /tmp/x").exit_code != 0
    assert box.sh("unshare -Ur true").exit_code != 0


def test_network_none_is_loopback_up_and_nothing_else(box: Box) -> None:
    script = (
        "import os, socket\n"
        "print([name for _, name in socket.if_nameindex()])\n"
        "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())\n"
        "print('up')\n"
        "try: socket.create_connection(('10.255.255.1', 80), 2)\n"
        "except OSError as e: print(e.strerror)\n"
    )
    lines = box.python(script).stdout.decode().splitlines()
    assert lines[:2] == ["['lo']", "up"]
    assert lines[2:] in (["Network is unreachable"], ["No route to host"])


def test_network_host_is_shared(box: Box) -> None:
    if box.lacks("network host"):
        with pytest.raises(Unsupported, match="network host cannot be had here"):
            box.run(["true"], network="host")
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
        port = str(server.getsockname()[1])
        assert box.python(script, port, network="host").exit_code == 0
        assert box.python(script, port).exit_code == 1
    own = os.readlink("/proc/self/ns/net")
    shared = box.text("readlink /proc/self/ns/net", network="host") == own + "\n"
    assert shared != bool(box.lacks(NAMESPACES))
    names = json.dumps(look(box, network="host")["names"]["/etc"])
    assert ("resolv.conf" in names) == os.path.isfile("/etc/resolv.conf")
