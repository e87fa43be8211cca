"""The default profile in real containers: what it refuses, and that ordinary work goes on.

Debian's runc and crun, unprivileged, with hand-written config.json files; nothing of the package
but the profile is used. /usr and /etc are the host's, read-only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.specgen.seccomp import default_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.runtime

NOBODY_IN_PARTICULAR = 64999  # what root becomes: no account, no subordinate ids
SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PATH = f"{SYSTEM_PATH}:/usr/local/go/bin"
RUNTIMES = [name for name in ("runc", "crun") if shutil.which(name, path=SYSTEM_PATH)]
# crun refuses hybrid cgroups; in namespaces of its own it sees only what it can use.
CELL = (
    *("unshare", "-UmC", "--map-root-user", "sh", "-c"),
    *('mount -t cgroup2 c /sys/fs/cgroup && exec "$@"', "sh"),
)


def _tmpfs(destination: str, *options: str) -> dict[str, object]:
    options = ("nosuid", "nodev", "mode=1777", "size=512m", *options)
    return {"destination": destination, "type": "tmpfs", "source": "tmpfs", "options": options}


def _host(path: str) -> dict[str, object]:
    options = ["bind", "ro", "nosuid", "nodev"]
    return {"destination": path, "type": "bind", "source": path, "options": options}


def _config(command: list[str], host_id: int, seccomp: dict[str, object]) -> dict[str, object]:
    ids = [{"containerID": 0, "hostID": host_id, "size": 1}]
    namespaces = ("pid", "ipc", "uts", "mount", "network", "user")
    dev = {**_tmpfs("/dev"), "options": ["nosuid", "mode=755", "size=64k"]}
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}, dev]
    return {
        "ociVersion": "1.1.0",
        "root": {"path": "rootfs", "readonly": True},
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": command,
            "cwd": "/tmp",
            "env": [f"PATH={PATH}", "HOME=/tmp", "LANG=C.UTF-8"],
            "capabilities": {name: [] for name in SETS},
            "noNewPrivileges": True,
        },
        "mounts": [*mounts, _tmpfs("/dev/shm"), _tmpfs("/tmp"), _host("/usr"), _host("/etc")],
        "linux": {
            "uidMappings": ids,
            "gidMappings": ids,
            "namespaces": [{"type": kind} for kind in namespaces],
            "seccomp": seccomp,
        },
    }


def _profile(*capabilities: str) -> dict[str, object]:
    major, minor = os.uname().release.split(".")[:2]
    return default_profile(os.uname().machine, (int(major), int(minor)), capabilities)


@pytest.fixture
def bundle() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ocisbx-seccomp-") as name:
        path = Path(name)
        for directory in ("usr", "etc", "proc", "dev", "tmp"):
            (path / "rootfs" / directory).mkdir(parents=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            (path / "rootfs" / link).symlink_to(f"usr/{link}")
        yield path


def _run(
    runtime: str, bundle: Path, command: list[str], seccomp: dict[str, object] | None = None
) -> subprocess.CompletedProcess[str]:
    become: tuple[str, ...] = ()
    user = os.geteuid()
    if user == 0:
        user = NOBODY_IN_PARTICULAR
        for path in (bundle, *bundle.rglob("*")):
            os.lchown(path, user, user)
        become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
    cell = CELL if runtime == "crun" else ()
    config = _config(command, 0 if cell else user, seccomp or _profile())
    (bundle / "config.json").write_text(json.dumps(config))
    state = str(bundle / "state")
    return subprocess.run(
        [*become, *cell, runtime, "--root", state, "run", "--bundle", str(bundle), bundle.name],
        env={"PATH": SYSTEM_PATH, "HOME": "/tmp", "XDG_RUNTIME_DIR": str(bundle)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


# (call's number on x86_64, arguments, errnos that may answer). Arguments are such that the kernel
# itself would say something else.
E, NOSYS, FAMILY = {1}, {38}, {97}
CALLS: dict[str, tuple[int, tuple[int, ...], set[int]]] = {
    "clone(CLONE_NEWUSER)": (56, (0x10000000,), E),
    "mount": (165, (0, 0, 0, 0, 0), E),
    "umount2": (166, (0, 0), E),
    "pivot_root": (155, (0, 0), E),
    "chroot": (161, (0,), E),
    "unshare(CLONE_NEWUSER)": (272, (0x10000000,), E),
    "setns": (308, (-1, 0), E),
    "clone(CLONE_NEWNET|CLONE_NEWPID)": (56, (0x60000000,), E),
    "clone3": (435, (0, 0), NOSYS),
    "open_tree": (428, (-1, 0, 0), NOSYS),
    "fsopen": (430, (0, 0), NOSYS),
    "bpf": (321, (0, 0, 0), NOSYS),
    "perf_event_open": (298, (0, 0, -1, -1, 0), NOSYS),
    "userfaultfd": (323, (0xFFFF,), NOSYS),
    "io_uring_setup": (425, (0, 0), NOSYS),
    "keyctl": (250, (0, 0, 0), NOSYS),
    "add_key": (248, (0, 0, 0, 0, 0), NOSYS),
    "open_by_handle_at": (304, (-1, 0, 0), NOSYS),
    "vmsplice": (278, (-1, 0, 0, 0), NOSYS),
    "modify_ldt": (154, (0, 0, 0), NOSYS),
    "an unknown call": (900, (0,), NOSYS),
    "personality(ADDR_NO_RANDOMIZE)": (135, (0x40000,), NOSYS),
    "prlimit(init)": (302, (1, 7, 0, 0), NOSYS),
    "prlimit(self)": (302, (0, 7, 0, 0), {0}),
    "personality(query)": (135, (0xFFFFFFFF,), {0}),
    "ioctl(TIOCSTI)": (16, (0, 0x5412, 0), E),
    "ioctl(TIOCSTI, high bits)": (16, (0, 0x100005412, 0), E),
    "ioctl(TIOCLINUX)": (16, (0, 0x541C, 0), E),
    "ioctl(TIOCLINUX, sign bits)": (16, (0, -1 << 32 | 0x541C, 0), E),
    "ioctl(TCGETS)": (16, (0, 0x5401, 0), {25}),
    "ioctl(FIOCLEX)": (16, (0, 0x5451, 0), {0}),
    "ioctl(FIGETBSZ)": (16, (-1, 2, 0), {9}),
    "socket(AF_UNIX)": (41, (1, 1, 0), {0}),
    "socket(AF_INET6)": (41, (10, 1, 0), {0, 97}),
    "socket(AF_NETLINK, ROUTE)": (41, (16, 3, 0), {0}),
    "socket(AF_NETLINK, AUDIT)": (41, (16, 3, 9), FAMILY),
    "socket(AF_ALG)": (41, (38, 5, 0), FAMILY),
    "socket(AF_ALG, high bits)": (41, (1 << 32 | 38, 5, 0), FAMILY),
    "socket(AF_VSOCK)": (41, (40, 1, 0), FAMILY),
    "socket(AF_PACKET)": (41, (17, 3, 0), FAMILY),
    "socket(AF_XDP)": (41, (44, 3, 0), FAMILY),
    "socket(AF_RDS)": (41, (21, 5, 0), FAMILY),
    "socketpair(AF_TIPC)": (53, (30, 1, 0, 0), {95}),
}
PROBE = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = {}
for name, (number, arguments, _) in json.loads(sys.argv[1]).items():
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result == 0 and name.startswith("clone("):
        libc._exit(0)
    answers[name] = ctypes.get_errno() if result == -1 else 0
status = open("/proc/self/status").read()
answers["Seccomp"] = status.split("Seccomp:")[1].split()[0]
print(json.dumps(answers))
"""
on_x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")


