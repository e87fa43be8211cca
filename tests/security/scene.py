"""One run of the inside probe, whole or weakened, with a hostile caller around it.

The caller has in its environment what must not get in (tokens, agents, systemd's descriptors), a
directory open that whoever is started would inherit, a file that only it may read, and a listener
at an abstract name. While the probe waits, the host looks at the container's processes in /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import ocisbx
from ocisbx.backends.base import Call, Step
from ocisbx.calls import conclude, run_plan
from ocisbx.errors import RuntimeFailed
from ocisbx.mounts import PER_CALL, PER_CALL_PLACE
from ocisbx.pool.member import Order
from ocisbx.pool.pool import run_in
from ocisbx.presets import MASKED_PATHS_RESTRICTED
from ocisbx.quirks import find_quirks
from tests.box import PYTHON, eventually, nap, running
from tests.security.inside.main import FAILED
from tests.security.templates import rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ocisbx.result import RunResult
    from tests.box import Box
    from tests.security.mutants import Mutant

SECRET = "canary-3f1c9e"
PROBE = "/probe"
# Until a driver gives up on a container whose init never reports, because it has none.
SOON_S = 3.0
STATUS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
          "Seccomp", "NSpid")  # fmt: skip

# What a caller may have in its environment: keys, agents, and what reaches into a runtime
# (linux.md 2.6, H3, H4: LISTEN_FDS and NOTIFY_SOCKET).
HOSTILE_ENVIRONMENT = {
    "OCISBX_CANARY": SECRET,
    "SSH_AUTH_SOCK": "/tmp/agent",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/0/bus",
    "DOCKER_HOST": "unix:///var/run/docker.sock",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "GITHUB_TOKEN": SECRET,
    "LD_PRELOAD_CANARY": SECRET,
    "LISTEN_FDS": "3",
    "LISTEN_FDNAMES": "a:b:c",
    "_OCISBX_PRESERVE_FDS": "5",
    "NOTIFY_SOCKET": "/run/ocisbx-no-such-socket",
}


class NoObservation(Exception):
    """The probe could not look at this: no proof, neither way."""


@dataclass(frozen=True)
class Seen:
    """What was observed: `inside` by the probe, `host` around it."""

    inside: dict[str, Any]
    host: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """One observation. Raises NoObservation."""
        found = self.inside.get(name, self.host.get(name, {FAILED: "never made"}))
        if isinstance(found, dict) and FAILED in found:
            raise NoObservation(f"{name}: {found[FAILED]}")
        return found


@dataclass
class Scene:
    """The hostile surroundings of one run."""

    box: Box
    mark: str
    secret: Path
    probe: Path
    leaked: int
    # Where the workspace is inside.
    place: str = ""
    host: dict[str, Any] = field(default_factory=dict)
    # What the probe waits at: closed, it goes on.
    waiting: list[int] = field(default_factory=list)

    @property
    def report(self) -> Path:
        return self.box.workspace / "seen.json"

    def finish(self) -> None:
        """Let the probe go on to its end."""
        while self.waiting:
            os.close(self.waiting.pop())

    def argv(self) -> tuple[str, ...]:
        arguments = (
            f"{self.place or self.box.workspace}/{self.report.name}",
            self.mark,
            ",".join(MASKED_PATHS_RESTRICTED),
            str(self.secret),
            PROBE,
            self.mark,
        )
        return (*probe_command(PROBE), *arguments)


@contextlib.contextmanager
def surroundings(box: Box) -> Iterator[Scene]:
    """Make them, and take them away."""
    mark = nap()
    private = box.base / "private"
    private.mkdir(mode=0o700)
    secret = private / "secret"
    secret.write_text(SECRET)
    probe = copy_probe(box.base / "probe")
    # For the mutants whose payload is somebody else outside.
    box.workspace.chmod(0o777)
    leaked = os.open(private, os.O_RDONLY | os.O_DIRECTORY)
    os.set_inheritable(leaked, True)  # noqa: FBT003 -- it takes no keyword
    with pytest.MonkeyPatch.context() as environment, socket.socket(socket.AF_UNIX) as listener:
        for name, value in HOSTILE_ENVIRONMENT.items():
            environment.setenv(name, value)
        environment.setenv("LISTEN_PID", str(os.getpid()))
        listener.bind("\0" + mark)
        listener.listen()
        try:
            yield Scene(box, mark, secret, probe, leaked)
        finally:
            os.close(leaked)
            for pid in running(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def probe_command(place: str) -> tuple[str, ...]:
    """The system's Python with the probe that lies at `place`."""
    entry = (
        f"import sys; sys.path.insert(0, {place!r}); "
        "from tests.security.inside.main import main; main()"
    )
    return (PYTHON, "-I", "-S", "-B", "-c", entry)


def copy_probe(base: Path) -> Path:
    """The probe's modules alone, as they are imported: the tree itself stays outside."""
    source = Path(__file__).with_name("inside")
    shutil.copytree(source, base / "tests/security/inside", ignore=lambda *_: ["__pycache__"])
    return base


def look(
    box: Box,
    mutant: Mutant | None = None,
    *,
    way: Callable[[Scene, Call], RunResult] | None = None,
    weakened: Callable[[Scene], AbstractContextManager[None]] | None = None,
) -> Seen:
    """Run the probe once, as the product is or as `mutant` leaves it. `way`: how a call is run,
    when not in a container of its own; `weakened`: steps of that which are."""
    with surroundings(box) as scene:
        steps = weakened if mutant is None else mutant.weakened
        with contextlib.nullcontext() if steps is None else steps(scene):
            _run(scene, mutant, way)
        scene.host["left"] = box.left()
        scene.host["daemons"] = survivors(scene.mark)
        shutil.rmtree(box.bundles, ignore_errors=True)
        made = box.workspace / "made-inside"
        scene.host["owner"] = made.stat().st_uid if made.exists() else None
        scene.host["user_kernel"] = find_quirks(box.runtime.name, box.runtime.version).user_kernel
        inside = json.loads(scene.report.read_text()) if scene.report.exists() else {}
    return Seen(inside, scene.host | host_facts())


