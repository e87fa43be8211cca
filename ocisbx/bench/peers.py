"""The peers: every other launcher, each in its best honest configuration."""

from __future__ import annotations

import contextlib
import os
import shlex
import tarfile
import threading
from functools import partial
from typing import TYPE_CHECKING

from ocisbx import command
from ocisbx.bench.launchers import MEMORY_BYTES, PIDS, REFERENCE, Job, Opened, Row
from ocisbx.bench.processes import TIMEOUT_S, end_payloads, held, opened, unique
from ocisbx.errors import RuntimeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Argv = Callable[[Job, Sequence[str]], list[str]]

PATH = command.ENVIRONMENT["PATH"]
_building = threading.Lock()
# The merged /usr: what else a root of the host's programs needs (hier(7)).
LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
# Programs find libraries and each other through these.
ETC = ("/etc/ld.so.cache", "/etc/alternatives")
IMAGE = "ocisbx-bench"


def spawn_argv(_: Job, payload: Sequence[str]) -> list[str]:
    return list(payload)


def bwrap_argv(job: Job, payload: Sequence[str]) -> list[str]:
    argv = [job.program, "--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"]
    argv += ["--clearenv", "--setenv", "PATH", PATH, "--ro-bind", "/usr", "/usr"]
    for name, target in LINKS.items():
        argv += ["--symlink", target, f"/{name}"]
    for path in ETC:
        argv += ["--ro-bind-try", path, path]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    argv += ["--bind", job.workspace, job.workspace, "--chdir", job.workspace]
    return [*argv, "--", *payload]


def unshare_argv(job: Job, payload: Sequence[str]) -> list[str]:
    names = ("user", "pid", "mount", "net", "ipc", "uts", "cgroup")
    options = [f"--{name}" for name in names]
    options += ["--fork", "--kill-child", "--map-root-user", "--mount-proc"]
    return [job.program, *options, "--", *payload]


def firejail_argv(job: Job, payload: Sequence[str]) -> list[str]:
    options = ["--quiet", "--noprofile", "--net=none", "--caps.drop=all", "--nonewprivs"]
    options += ["--private-dev", "--private-tmp", "--ipc-namespace", "--noroot"]
    options += ["--seccomp"] if job.variant != "no-seccomp" else []
    return [job.program, *options, "--", *payload]


def nspawn_argv(job: Job, payload: Sequence[str]) -> list[str]:
    options = ["--quiet", f"--directory={skeleton(job)}", "--read-only", "--bind-ro=/usr"]
    options += [
        "--private-users=pick",
        "--private-users-ownership=off",
        "--private-network",
        "--register=no",
        "--keep-unit",
    ]
    options += ["--as-pid2", "--no-new-privileges=yes", "--drop-capability=all", "--pipe"]
    options += ["--link-journal=no", "--resolv-conf=off", "--timezone=off", f"--machine={unique()}"]
    options += [f"--bind={job.workspace}:{job.workspace}:rootidmap", f"--chdir={job.workspace}"]
    return [job.program, *options, *payload]


def engine_options(job: Job) -> list[str]:
    """What podman and docker are told alike."""
    options = ["--network", "none", "--cap-drop", "ALL", "--read-only", "--log-driver", "none"]
    options += ["--security-opt", "no-new-privileges", "--name", unique()]
    options += ["--volume", "/usr:/usr:ro", "--volume", f"{job.workspace}:{job.workspace}"]
    options += ["--workdir", job.workspace]
    if job.variant == "no-seccomp":
        options += ["--security-opt", "seccomp=unconfined"]
    elif job.variant == "limits":
        options += ["--memory", str(MEMORY_BYTES), "--pids-limit", str(PIDS)]
    return options


def podman_argv(job: Job, payload: Sequence[str]) -> list[str]:
    run = ["run", "--rm", *engine_options(job), "--rootfs", skeleton(job)]
    return [job.program, "--events-backend", "none", *run, *payload]


def docker_argv(job: Job, payload: Sequence[str]) -> list[str]:
    owner = ["--user", f"{os.getuid()}:{os.getgid()}"]
    return [job.program, "run", "--rm", *engine_options(job), *owner, IMAGE, *payload]


def srt_argv(job: Job, payload: Sequence[str]) -> list[str]:
    # Of words it would lose the quotes.
    return [job.program, "--settings", f"{job.scratch}/srt.json", "-c", shlex.join(payload)]


def skeleton(job: Job) -> str:
    """A root without anything but mount points and the links of a merged /usr."""
    root = f"{job.scratch}/root"
    # All lanes ask for it, each in a thread of its own.
    with _building:
        if not os.path.isdir(root):
            for name in ("usr", "proc", "sys", "dev", "tmp", "run", "var", "etc", "root"):
                os.makedirs(f"{root}/{name}")
            os.makedirs(root + job.workspace)
            for name, target in LINKS.items():
                os.symlink(target, f"{root}/{name}")
    return root


@contextlib.contextmanager
def open_peer(argv: Argv, job: Job) -> Iterator[Opened]:
    yield opened(job, lambda _, payload: argv(job, payload))