@on_x86_64
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_answers_inside(runtime: str, bundle: Path) -> None:
    asked = json.dumps({name: (*call[:2], 0) for name, call in CALLS.items()})
    done = _run(runtime, bundle, ["/usr/bin/python3", "-c", PROBE, asked])
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers.pop("Seccomp") == "2"
    wrong = {n: a for n, a in answers.items() if a not in CALLS[n][2]}
    assert not wrong, done.stdout


# x32's getpid, and int 0x80 with i386's getpid, each in a child of its own.
FOREIGN = """
import ctypes, mmap, os, sys
CODE = {
    "x32": b"\\xb8\\x27\\x00\\x00\\x40\\x0f\\x05\\xc3",
    "i386": b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3",
}[sys.argv[1]]
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(CODE)
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
child = os.fork()
if child == 0:
    call()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@on_x86_64
def test_the_answers_are_the_filters_own(bundle: Path) -> None:
    """The kernel alone says something else for each refused call: the test above can fail."""
    asked = {name: (*call[:2], 0) for name, call in CALLS.items() if call[2] in (E, NOSYS)}
    everything: dict[str, object] = {"defaultAction": "SCMP_ACT_ALLOW"}
    command = ["/usr/bin/python3", "-c", PROBE, json.dumps(asked)]
    done = _run(RUNTIMES[0], bundle, command, everything)
    answers = json.loads(done.stdout)
    same = {name for name in asked if answers.get(name) in CALLS[name][2]}
    assert same == {"pivot_root", "an unknown call"}, done.stdout


@on_x86_64
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("abi", ["i386", "x32"])
def test_calls_of_another_abi_die(runtime: str, bundle: Path, abi: str) -> None:
    done = _run(runtime, bundle, ["/usr/bin/python3", "-c", FOREIGN, abi])
    assert done.stdout.strip() == str(-signal.SIGSYS), done.stderr


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_names_that_an_old_libseccomp_does_not_know_are_skipped(runtime: str, bundle: Path) -> None:
    profile: dict[str, Any] = _profile()
    profile["syscalls"].append({"names": ["no_such_call"], "action": "SCMP_ACT_ALLOW"})
    done = _run(runtime, bundle, ["/usr/bin/true"], profile)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_granted_profile_loads(runtime: str, bundle: Path) -> None:
    profile = _profile("CAP_SYS_ADMIN", "CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_SYS_PTRACE")
    done = _run(runtime, bundle, ["/usr/bin/unshare", "--user", "/usr/bin/true"], profile)
    assert done.returncode == 0, done.stderr


PYTHON = """
import concurrent.futures as f, multiprocessing as m, socket, ssl, sqlite3, subprocess, threading
def square(n): return n * n
if __name__ == "__main__":
    with f.ThreadPoolExecutor(8) as pool: assert sum(pool.map(square, range(100))) == 328350
    for method in ("fork", "spawn", "forkserver"):
        with m.get_context(method).Pool(2) as pool:
            assert sum(pool.map(square, range(10))) == 285
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
    assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
    print("works")
