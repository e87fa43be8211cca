"""The verbs of RuntimeClient on each installed runtime, against a container made by hand."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.base import Call
from ocisbx.backends.compile import compile_plan
from ocisbx.backends.oci import box_for, client_for, new_id, owner_record
from ocisbx.bundle.directory import BundleDirectory
from ocisbx.config import SandboxConfig
from ocisbx.errors import InvalidState, RuntimeMissing
from ocisbx.places import find_places
from ocisbx.probe.runtimes import find_runtimes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.runtime.client import RuntimeClient

# gVisor knows neither `ps` nor these processes of the host's; youki has no `ps` of these.
PATHS = [runtime.path for runtime in find_runtimes() if runtime.name in ("runc", "crun")]
ALL = [runtime.path for runtime in find_runtimes() if runtime.name != "runsc"]


@pytest.fixture(params=PATHS)
def made(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[RuntimeClient, str, str]]:
    """(client, id, bundle) of a sleeping container's bundle; whatever is left is deleted."""
    config = SandboxConfig(workspace="none", runtime={"names": [request.param]})
    plan = compile_plan(config)
    container_id = new_id()
    call = Call(argv=("sleep", "60"), environment=os.environ)
    bundle = BundleDirectory(f"{find_places().bundles}/{container_id}")
    box = None if plan.cgroup is None else box_for(plan.cgroup, container_id)
    bundle.create(0o700, owner_record(container_id, plan, call, "" if box is None else box.path))
    if box is not None:
        box.make(with_inner=False)
    bundle.configure(
        plan.template.fill(
            root=bundle.make_root(plan),
            argv=call.argv,
            environment=plan.payload_environment(call.environment),
            cgroup="" if box is None else box.inner,
        )
    )
    client = client_for(plan, bundle)
    yield client, container_id, bundle.path
    client.delete(container_id, force=True)
    assert box is None or box.remove()
    bundle.remove()


def test_a_container_goes_through_the_states_of_the_specification(
    made: tuple[RuntimeClient, str, str],
) -> None:
    client, container_id, bundle = made
    client.create(container_id, bundle)
    created = client.state(container_id)
    assert (created["id"], created["status"]) == (container_id, "created")
    assert client.knows(container_id)
    client.start(container_id)
    running = client.state(container_id)
    assert running["status"] == "running"
    own = Path(f"/proc/{running['pid']}/cgroup").read_text()
    if f"/ocisbx-{container_id}/c\n" in own:
        assert running["pid"] in client.ps(container_id)
    else:
        # Rootless, with nothing delegated: no cgroup whose processes could be listed.
        with pytest.raises(InvalidState, match="ps of"):
            client.ps(container_id)
    told = client.exec(container_id, "sh", "-c", "echo out; echo err >&2; exit 5")
    assert (told.status.exit_code, told.stdout, told.stderr) == (5, b"out\n", b"err\n")
    pidfd = os.pidfd_open(running["pid"])
    try:
        client.kill(container_id, "TERM")
        _wait(pidfd)
    finally:
        os.close(pidfd)
    assert client.state(container_id)["status"] == "stopped"
    client.delete(container_id)
    assert not client.knows(container_id)


def _wait(pidfd: int) -> None:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    assert poller.poll(10_000)


def test_verbs_that_do_not_fit_the_state_say_so_in_the_runtimes_words(
    made: tuple[RuntimeClient, str, str],
) -> None:
    client, container_id, bundle = made
    for verb in (client.start, client.kill, client.state):
        with pytest.raises(InvalidState) as caught:
            verb(container_id)
        assert caught.value.why
    client.create(container_id, bundle)
    with pytest.raises(InvalidState):
        client.create(container_id, bundle)
    client.delete(container_id, force=True)
    client.delete(container_id, force=True)  # silent: it is gone


@pytest.mark.parametrize("made", ALL, indirect=True)
def test_a_container_that_its_runtime_did_not_get_to_record(
    made: tuple[RuntimeClient, str, str],
) -> None:
    """What a runtime leaves that is killed between its folder and its record in it."""
    client, container_id, _ = made
    (Path(client.root) / container_id).mkdir(parents=True)
    assert client.knows(container_id)
    client.delete(container_id, force=True)
    assert not client.knows(container_id)


def test_features_where_the_runtime_has_them(made: tuple[RuntimeClient, str, str]) -> None:
    client, _, _ = made
    features = client.features()
    if client.quirks.features:
        assert features is not None
        assert "mount" in features["linux"]["namespaces"]
    else:
        assert features is None


def test_a_runtime_that_is_gone(made: tuple[RuntimeClient, str, str]) -> None:
    client, container_id, bundle = made
    gone = client._replace(path=client.path + "-gone", sealed=False, cell="none")
    with pytest.raises(RuntimeMissing, match="cannot be started"):
        gone.spawn_run(container_id, bundle, stdio={}, socket=None)
