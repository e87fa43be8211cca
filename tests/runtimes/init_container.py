"""A minimal container of each runtime at hand, driven over the report socket alone.

Nothing of the package but `ocisbx.init` is used: a hand-written config.json, the runtime started
with posix_spawn, its descriptor 3 the init's end of the socket.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ocisbx.init import cell_path, init_path, protocol, wire

if TYPE_CHECKING:
    from types import TracebackType

_ROOT = Path(__file__).resolve().parents[2]
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON = "/usr/bin/python3"
_CAPABILITY_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
_NAMESPACES = ("pid", "mount", "ipc", "uts", "network", "user")
TIMEOUT_S = 20.0

ReportT = TypeVar("ReportT", bound=protocol.Report)


@dataclass(frozen=True)
class Runtime:
    """A runtime's program and what its command line needs before `run` and after it."""

    name: str
    path: str
    in_cell: bool = False
    global_options: tuple[str, ...] = ()
    pass_options: tuple[str, ...] = ("--preserve-fds", "1")

    @property
    def host_ids(self) -> tuple[int, int]:
        """The ids that the container's 0 is mapped to, as the runtime sees them."""
        return (0, 0) if self.in_cell else (os.geteuid(), os.getegid())


def _native(name: str, path: str) -> Runtime:
    """crun refuses hybrid cgroups unless it sees cgroup2 where it looks for it."""
    return Runtime(name, path, in_cell=name.startswith("crun"))


def _runsc(name: str, path: str) -> Runtime:
    options = ("--network=none", "--ignore-cgroups", "--platform=systrap")
    return Runtime(name, path, global_options=options, pass_options=("--pass-fd=3:3",))


def installed_runtimes() -> list[Runtime]:
    """The system's runc and crun, and what tools/install-runtimes has put into .runtimes/bin."""
    own = str(_ROOT / ".runtimes" / "bin")
    wanted = [
        ("runc-system", "runc", _SYSTEM_PATH, _native),
        ("crun-system", "crun", _SYSTEM_PATH, _native),
        ("runc", "runc", own, _native),
        ("crun", "crun", own, _native),
        ("runsc", "runsc", own, _runsc),
    ]
    return [
        make(name, path)
        for name, program, where, make in wanted
        if (path := shutil.which(program, path=where))
    ]


RUNTIMES = installed_runtimes()
NATIVE = [runtime for runtime in RUNTIMES if runtime.name != "runsc"]


def python(source: str) -> list[str]:
    """The argv of a payload in Python, without site-packages and start-up files."""
    return [_PYTHON, "-I", "-S", "-c", source]