"""
JAVA = """
public class T { public static void main(String[] a) throws Exception {
  Thread t = new Thread(() -> System.out.println("works")); t.start(); t.join();
  new ProcessBuilder("true").start().waitFor(); } }
"""
# tool -> a script for sh; each ends with "works" on its standard output.
WORK = {
    "python3": f"cat >t.py <<'X'\n{PYTHON}\nX\npython3 t.py",
    "node": """
        node -e 'const {Worker} = require("worker_threads"), c = require("child_process");
        require("fs").promises.writeFile("f", "1").then(() =>
        new Worker("require(\\"child_process\\").execSync(\\"true\\")", {eval: true})
        .on("exit", code => console.log(code ? code : c.execSync("echo works").toString())))'
        """,
    "git": """
        git init -q a && cd a && git config user.email a@b && git config user.name a &&
        echo x >f && git add f && git commit -qm m && git clone -q . ../b && git -C ../b fsck &&
        git -C ../b gc -q && echo works
        """,
    "gcc": """
        printf '#include <pthread.h>\\n#include <stdio.h>\\nstatic void *f(void *p) { return p; }\\n
        int main(void) { pthread_t t; return pthread_create(&t, 0, f, 0) || pthread_join(t, 0)
        || puts("works") < 0; }' >t.c && gcc -O2 -pipe -o t t.c -lpthread && ./t
        """,
    "make": """
        printf 'all: a b c d\\na b c d:\\n\\tsleep 0.1; date >$@\\n' >Makefile &&
        make -j4 >/dev/null && test -s d && echo works
        """,
    "sqlite3": """
        sqlite3 t.db 'pragma journal_mode=wal; create table t(n); insert into t values(42);
        vacuum; pragma integrity_check' && echo works
        """,
    "go": """
        printf 'package main\\nfunc main() { c := make(chan int); go func() { c <- 1 }()
        <-c; println("works") }' >t.go && go build -o t t.go && ./t 2>&1
        """,
    "java": f"cat >T.java <<'X'\n{JAVA}\nX\njava -Xmx200m T.java",
    "tar": "mkdir -p d/e && echo x >d/e/f && tar czf t.tgz d && tar xzf t.tgz && echo works",
    "ip": "ip -o addr show lo | grep -q LOOPBACK || ip -o link show lo >/dev/null && echo works",
}
HERE = [tool for tool in WORK if shutil.which(tool, path=PATH)]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("tool", HERE)
def test_ordinary_work_goes_on(runtime: str, tool: str, bundle: Path) -> None:
    done = _run(runtime, bundle, ["/usr/bin/sh", "-ec", WORK[tool]])
    assert done.stdout.strip().endswith("works"), done.stdout + done.stderr
    assert done.returncode == 0
