"""The direct driver: a bundle, a runtime, an execution; the order of making and taking away."""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from ocisbx.backends.base import Step, Tier
from ocisbx.backends.execution import OciExecution
from ocisbx.backends.names import claim_name, release_name
from ocisbx.backends.placeholders import Hold
from ocisbx.backends.stdio import PayloadStdio
from ocisbx.bundle.covers import shared_covers
from ocisbx.bundle.directory import INIT_FILE, BundleDirectory
from ocisbx.bundle.owner import Owner
from ocisbx.bundle.view import INIT_NODE
from ocisbx.cgroup.box import Box, cgroup_name
from ocisbx.cgroup.files import controllers_of
from ocisbx.cgroup.place import settle
from ocisbx.errors import BundleError, OcisbxError, RuntimeFailed, Unsupported
from ocisbx.outcome import Reason
from ocisbx.places import find_places
from ocisbx.probe.mounted import ANYWHERE, Granted, judge_of, read_table
from ocisbx.probe.processes import boot_id, own_start_time, pid_namespace
from ocisbx.quirks import find_quirks
from ocisbx.runtime.client import RuntimeClient
from ocisbx.runtime.kept_state import kept_state
from ocisbx.values import show, utc_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.backends.base import Call
    from ocisbx.plan import CgroupPlan, Plan


# PATH_MAX (limits.h) without its NUL and the slash that runc puts between.
PATH_LIMIT_BYTES = 4094
# The kernel makes it 50 us (PR_SET_TIMERSLACK, prctl(2)).
MOMENT_S = 1e-6


class OciBackend:
    """Runs plans on runc, crun and their kin."""

    name = "oci"
    tier = Tier.NAMESPACE

    @contextlib.contextmanager
    def launch(self, plan: Plan, call: Call) -> Iterator[OciExecution]:
        """Start the payload of `call`; nothing of it is left when the context ends.

        Raises:
            BundleError: the bundle cannot be written (a full disk).
            CgroupError: its cgroup cannot be made, or does not take a limit.
            RuntimeMissing: the runtime's binary is gone.
            InvalidState: the name is taken.
        """
        with contextlib.ExitStack() as stack:
            yield set_up(stack, plan, call)


def set_up(stack: contextlib.ExitStack, plan: Plan, call: Call) -> OciExecution:
    """Start a container whose end, and whatever is left then, is the stack's. Errors as those of
    `OciBackend.launch`."""
    container_id = call.id or new_id()
    bundle = BundleDirectory(f"{find_places().bundles}/{container_id}")
    client = client_for(plan, bundle)
    started = time.monotonic()
    box = None if plan.cgroup is None else box_for(plan.cgroup, container_id)
    mode = 0o711 if plan.owner is not None else 0o700
    owner = owner_record(container_id, plan, call, "" if box is None else box.path)
    bundle.create(mode, owner)
    stack.callback(_remove, bundle)
    if box is not None:
        stack.callback(_empty, box)
        box.make(with_inner=client.quirks.enters_cgroup)
    held = _hold(stack, plan)
    # Nowhere, for a runtime that insists on a place.
    place = f"/{cgroup_name(container_id)}" if box is None else box.inner
    root = _fill_bundle(bundle, plan, call, client, place)
    if call.name is not None and call.id is None:
        claim_name(call.name, container_id)
        stack.callback(release_name, call.name, container_id)
    execution: OciExecution
    stdio_type, execution_type = types_for(plan, client)
    stdio = stdio_type(plan, call, bundle.path, lambda: execution.end_now(Reason.OUTPUT))
    execution = execution_type(
        container_id,
        plan,
        call,
        bundle=bundle,
        client=client,
        stdio=stdio,
        box=box,
        checks=_checks(plan, client, bundle.path, root),
    )
    execution.on_emptied = partial(_release, held)
    stack.callback(_delete, client, container_id, call)
    stack.callback(execution.close)
    execution.clock.started = started
    execution.clock.bundle_made = time.monotonic()
    if call.on_step is not None:
        call.on_step(Step.BUNDLE_MADE)
    execution.start()
    return execution


def _fill_bundle(
    bundle: BundleDirectory, plan: Plan, call: Call, client: RuntimeClient, cgroup: str
) -> str:
    """Put into it what the runtime reads; returns root.path."""
    bundle.link(kept_state(client.quirks, plan.template))
    bundle.link(shared_covers() if plan.covers else {})
    root = bundle.make_root(plan)
    if client.quirks.joins_root:
        _check_lengths(plan, f"{bundle.path}/{root}" if root[0] != "/" else root)
    bundle.configure(
        plan.template.fill(
            root=root,
            argv=call.argv,
            environment=plan.payload_environment(
                call.environment, call.extra_environment, call.term
            ),
            cgroup=cgroup,
        )
    )
    return root


def types_for(plan: Plan, client: RuntimeClient) -> tuple[type[PayloadStdio], type[OciExecution]]:
    """How a payload of this plan on this runtime is driven."""
    if plan.terminal:
        from ocisbx.backends.terminal import TerminalExecution, TerminalStdio  # noqa: PLC0415 -- for terminals

        return TerminalStdio, TerminalExecution
    if client.quirks.socket_args is not None:
        return PayloadStdio, OciExecution
    from ocisbx.backends.unreported import UnreportedExecution  # noqa: PLC0415 -- for old gVisor

    return PayloadStdio, UnreportedExecution