@contextlib.contextmanager
def open_engine(argv: Argv, job: Job) -> Iterator[Opened]:
    """With the caller's environment, which says where an engine keeps its things."""
    yield opened(job, lambda _, payload: argv(job, payload), os.environ)


@contextlib.contextmanager
def open_docker(job: Job) -> Iterator[Opened]:
    with image(job), open_engine(docker_argv, job) as found:
        yield found


@contextlib.contextmanager
def image(job: Job) -> Iterator[None]:
    """The skeleton as an image of this name."""
    archive = f"{job.scratch}/root.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(skeleton(job), arcname=".")
    ask(job.program, "import", archive, IMAGE)
    try:
        yield
    finally:
        ask(job.program, "image", "rm", "--force", IMAGE)


def ask(*argv: str) -> None:
    """A short command of an engine. Raises RuntimeFailed."""
    done = command.run(argv, timeout_s=TIMEOUT_S, environment=os.environ)
    if not done.status.ok:
        raise RuntimeFailed(
            f"{os.path.basename(argv[0])} {argv[1]} ended with {done.status}",
            why=done.stderr.decode(errors="replace").strip(),
        )


SRT_SETTINGS = (
    '{{"network": {{"allowedDomains": [], "deniedDomains": []}}, '
    '"filesystem": {{"denyRead": [], "allowWrite": ["{workspace}"], "denyWrite": []}}}}\n'
)


@contextlib.contextmanager
def open_srt(job: Job) -> Iterator[Opened]:
    with open(f"{job.scratch}/srt.json", "w", encoding="utf-8") as file:
        file.write(SRT_SETTINGS.format(workspace=job.workspace))
    with open_engine(srt_argv, job) as found:
        yield found


@contextlib.contextmanager
def hold_peer(argv: Argv, job: Job) -> Iterator[None]:
    with held(job, lambda _, payload: argv(job, payload)):
        yield


@contextlib.contextmanager
def hold_engine(argv: Argv, job: Job) -> Iterator[None]:
    names: list[str] = []

    def named(_: int, payload: Sequence[str]) -> list[str]:
        words = argv(job, payload)
        names.append(words[words.index("--name") + 1])
        return words

    with held(job, named, os.environ):
        try:
            yield
        finally:
            # They outlive the client that started them, and are given ten seconds each to end.
            end_payloads(job.mark)
            ask(job.program, "rm", "--force", *names)


@contextlib.contextmanager
def hold_docker(job: Job) -> Iterator[None]:
    with image(job), hold_engine(docker_argv, job):
        yield


FILTERED = frozenset({"default", "no-seccomp"})
ALL_VARIANTS = FILTERED | {"limits"}

PEERS: tuple[Row, ...] = (
    Row(
        REFERENCE,
        "no isolation at all: what every other launcher is compared with",
        partial(open_peer, spawn_argv),
        partial(hold_peer, spawn_argv),
        variants=ALL_VARIANTS,
    ),
    Row(
        "unshare",
        "user, pid, mount, net, ipc, uts and cgroup namespaces and a /proc; the host's files as "
        "they are, all capabilities in the namespace, no seccomp filter",
        partial(open_peer, unshare_argv),
        partial(hold_peer, unshare_argv),
        program="unshare",
    ),
    Row(
        "bwrap",
        "all namespaces, no capabilities, /usr read-only, the workspace writable, /tmp of its own; "
        "no seccomp filter, no cgroup",
        partial(open_peer, bwrap_argv),
        partial(hold_peer, bwrap_argv),
        program="bwrap",
    ),
    Row(
        "firejail",
        "setuid root; no profile, no network, no capabilities, its own seccomp filter, /dev and "
        "/tmp of its own; the host's files as they are",
        partial(open_peer, firejail_argv),
        program="firejail",
        variants=FILTERED,
    ),
    Row(
        "systemd-nspawn",
        "as root; a root of /usr read-only, a user namespace, no network, no capabilities, its own "
        "seccomp filter, not registered with machined",
        partial(open_peer, nspawn_argv),
        program="systemd-nspawn",
    ),
    Row(
        "podman",
        "rootless, its configured runtime, no image (--rootfs), /usr read-only, no network, no "
        "capabilities, its default seccomp profile, no log, no events",
        partial(open_engine, podman_argv),
        partial(hold_engine, podman_argv),
        program="podman",
        # Its runtime is a matter of its configuration.
        version_args=(
            "info",
            "--format",
            "podman {{.Version.Version}}, {{.Host.OCIRuntime.Version}}",
        ),
        variants=ALL_VARIANTS,
    ),
    Row(
        "docker",
        "a daemon of root's, an empty image and /usr read-only, no network, no capabilities, its "
        "default seccomp profile, no log",
        open_docker,
        hold_docker,
        program="docker",
        # Asks the daemon: a client alone is no launcher.
        version_args=("version", "--format", "docker {{.Server.Version}}"),
        variants=ALL_VARIANTS,
    ),
    Row(
        "srt",
        "Anthropic's sandbox runtime: bwrap and a seccomp filter around the host's files, writing "
        "in the workspace only, no network",
        open_srt,
        program="srt",
    ),
)