@dataclass
class Bundle:
    """What a test's container is made of."""

    directory: Path
    runtime: Runtime
    argv: list[str]
    env: list[str] = field(default_factory=lambda: ["PATH=/usr/local/bin:/usr/bin:/bin"])
    cwd: str = "/"
    terminal: bool = False
    seccomp: dict[str, Any] | None = None
    capabilities: tuple[str, ...] = ()
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    # Paths of -w, and writable binds: target -> source.
    rules: tuple[str, ...] = ()
    binds: dict[str, Path] = field(default_factory=dict)
    no_new_privileges: bool = True
    # The caller's first subordinate ids, user and group: 1 and more are those (newuidmap(1)).
    subordinate: tuple[int, ...] = ()

    def write(self) -> None:
        rootfs = self.directory / "rootfs"
        for name in ("proc", "dev", "usr", "tmp"):
            (rootfs / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (rootfs / name).symlink_to(f"usr/{name}")
        (rootfs / "ocisbx-init").touch()
        for name, (content, mode) in self.files.items():
            path = rootfs / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(mode)
        (self.directory / "config.json").write_text(json.dumps(self._config()))

    def _config(self) -> dict[str, Any]:
        uid, gid = self.runtime.host_ids
        linux: dict[str, Any] = {
            "namespaces": [{"type": kind} for kind in _NAMESPACES],
            "uidMappings": [{"containerID": 0, "hostID": uid, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": gid, "size": 1}],
        }
        for name, first in zip(("uidMappings", "gidMappings"), self.subordinate, strict=False):
            linux[name].append({"containerID": 1, "hostID": first, "size": 1000})
        if self.seccomp:
            linux["seccomp"] = self.seccomp
        capabilities = list(self.capabilities)
        rules = [word for path in self.rules for word in ("-w", path)]
        return {
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs", "readonly": True},
            "process": {
                "terminal": self.terminal,
                "user": {"uid": 0, "gid": 0},
                "args": ["/ocisbx-init", *rules, "--", *self.argv],
                "env": self.env,
                "cwd": self.cwd,
                "capabilities": dict.fromkeys(_CAPABILITY_SETS, capabilities),
                "noNewPrivileges": self.no_new_privileges,
            },
            "mounts": [*_mounts(), *(_bind(*pair) for pair in self.binds.items())],
            "linux": linux,
        }


def _mounts() -> list[dict[str, Any]]:
    read_only = ["bind", "ro", "nosuid", "nodev"]
    small = ["nosuid", "noexec", "mode=755", "size=64k"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": small},
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
        },
        {
            "destination": "/usr",
            "type": "bind",
            "source": "/usr",
            "options": ["rbind", *read_only[1:]],
        },
        {
            "destination": "/ocisbx-init",
            "type": "bind",
            "source": init_path(),
            "options": read_only,
        },
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
    ]


def _bind(target: str, source: Path) -> dict[str, Any]:
    options = ["rbind", "rw", "nosuid", "nodev"]
    return {"destination": target, "type": "bind", "source": str(source), "options": options}


class Container:
    """One started runtime: its pid, the driver's end of the socket, its exit code at the end."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        driven: bool = True,
        stdio: tuple[int, ...] = (),
        keep_theirs: bool = False,
    ) -> None:
        bundle.write()
        self.bundle = bundle
        self.init_pid = 0
        self.id = f"ocisbx-{uuid.uuid4().hex[:12]}"
        self.sock, self.theirs = wire.report_socketpair()
        self.sock.settimeout(TIMEOUT_S)
        self.pid = self._spawn(self.theirs if driven else None, stdio)
        if not keep_theirs:
            self.theirs.close()
        self.exit_code: int | None = None
        self._orders: socket.socket | None = None

    def _spawn(self, theirs: socket.socket | None, stdio: tuple[int, ...]) -> int:
        runtime = self.bundle.runtime
        argv = [cell_path(), "-u", "-m", *(["-k"] if theirs else []), "--"]
        argv = argv if runtime.in_cell else []
        argv += [runtime.path, "--root", str(self.bundle.directory / "state")]
        argv += [*runtime.global_options, "run", *(runtime.pass_options if theirs else ())]
        argv += ["--bundle", str(self.bundle.directory), self.id]
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(stdio)
        ]
        if theirs:
            actions.append((os.POSIX_SPAWN_DUP2, theirs.fileno(), protocol.REPORT_FD))
        env = {"PATH": _SYSTEM_PATH}
        return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)

    def expect(self, kind: type[ReportT]) -> ReportT:
        received = wire.receive(self.sock)
        assert received is not None, f"hang-up where {kind.__name__} was due; exit {self.wait()}"
        assert isinstance(received.packet, kind), received
        self.init_pid = received.pid
        return received.packet

    def go(self, **descriptors: Any) -> None:
        self.expect(protocol.Ready)
        wire.send_go(self.sock, **descriptors)

    @property
    def orders(self) -> socket.socket:
        """Where further commands are ordered."""
        if self._orders is None:
            self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                wire.send_listen(self.sock, theirs.fileno())
        return self._orders

    def kill(self) -> None:
        """SIGKILL to all of the container, by the runtime."""
        runtime = self.bundle.runtime
        state = str(self.bundle.directory / "state")
        argv = [runtime.path, "--root", state, *runtime.global_options, "kill", self.id, "KILL"]
        os.waitpid(os.posix_spawn(argv[0], argv, {"PATH": _SYSTEM_PATH}), 0)

    def wait(self) -> int:
        """The runtime's exit code, 128+N when a signal ended it."""
        if self.exit_code is None:
            _, status = os.waitpid(self.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            self.exit_code = code if code >= 0 else 128 - code
        return self.exit_code

    def finish(self) -> tuple[protocol.Exited, int]:
        """The report, the go-ahead, the runtime's exit code."""
        report = self.expect(protocol.Exited)
        wire.send_end(self.sock)
        return report, self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sock.close()  # a hang-up: whatever still runs in the container is killed
        self.wait()
        if self._orders is not None:
            self._orders.close()


def run(bundle: Bundle, data: bytes = b"") -> tuple[protocol.Exited, bytes, bytes, int]:
    """One whole call: the report, stdout, stderr, the runtime's exit code."""
    with Container(bundle) as container:
        captured = [_Pipe(), _Pipe()]
        given = _Pipe()
        with given.write, given.read:
            os.write(given.write.fileno(), data)
            container.go(
                stdin=given.read.fileno(),
                stdout=captured[0].write.fileno(),
                stderr=captured[1].write.fileno(),
            )
        out, err = (pipe.drain() for pipe in captured)
        container.expect(protocol.Started)
        report, code = container.finish()
    return report, out, err, code


class _Pipe:
    def __init__(self) -> None:
        read, write = os.pipe()
        self.read, self.write = open(read, "rb"), open(write, "wb", buffering=0)  # noqa: SIM115

    def drain(self) -> bytes:
        self.write.close()
        with self.read:
            return self.read.read()