def new_id() -> str:
    """80 random bits: unique across processes and hosts, and not to be guessed."""
    return os.urandom(10).hex()


def client_for(plan: Plan, bundle: BundleDirectory) -> RuntimeClient:
    return RuntimeClient(
        path=plan.runtime.path,
        quirks=find_quirks(plan.runtime.name, plan.runtime.version),
        root=bundle.path,
        log=bundle.log,
        cell=plan.cell,
        sealed=plan.sealed,
        args=plan.runtime_args,
    )


def box_for(held: CgroupPlan, container_id: str) -> Box:
    """The container's cgroup, not made yet.

    Raises:
        CgroupError: there is no place for one.
    """
    return Box(settle(needed=controllers_of(held.files)), container_id, held.files)


def owner_record(container_id: str, plan: Plan, call: Call, cgroup: str) -> Owner:
    pid = os.getpid()
    return Owner(
        id=container_id,
        name=call.name,
        pid=pid,
        start_time=own_start_time(),
        pid_namespace=pid_namespace(),
        boot_id=boot_id(),
        created_at=utc_text(),
        command=list(call.argv),
        workdir=plan.workdir,
        runtime_name=plan.runtime.name,
        runtime_path=plan.runtime.path,
        runtime_version=plan.runtime.version,
        runtime_args=list(plan.runtime_args),
        cell=plan.cell,
        cgroup=cgroup,
        policy=plan.policy(),
    )


def _check_lengths(plan: Plan, root: str) -> None:
    room = PATH_LIMIT_BYTES - len(root.encode())
    for shown in plan.shown:
        if len(shown.target.encode()) > room:
            raise Unsupported(
                f"{plan.runtime.name} cannot mount anything at a path of more than {room} bytes",
                why=f"{show(shown.target)} has {len(shown.target.encode())}",
                remedy="use crun, which can: --runtime crun; or give it at a shorter place with -v",
            )


def _checks(
    plan: Plan, client: RuntimeClient, bundle: str, root: str
) -> list[Callable[[int], str]]:
    """What is looked at, or set right, between the container's start and its payload's."""
    checks: list[Callable[[int], str]] = []
    # gVisor's gofer serves the files: its mounts are not the init's.
    if plan.verified and not client.quirks.user_kernel:
        checks.append(partial(_strange, plan, bundle, root))
    if client.quirks.loopback_down:
        checks.append(partial(_unlooped, client))
    return checks


def _unlooped(client: RuntimeClient, pid: int) -> str:
    """Why the loopback of this init's container is down; empty: it is up now."""
    try:
        client.raise_loopback(pid)
    except (OSError, RuntimeFailed) as error:
        return str(error)
    return ""


def _strange(plan: Plan, bundle: str, root: str, pid: int) -> str:
    """What is mounted in the container of this init that the plan does not give; empty: nothing."""
    own = (
        Granted(os.path.join(bundle, root), "/", writable=True),
        Granted(f"{bundle}/{INIT_FILE}", INIT_NODE, writable=False),
    )
    kept = (find_places().kept, ANYWHERE, False)
    try:
        inside, host = read_table(f"/proc/{pid}/mountinfo"), read_table("/proc/self/mountinfo")
    except OSError as error:
        return f"its mounts cannot be read: {error.strerror}"
    found = judge_of(host, (*plan.verified, kept)).strange(inside, own)
    if not found:
        return ""
    return f"{show(found[0].root)} came to be mounted at {show(found[0].point)}"


def _hold(stack: contextlib.ExitStack, plan: Plan) -> Hold:
    """The placeholders, as long as the stack has them."""
    held = Hold(plan.placeholders)
    stack.callback(held.release)
    held.take()
    return held


def _release(held: Hold) -> None:
    """While the runtime takes its own things away: it has just been woken on this processor, and
    who sleeps for a moment wakes on an idle one. Others may be driven by this loop: it waits for
    nobody, and what goes wrong is told when all is taken away."""
    time.sleep(MOMENT_S)
    with contextlib.suppress(OSError):
        held.release(waits=False)


def _delete(client: RuntimeClient, container_id: str, call: Call) -> None:
    """A runtime that ended by itself has deleted its state; one that was killed has not."""
    if call.on_step is not None:
        call.on_step(Step.DELETING)
    if client.knows(container_id):
        client.delete(container_id, force=True)


def _empty(box: Box) -> None:
    if not box.remove():
        raise OcisbxError(
            f"the cgroup {box.path} cannot be removed",
            why="something in it cannot be killed, or somebody else made it theirs",
            remedy="`ocisbx gc` tries again",
        )


def _remove(bundle: BundleDirectory) -> None:
    try:
        bundle.remove()
    except BundleError as error:
        raise OcisbxError(
            error.what, why=error.why, remedy="`ocisbx gc` tries again; " + error.remedy
        ) from error
