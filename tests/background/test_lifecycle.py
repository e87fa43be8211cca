"""From create to remove, on each kind of runtime; what does not fit a state; signals and ends."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

import ocisbx
from ocisbx import Container
from ocisbx.bundle.record import State
from ocisbx.probe.processes import children
from tests.background.conftest import KINDS
from tests.box import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.host import RuntimeBinary
    from tests.box import Box

pytestmark = pytest.mark.runtime

SPEAK = "echo out; echo err >&2; read line; echo got $line; exit 7"


def end_of(container: Container) -> ocisbx.RunResult:
    result = container.wait(60)
    assert result is not None
    return result


@pytest.mark.parametrize("runtime", KINDS.values(), ids=KINDS)
def test_from_create_to_remove(yard: Box, runtime: RuntimeBinary) -> None:
    container = yard.sandbox().create(["sh", "-c", SPEAK], input=b"in\n", name="one")
    assert container.state is State.CREATED
    assert container.wait(0.05) is None
    assert container.logs() == b""
    assert container.start() is container
    result = end_of(container)
    assert (result.termination, result.exit_code) == ("exited", 7)
    assert (result.stdout, result.stderr) == (b"out\ngot in\n", b"err\n")
    assert (result.id, result.command) == (container.id, ("sh", "-c", SPEAK))
    assert result.runtime.name == runtime.name
    found = Container.find("one")
    assert found.state is State.EXITED
    assert found.id == Container.find(container.id).id == container.id
    assert found.logs() == b"out\ngot in\n"
    assert found.logs("stderr") == b"err\n"
    assert found.logs(offset=4) == b"got in\n"
    assert found.usage() == result.usage
    assert end_of(found).to_dict() == result.to_dict()
    found.remove()
    with pytest.raises(ocisbx.ConfigError, match="no container"):
        Container.find("one")


VERBS: dict[str, Callable[[Container], object]] = {
    "start": lambda one: one.start(),
    "signal": lambda one: one.signal(signal.SIGTERM),
    "kill": lambda one: one.kill(),
    "stop": lambda one: one.stop(),
    "usage": lambda one: one.usage(),
    "remove": lambda one: one.remove(),
    "wait": lambda one: one.wait(),
}
REFUSED = {
    State.CREATED: ("signal", "kill", "stop", "usage"),
    State.RUNNING: ("start", "remove"),
    State.EXITED: ("start", "signal", "kill", "stop"),
    State.LOST: ("start", "signal", "kill", "stop", "usage"),
}


@pytest.mark.parametrize("state", State)
def test_what_does_not_fit_is_refused_with_a_remedy(yard: Box, state: State) -> None:
    container = in_state(yard, state)
    assert container.state is state
    for verb in REFUSED[state]:
        with pytest.raises(ocisbx.InvalidState) as refusal:
            VERBS[verb](container)
        assert refusal.value.remedy, verb
        assert "nap" in refusal.value.what
        assert container.state is state


def in_state(yard: Box, state: State) -> Container:
    container = yard.sandbox().create(["sleep", "60"], name="nap")
    if state is not State.CREATED:
        container.start()
    if state is State.EXITED:
        container.stop()
    if state is State.LOST:
        os.kill(container.record.supervisor.pid, signal.SIGKILL)
        assert eventually(lambda: container.state is State.LOST)
    return container


def test_nobody_knows_the_end_of_a_lost_one(yard: Box) -> None:
    container = yard.sandbox().create(["sh", "-c", "echo kept; sleep 60"]).start()
    assert eventually(lambda: container.logs() == b"kept\n")
    os.kill(container.record.supervisor.pid, signal.SIGKILL)
    with pytest.raises(ocisbx.RuntimeFailed, match="was lost"):
        container.wait(20)
    assert container.logs() == b"kept\n"


@pytest.mark.parametrize(
    ("act", "termination", "number"),
    [
        (lambda one: one.signal(signal.SIGUSR1), "signaled", signal.SIGUSR1),
        (lambda one: one.kill(), "signaled", signal.SIGKILL),
        (lambda one: one.stop(), "cancelled", None),
    ],
    ids=["signal", "kill", "stop"],
)
def test_ends(
    yard: Box, act: Callable[[Container], None], termination: str, number: int | None
) -> None:
    container = yard.sandbox().create(["sleep", "60"]).start()
    act(container)
    result = end_of(container)
    assert (result.termination, result.signal) == (termination, number)


def test_stop_is_gentle_for_as_long_as_it_is_told(yard: Box) -> None:
    deaf = yard.sandbox(grace_s=60).create(["sh", "-c", "trap '' TERM; echo up; sleep 60"]).start()
    assert eventually(lambda: deaf.logs() == b"up\n")
    began = time.monotonic()
    deaf.stop(0.5)
    assert 0.5 <= time.monotonic() - began < 20
    assert deaf.state is State.EXITED
    polite = yard.sandbox().create(["sh", "-c", "trap 'exit 0' TERM; echo up; sleep 60 & wait"])
    polite.start()
    assert eventually(lambda: polite.logs() == b"up\n")
    polite.stop(60)
    assert end_of(polite).termination == "cancelled"


def test_a_timeout_is_kept_when_nobody_is_there(yard: Box) -> None:
    container = yard.sandbox(timeout_s=0.3, grace_s=0.1).create(["sleep", "60"]).start()
    result = end_of(container)
    assert result.termination == "timed_out"


def test_a_missing_program_is_an_end(yard: Box) -> None:
    container = yard.sandbox().create(["/nonexistent"]).start()
    assert container.state is State.EXITED
    result = container.never_ran()
    assert result is not None
    assert result.termination == "not_found"
    assert result.hint is not None
    assert result.shell_exit_code == 127


def test_a_runtime_that_fails_leaves_an_error(yard: Box) -> None:
    sandbox = yard.sandbox()
    plan = sandbox.resolve()
    broken = plan._replace(runtime=plan.runtime._replace(path="/nonexistent/crun"), sealed=False)
    sandbox._plan = broken._replace(guards=())
    container = sandbox.create(["true"])
    for verb in (container.start, container.wait):
        with pytest.raises(ocisbx.OcisbxError, match="/nonexistent/crun"):
            verb()
        assert container.state is State.EXITED


def test_a_host_that_changed_since_the_creation_is_not_started_on(yard: Box) -> None:
    container = yard.sandbox(volumes=[f"{yard.base / 'ws'}:/data"]).create(["true"])
    yard.workspace.rename(yard.base / "moved")
    with pytest.raises(ocisbx.InvalidState, match="the host changed"):
        container.start()


def test_names_are_held_until_they_are_removed(yard: Box) -> None:
    first = yard.sandbox().create(["true"], name="mine")
    for _ in range(2):
        with pytest.raises(ocisbx.InvalidState, match=f"in use by {first.id}"):
            yard.sandbox().create(["true"], name="mine")
        with pytest.raises(ocisbx.InvalidState, match=f"in use by {first.id}"):
            yard.run(["true"], name="mine")
        if first.state is State.CREATED:
            first.start().wait(20)
    assert [one.id for one in Container.all()] == [first.id]
    # A boot empties the runtime directory, not the state's.
    (yard.run_directory / "ocisbx" / "names" / "mine").unlink()
    with pytest.raises(ocisbx.InvalidState, match="in use"):
        yard.run(["true"], name="mine")
    first.remove()
    assert yard.run(["true"], name="mine").exit_code == 0


def test_a_name_of_the_foreground_is_not_given_to_the_background(yard: Box) -> None:
    with (
        yard.sandbox().start(["sleep", "60"], name="front"),
        pytest.raises(ocisbx.InvalidState, match="in use"),
    ):
        yard.sandbox().create(["true"], name="front")
    assert Container.all() == []


def test_twenty_at_once(yard: Box) -> None:
    sandbox = yard.sandbox()
    made = [sandbox.create(["sh", "-c", f"echo {n}; sleep 1; exit {n}"]) for n in range(20)]
    for container in made:
        container.start()
    assert [one.id for one in Container.all()] == [one.id for one in made]
    results = [container.wait(60) for container in made]
    assert [result and result.exit_code for result in results] == list(range(20))
    assert [container.logs() for container in made] == [b"%d\n" % n for n in range(20)]


def test_a_flood_of_output_is_kept_up_to_the_cap(yard: Box) -> None:
    sandbox = yard.sandbox(capture={"max_bytes": "1M"})
    container = sandbox.create(["sh", "-c", "head -c 200M /dev/zero; echo end >&2"]).start()
    result = end_of(container)
    assert result.exit_code == 0
    assert (len(result.stdout), result.stdout_bytes) == (1 << 20, 200 << 20)
    assert result.stdout_truncated
    assert result.stderr == b"end\n"


def test_variables_reach_the_payload_and_no_file_or_argument(
    yard: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"s3cret-{time.time_ns()}"
    monkeypatch.setenv("TOKEN", secret)
    sandbox = yard.sandbox(env={"inherit": ["TOKEN"]})
    container = sandbox.create(["sh", "-c", "test $TOKEN && sleep 60"]).start()
    pid = container.record.supervisor.pid
    with open(f"/proc/{pid}/cmdline", "rb") as line, open(f"/proc/{pid}/environ", "rb") as own:
        assert secret.encode() not in line.read() + own.read()
    kept = [path for path in (yard.base / "state").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if secret.encode() in path.read_bytes()]
    assert container.state is State.RUNNING


def test_it_ends_with_its_maker_where_it_is_told_to(yard: Box) -> None:
    maker = os.fork()
    if maker == 0:
        yard.sandbox().create(["sleep", "60"], name="tied", die_with_parent=True).start()
        yard.sandbox().create(["sleep", "60"], name="idle", die_with_parent=True)
        yard.sandbox().create(["sleep", "60"], name="free").start()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(maker, 0)
    tied = Container.find("tied")
    assert end_of(tied).termination == "cancelled"
    assert eventually(lambda: [one.name for one in Container.all()] == ["tied", "free"])
    assert Container.find("free").state is State.RUNNING


@pytest.mark.parametrize("runtime", KINDS.values(), ids=KINDS)
def test_the_pages_of_a_large_runtime_are_shared(yard: Box) -> None:
    """A sealed copy of runc would be one container's alone."""
    container = yard.sandbox().create(["sleep", "60"]).start()
    (pid,) = children(container.record.supervisor.pid)
    program = os.readlink(f"/proc/{pid}/exe")
    assert program.startswith("/memfd:") is (yard.runtime.name in ("crun", "youki"))
    with yard.sandbox().start(["sleep", "60"]):
        own = {one.exe().partition(" ")[0] for one in psutil.Process().children()}
    assert (f"/memfd:{yard.runtime.name}" in own) is (yard.runtime.name != "runsc")