def survivors(mark: str) -> list[int]:
    """Processes of the payload that outlive the call by more than a few seconds."""
    eventually(lambda: not running(mark), timeout_s=5.0)
    return running(mark)


def host_facts() -> dict[str, Any]:
    own = "/proc/self/ns"
    return {
        "host_namespaces": {name: os.readlink(f"{own}/{name}") for name in os.listdir(own)},
        "host_name": socket.gethostname(),
        "host_uid": os.getuid(),
        "secret": SECRET,
    }


def sandbox_of(scene: Scene, **fields: Any) -> ocisbx.Sandbox:
    return scene.box.sandbox(volumes=[f"{scene.probe}:{PROBE}:ro"], timeout_s=30, **fields)


def run_cold(scene: Scene, call: Call, mutant: Mutant | None = None) -> RunResult:
    """In a container of its own."""
    plan = sandbox_of(scene).resolve()
    if mutant is not None:
        # What a weakened container writes into its root must not be others' root.
        plan = rewritten(plan._replace(share_root=False, sealed=False), mutant.spec(scene))
        plan = mutant.plan(plan)
    return run_plan(plan, call, audit=False)


def run_pooled(scene: Scene, call: Call) -> RunResult:
    """In a container that was there before the call."""
    return _run_in_member(scene, call, str(scene.box.workspace))


def run_late(scene: Scene, call: Call) -> RunResult:
    """In one whose workspace came with the call."""
    scene.place = PER_CALL_PLACE
    return _run_in_member(scene, call._replace(argv=scene.argv()), PER_CALL)


def _run_in_member(scene: Scene, call: Call, workspace: str) -> RunResult:
    """As `Pool.run` does it, but no successor is started while the host looks around."""
    pool = ocisbx.Pool(sandbox_of(scene, workspace=workspace).config, 1)
    member = pool._make()
    wanted = scene.box.workspace if workspace == PER_CALL else None
    try:
        with pool._sandbox.workspace(wanted) as chosen:
            plan, given = member.plan, None
            if chosen is not None:
                given = chosen.fit(member.workspaces)
                plan = given.late.on(plan)
                call = call._replace(workdir=plan.workdir)
            told = run_in(member, Order(plan, call, workspace=given), None)
        assert told is not None
        return conclude(*told, resolve_s=0.0, audit=False)
    finally:
        member.retire()


def _run(
    scene: Scene, mutant: Mutant | None, way: Callable[[Scene, Call], RunResult] | None
) -> None:
    box = scene.box
    reading, writing = os.pipe()
    scene.waiting.append(writing)

    def on_stdout(_: bytes) -> None:
        try:
            scene.host |= outside(box)
        finally:
            scene.finish()

    call = Call(
        scene.argv(),
        os.environ,
        stdin=reading,
        on_stdout=on_stdout,
        on_step=lambda step: scene.finish() if step is Step.DELETING else None,
        start_timeout_s=None if mutant is None or mutant.reports else SOON_S,
    )
    try:
        result = run_cold(scene, call, mutant) if way is None else way(scene, call)
        scene.host["stdout"] = result.stdout.decode()
    except RuntimeFailed as error:
        # A mutant without the init has nobody who reports; the probe's own file tells.
        if mutant is None or mutant.reports:
            raise
        scene.host["failure"] = str(error)
    finally:
        scene.finish()
        os.close(reading)


def outside(box: Box) -> dict[str, Any]:
    """The container's processes and the call's directories, seen from the host."""
    descendants = psutil.Process().children(recursive=True)
    runtimes = psutil.Process().children()
    inside = [one.pid for one in descendants if depth(one.pid) > depth(os.getpid())]
    return {
        "postures": [found for pid in inside if (found := posture_while_it_lives(pid))],
        "runtime_descriptors": sorted(
            {target for one in runtimes for target in descriptors_of(one.pid)}
        ),
        "runtime_environment": {
            name: value for one in runtimes for name, value in one.environ().items()
        },
        "modes": modes(box),
    }


def depth(pid: int) -> int:
    """How many pid namespaces a process is in; 0 for one that has gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return len(next(line for line in text.splitlines() if line.startswith("NSpid:")).split())


def posture_while_it_lives(pid: int) -> dict[str, Any] | None:
    try:
        return posture(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None


def posture(pid: int) -> dict[str, Any]:
    """One process as /proc shows it to the host."""
    base = Path(f"/proc/{pid}")
    lines = (line.partition(":") for line in (base / "status").read_text().splitlines())
    status = {name: value.split() for name, _, value in lines if name in STATUS}
    try:
        spaces = {name: os.readlink(base / "ns" / name) for name in os.listdir(base / "ns")}
    except PermissionError:
        spaces = {}
    return {
        "status": status,
        "namespaces": spaces,
        "uid_map": (base / "uid_map").read_text().split(),
        "setgroups": (base / "setgroups").read_text().strip(),
    }


def descriptors_of(pid: int) -> list[str]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def modes(box: Box) -> dict[str, int]:
    """Permission bits of the call's directories and of what lies in its bundle."""
    found = {}
    for path in (box.bundles.parent, box.bundles, *box.bundles.glob("*"), *box.bundles.glob("*/*")):
        info = path.lstat()
        if not stat.S_ISLNK(info.st_mode) and path.name not in ("rootfs", "init"):
            found[str(path.relative_to(box.run_directory))] = stat.S_IMODE(info.st_mode)
    return found
