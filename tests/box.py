"""A place of one's own for sandboxes under test: directories, a runtime, and what must be left.

Shared by tests/contract (every runtime, every promise) and tests/runtimes (faults, soak).
"""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

import ocisbx
from ocisbx.probe.cgroups import find_mount
from ocisbx.probe.gather import subordinate_ids
from ocisbx.probe.processes import command_line, processes
from ocisbx.probe.runtimes import find_runtimes
from ocisbx.quirks import LACKS, Lack, find_quirks, lacks, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ocisbx.host import RuntimeBinary

# gVisor has systrap since 2023-05.
SYSTRAP_SINCE = (20230501,)


def _platforms(found: RuntimeBinary) -> tuple[str | None, ...]:
    if found.name != "runsc":
        return (None,)
    version = parse_version(found.version)
    return ("ptrace",) if version and version < SYSTRAP_SINCE else ("systrap", "ptrace")


FOUND = find_runtimes()
RUNTIMES = tuple(
    found.model_copy(update={"platform": platform})
    for found in FOUND
    for platform in _platforms(found)
)
RUNTIME_IDS = tuple(
    "-".join(filter(None, (found.name, found.version, found.platform))) for found in RUNTIMES
)


def newest(kind: str) -> list[RuntimeBinary]:
    """The newest of this name, on its default platform; empty where none is found."""
    found = [runtime for runtime in RUNTIMES if runtime.name == kind]
    return sorted(found, key=lambda one: (parse_version(one.version), one.platform or ""))[-1:]


# What a sealed copy of a runtime is called.
SEALED = tuple(f"/memfd:{os.path.basename(found.path)} " for found in RUNTIMES)
PATIENCE_S = 20.0
PYTHON = "/usr/bin/python3"


@dataclass
class Box:
    """Sandboxes on one runtime, with directories of their own below `base`."""

    base: Path
    runtime: RuntimeBinary
    cache: Path
    workspace: Path = field(init=False)
    run_directory: Path = field(init=False)

    def __post_init__(self) -> None:
        self.workspace = self.base / "ws"
        self.run_directory = self.base / "run"
        for path in (self.workspace, self.run_directory, self.base / "state"):
            path.mkdir(mode=0o700)

    @property
    def bundles(self) -> Path:
        return self.run_directory / "ocisbx" / "bundles"

    @property
    def environment(self) -> dict[str, str]:
        """What points ocisbx at these directories."""
        return {
            "XDG_RUNTIME_DIR": str(self.run_directory),
            "XDG_STATE_HOME": f"{self.base}/state",
            "XDG_CACHE_HOME": str(self.cache),
        }

    def sandbox(self, **fields: Any) -> ocisbx.Sandbox:
        runtime = {"names": [self.runtime.path], "platform": self.runtime.platform}
        wanted = {"runtime": runtime, "workspace": str(self.workspace)}
        return ocisbx.Sandbox(**(wanted | fields))

    def session(self, **options: Any) -> ocisbx.Session:
        """A session on this runtime; `options` of Session, the rest fields of SandboxConfig."""
        runtime = {"names": [self.runtime.path], "platform": self.runtime.platform}
        workspace = {} if "worktree" in options else {"workspace": str(self.workspace)}
        return ocisbx.Session(**({"runtime": runtime} | workspace | options))

    def run(self, command: list[str], **options: Any) -> ocisbx.RunResult:
        """One run; `options` of Sandbox.run, the rest fields of SandboxConfig."""
        names = ("input", "name", "on_stdout", "on_stderr")
        call = {name: options.pop(name) for name in names if name in options}
        return self.sandbox(**options).run(command, **call)

    def sh(self, script: str, **options: Any) -> ocisbx.RunResult:
        return self.run(["sh", "-c", script], **options)

    def python(self, script: str, *arguments: str, **options: Any) -> ocisbx.RunResult:
        return self.run([PYTHON, "-I", "-S", "-c", script, *arguments], **options)

    def text(self, script: str, **options: Any) -> str:
        """The output of a shell script that has to succeed."""
        result = self.sh(script, **options)
        assert result.exit_code == 0, (result.termination, result.exit_code, result.stderr)
        return result.stdout.decode()

    def lacks(self, promise: str) -> Lack | None:
        """What the quirks data says in place of this promise; None: the runtime keeps it."""
        assert promise in {lack.promise for lack in LACKS}
        return lacks(self.runtime.name, self.runtime.version).get(promise)

    @property
    def maps_others(self) -> bool:
        """Whether another id than 0 can be the payload's."""
        if find_quirks(self.runtime.name, self.runtime.version).maps_any_id:
            return True
        alone = self.lacks("--user names any id that is mapped") and find_mount()[0] != "unified"
        given = (subordinate_ids(f"/etc/{name}", os.getuid()) for name in ("subuid", "subgid"))
        return not alone and shutil.which("newuidmap") is not None and all(given)

    def serving(self) -> list[int]:
        """The processes of a runtime that works for this box: all that the host sees of gVisor."""
        return running(str(self.run_directory))

    def left(self) -> list[str]:
        """What a call left behind: bundles, names, registers of placeholders, processes."""
        found = [str(path) for path in self.bundles.glob("*")]
        found += [str(path) for path in (self.run_directory / "ocisbx" / "names").glob("*")]
        found += [str(path) for path in (self.run_directory / "ocisbx" / "placeholders").glob("*")]
        mark = os.fsencode(self.run_directory)
        for pid in processes():
            words = command_line(pid)
            if pid != os.getpid() and any(mark in word for word in words):
                found.append(f"{pid}: {words!r}")
        return found


def nap() -> str:
    """A time to sleep by which its process is found: of one length, so that none is in another."""
    return f"86{uuid.uuid4().int % 10**9:09}"


def running(mark: str) -> list[int]:
    """The processes of this machine whose arguments hold `mark`."""
    return [
        pid
        for pid in processes()
        if pid != os.getpid() and any(mark.encode() in word for word in command_line(pid))
    ]


def eventually(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def descriptors() -> list[str]:
    """What this process has open; the sealed copy of a runtime is kept for the process's life."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not target.startswith(SEALED):
            found.append(f"{name} {target}")
    return sorted(found)


def nothing_leaks(box: Box) -> Iterator[None]:
    """Around a test: no descriptor, thread, child, bundle, name or process is left."""
    before, threads = descriptors(), threading.active_count()
    yield
    gc.collect()
    assert descriptors() == before, (descriptors(), before)
    # A thread ends a moment after it has handed over its result.
    assert eventually(lambda: threading.active_count() == threads)
    assert psutil.Process().children() == []
    assert box.left() == []
