"""What ocisbx is compared with: programs started by posix_spawn, in the same namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ocisbx import Sandbox
from ocisbx.backends.oci import box_for
from ocisbx.backends.placeholders import hold
from ocisbx.bundle.covers import shared_covers
from ocisbx.bundle.directory import BundleDirectory
from ocisbx.init import cell_path
from ocisbx.runtime.client import CELL_ARGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ocisbx.plan import Plan

# Nothing of the caller's, as ocisbx starts a runtime.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


class Ended(NamedTuple):
    """What one program took; `cpu_s` with everything that it waited for."""

    wall_s: float
    cpu_s: float


class Spawner:
    """A long-lived benchmarks/spawner.py, in the namespaces of a cell ("none", "mount", "user")."""

    def __init__(self, cell: str = "none") -> None:
        argv = [sys.executable, str(Path(__file__).with_name("spawner.py"))]
        if cell != "none":
            argv = [cell_path(), *CELL_ARGS[cell], "--", *argv]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def time(self, argv: list[str], environment: Mapping[str, str] = ENVIRONMENT) -> Ended:
        """From posix_spawn to the end of a program, which has to succeed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.dumps({"argv": argv, "environment": dict(environment)})
        self._process.stdin.write(request.encode() + b"\n")
        self._process.stdin.flush()
        elapsed_s, cpu_s, status = json.loads(self._process.stdout.readline())
        if status != 0:
            raise SystemExit(f"{argv} ended with {status}")
        return Ended(elapsed_s, cpu_s)


@contextlib.contextmanager
def bare_runtime(
    runtime: str,
    directory: str,
    **fields: Any,  # noqa: ANN401 -- those of SandboxConfig
) -> Iterator[Callable[[], Ended]]:
    """Yield what times `runtime run` of `true`, on the bundle that SandboxConfig(fields) gives."""
    plan = Sandbox(runtime={"names": [runtime]}, **fields).resolve()
    # As ocisbx does it: a cgroup with the limits, and below it the runtime's own.
    box = None if plan.cgroup is None else box_for(plan.cgroup, f"bare-{os.getpid()}")
    bundle = _bundle(plan, directory, "" if box is None else box.inner)
    state = ["--root", f"{directory}/state", "--log", f"{directory}/log", "--log-format", "json"]
    argv = [plan.runtime.path, *state, *plan.runtime_args, "run", "--bundle", bundle.path, "bare"]
    with hold(plan.placeholders), Spawner(plan.cell) as spawner:
        if box is not None:
            box.make(with_inner=False)
        try:
            yield lambda: spawner.time(argv)
        finally:
            assert box is None or box.remove()


def _bundle(plan: Plan, directory: str, cgroup: str) -> BundleDirectory:
    """The bundle of `plan`, but for the id; it serves every call in turn."""
    bundle = BundleDirectory(f"{directory}/bundles/bare")
    bundle.create(0o700)
    bundle.link(shared_covers() if plan.covers else {})
    bundle.configure(
        plan.template.fill(
            root=bundle.make_root(plan),
            argv=["true"],
            environment=plan.payload_environment(os.environ),
            cgroup=cgroup,
        )
    )
    return bundle
