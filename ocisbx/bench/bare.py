"""A bare runtime, started on the bundle that ocisbx would make, but without our init.

The best that can be had of a runtime: its stock binary, one `run` in the foreground, its state
beside the bundle, and where it needs namespaces (crun on hybrid cgroups) these are entered once,
by a second worker that measures there.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from ocisbx.backends.oci import box_for
from ocisbx.backends.placeholders import hold
from ocisbx.bench.launchers import VARIANTS, Job, Opened, Row
from ocisbx.bench.processes import held, opened, payload_of, unique
from ocisbx.bundle.covers import shared_covers
from ocisbx.bundle.directory import BundleDirectory
from ocisbx.cgroup.box import INNER
from ocisbx.init import cell_path
from ocisbx.places import ensure, find_places
from ocisbx.quirks import find_quirks
from ocisbx.runtime.client import CELL_ARGS, RuntimeClient
from ocisbx.sandbox.sandbox import Sandbox
from ocisbx.specgen.mounts import INIT_TARGET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ocisbx.bench.processes import MakeArgv
    from ocisbx.plan import Plan

LANES_FILE = "lanes.json"
ID = "{id}"


@contextlib.contextmanager
def prepared(job: Job) -> Iterator[list[str]]:
    """Make a bundle for each lane; yields the words that lead into the runtime's namespaces."""
    plan = Sandbox(**job.fields).resolve()
    places = find_places()
    # What containers share is locked there.
    for path in (places.runtime, places.bundles):
        ensure(path)
    with contextlib.ExitStack() as stack:
        stack.enter_context(hold(plan.placeholders))
        payload = payload_of(job)
        lanes = [
            stack.enter_context(lane(plan, job.scratch, f"bare-{os.getpid()}-{number}", payload))
            for number in range(job.lanes)
        ]
        with open(f"{job.scratch}/{LANES_FILE}", "w", encoding="utf-8") as file:
            json.dump(lanes, file)
        yield [] if plan.cell == "none" else [cell_path(), *CELL_ARGS[plan.cell], "--"]


@contextlib.contextmanager
def lane(
    plan: Plan,
    scratch: str,
    name: str,
    payload: Sequence[str],
    *,
    console: str | None = None,
    init: bool = False,
) -> Iterator[list[str]]:
    """The command line of one call, with ID for the container's: a bundle, and a cgroup with the
    limits where ocisbx makes one, of this lane's own. `console`: the socket for its terminal;
    `init`: with our process 1, which then has no driver."""
    quirks = find_quirks(plan.runtime.name, plan.runtime.version)
    box = None if plan.cgroup is None else box_for(plan.cgroup, name)
    bundle = BundleDirectory(f"{scratch}/bundles/{name}")
    bundle.create(0o700)
    bundle.link(shared_covers() if plan.covers else {})
    text = plan.template.fill(
        root=bundle.make_root(plan),
        argv=payload,
        environment=plan.payload_environment(os.environ),
        cgroup=f"/ocisbx-{name}" if box is None else box.inner,
    )
    document = json.loads(text)
    bundle.configure(json.dumps(placed(document if init else without_init(document), bundle.path)))
    client = RuntimeClient(
        plan.runtime.path, quirks, f"{scratch}/state", bundle.log, args=plan.runtime_args
    )
    argv = client.run_args(ID, bundle.path, socket=False, console=console)
    if box is None:
        yield argv
        return
    box.make(with_inner=quirks.enters_cgroup)
    inner = f"{box.path}/{INNER}"
    try:
        yield [cell_path(), "-g", inner, "--", *argv] if quirks.enters_cgroup else argv
    finally:
        box.remove()


def without_init(document: dict[str, Any]) -> dict[str, Any]:
    """config.json with the payload as process 1."""
    words = document["process"]["args"]
    document["process"]["args"] = words[words.index("--") + 1 :]
    document["mounts"] = [
        mount for mount in document["mounts"] if mount["destination"] != INIT_TARGET
    ]
    return document


def placed(document: dict[str, Any], bundle: str) -> dict[str, Any]:
    """Sources of mounts that lie in the bundle become absolute: not every runtime looks for them
    there."""
    for mount in document["mounts"]:
        if mount.get("type") == "bind" or "bind" in "".join(mount.get("options", ())):
            mount["source"] = os.path.join(bundle, mount["source"])
    return document


def _argv(job: Job) -> MakeArgv:
    with open(f"{job.scratch}/{LANES_FILE}", encoding="utf-8") as file:
        lanes: list[list[str]] = json.load(file)

    def argv(lane: int, _: Sequence[str]) -> list[str]:
        name = unique()
        return [name if word == ID else word for word in lanes[lane]]

    return argv


@contextlib.contextmanager
def open_bare(job: Job) -> Iterator[Opened]:
    yield opened(job, _argv(job))


@contextlib.contextmanager
def hold_bare(job: Job) -> Iterator[None]:
    with held(job, _argv(job)):
        yield


BARE = Row(
    "bare",
    "the stock binary on the config.json of ocisbx (namespaces, seccomp filter, no capabilities, "
    "masked paths), the payload as process 1; namespaces that the runtime needs are entered once",
    open_bare,
    hold_bare,
    around=prepared,
    runtime=True,
    variants=frozenset(VARIANTS),
)
