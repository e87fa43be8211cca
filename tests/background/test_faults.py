"""What is killed, full, or done twice at once: what is told is true, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ocisbx
from ocisbx import Container
from ocisbx.background.leftovers import collect
from ocisbx.bundle.record import State
from ocisbx.probe.processes import start_time
from tests.box import eventually, nap, running
from tests.command_line import OCISBX, environment
from tests.command_line import ocisbx as command

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.box import Box

pytestmark = pytest.mark.runtime

# Milliseconds from the start of the supervisor, over all that it does up to the payload's start.
MOMENTS_MS = (0, 3, 8, 15, 22, 30, 36, 42, 48, 54, 60, 67, 75, 85, 100, 130)


def supervisors(yard: Box) -> list[int]:
    """They name the place of their bytecode."""
    return [pid for pid in running("background/boot.py") if str(yard.cache).encode() in words(pid)]


def words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("moment_ms", MOMENTS_MS)
def test_a_supervisor_killed_at_any_moment_of_its_start(yard: Box, moment_ms: int) -> None:
    sandbox = yard.sandbox()
    sandbox.create(["true"]).remove()
    mark = nap()
    told: list[object] = []
    maker = threading.Thread(target=make, args=(sandbox, mark, told))
    maker.start()
    assert eventually(lambda: supervisors(yard) or told)
    time.sleep(moment_ms / 1000)
    killed: set[int] = set()
    # One that was just about to fork has a successor.
    while maker.is_alive() or supervisors(yard):
        found = supervisors(yard)
        kill_all(found)
        killed.update(found)
    maker.join()
    # One that is killed takes a moment to be dead, and has no arguments meanwhile.
    assert eventually(lambda: not any(map(start_time, killed)))
    assert eventually(lambda: states_of_all() in ([], [State.LOST])), (told, Container.all())
    states = states_of_all()
    assert isinstance(told[0], Container | ocisbx.OcisbxError), told
    collect()
    assert eventually(lambda: running(mark) == [])
    assert not [*yard.bundles.glob("*")]
    assert not [*(yard.run_directory / "ocisbx" / "controls").glob("*")]
    assert states_of_all() == states


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def states_of_all() -> list[State]:
    return [one.state for one in Container.all()]


def make(sandbox: ocisbx.Sandbox, mark: str, told: list[object]) -> None:
    try:
        told.append(sandbox.create(["sleep", mark]).start())
    except ocisbx.OcisbxError as error:
        told.append(error)


def test_a_supervisor_killed_while_it_waits(yard: Box) -> None:
    mark = nap()
    container = yard.sandbox().create(["sh", "-c", f"echo kept; sleep {mark}"], name="n").start()
    assert eventually(lambda: container.logs() == b"kept\n")
    waiting = threading.Thread(target=lambda: suppressed(container.wait))
    waiting.start()
    os.kill(container.record.supervisor.pid, signal.SIGKILL)
    waiting.join(20)
    assert not waiting.is_alive()
    assert container.state is State.LOST
    assert eventually(lambda: running(mark) == [])
    (row,) = json.loads(command(yard, "ps", "-a", "--json").stdout)
    assert (row["state"], row["pid"]) == ("lost", None)
    assert json.loads(command(yard, "ps", "--json").stdout) == []
    assert [one.id for one in collect()] in ([container.id], [])
    assert yard.left() == [str(yard.run_directory / "ocisbx" / "names" / "n")]
    assert container.logs() == b"kept\n"
    lost = command(yard, "wait", "n")
    assert (lost.returncode, "was lost" in lost.stderr) == (125, True)
    assert command(yard, "rm", "n").returncode == 0


def suppressed(act: Callable[[], object]) -> object:
    try:
        return act()
    except ocisbx.OcisbxError as error:
        return error


def test_a_supervisor_killed_while_it_cleans_up(yard: Box) -> None:
    """Over and over, at the end of a payload that has just ended by itself."""
    sandbox = yard.sandbox()
    for moment_ms in (0, 1, 2, 4, 6, 9, 12, 16):
        reader, writer = os.pipe()
        container = sandbox.create(["sh", "-c", "read x; exit 5"], input=reader).start()
        os.close(reader)
        os.close(writer)
        time.sleep(moment_ms / 1000)
        supervisor = container.record.supervisor
        try:
            os.kill(supervisor.pid, signal.SIGKILL)
        except ProcessLookupError:
            assert container.state is State.EXITED
        # A result may be there before: what it has left nobody takes away while it lives.
        assert eventually(lambda one=supervisor: not one.alive())  # type: ignore[misc]
        assert container.state in (State.EXITED, State.LOST)
        if container.state is State.EXITED:
            result = container.wait()
            assert result is not None
            assert result.exit_code == 5
        collect()
        assert not [*yard.bundles.glob("*")]
        container.remove()


def test_the_caller_killed_at_any_moment(yard: Box) -> None:
    """What it did not hear of does not run on; what it could have heard of is listed."""
    command(yard, "run", "-d", "--", "true")
    Container.all()[0].wait(20)
    Container.all()[0].remove()
    for moment_ms in (10, 40, 70, 90, 110, 130, 150, 180, 220, 300):
        mark = nap()
        with subprocess.Popen(
            [*OCISBX, "run", "-d", "--", "sleep", mark],
            cwd=yard.workspace,
            env=environment(yard),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as caller:
            time.sleep(moment_ms / 1000)
            caller.kill()
        settled = eventually(lambda: settled_or_gone(yard, mark))  # noqa: B023 -- called at once
        assert settled, moment_ms
        for container in Container.all():
            container.remove(force=True)
        assert eventually(lambda: running(mark) == []), moment_ms  # noqa: B023 -- as above


def settled_or_gone(yard: Box, mark: str) -> bool:
    """Either nothing of it is there, or it is listed as what it is."""
    if is_gone(yard, mark):
        # One that just executes has no arguments for a moment.
        time.sleep(0.1)
        if is_gone(yard, mark):
            return True
    return states_of_all() == [State.RUNNING]


def is_gone(yard: Box, mark: str) -> bool:
    # In this order: a supervisor that has not yet made its record will do so.
    return running(mark) == [] and supervisors(yard) == [] and states_of_all() == []


def at_once(acts: list[Callable[[], object]]) -> list[object]:
    """What becomes of things that are done at the same time."""
    gate = threading.Barrier(len(acts))
    told: list[object] = []

    def act(one: Callable[[], object]) -> None:
        gate.wait()
        told.append(suppressed(one))

    threads = [threading.Thread(target=act, args=(one,)) for one in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def test_it_is_removed_while_somebody_starts_it(yard: Box) -> None:
    sandbox = yard.sandbox(grace_s=0)
    for _ in range(8):
        container = sandbox.create(["sleep", "60"])
        starter = Container.find(container.id)
        told = at_once([starter.start, lambda: Container.find(container.id).remove(force=True)])  # noqa: B023 -- called at once
        assert eventually(lambda: states_of_all() == [])
        # Whoever comes second is told.
        assert sum(isinstance(one, ocisbx.OcisbxError) for one in told) <= 1, told


def test_one_of_many_starts_it(yard: Box) -> None:
    container = yard.sandbox().create(["sleep", "60"])
    told = at_once([lambda: Container.find(container.id).start()] * 6)
    assert sum(isinstance(one, Container) for one in told) == 1
    assert sum(isinstance(one, ocisbx.InvalidState) for one in told) == 5


def test_one_of_many_gets_the_name(yard: Box) -> None:
    sandbox = yard.sandbox()
    sandbox.resolve()
    told = at_once([lambda: sandbox.create(["true"], name="mine")] * 6)
    assert sum(isinstance(one, Container) for one in told) == 1, told
    assert sum(isinstance(one, ocisbx.InvalidState) for one in told) == 5, told
    assert len(Container.all()) == 1


def test_all_who_wait_hear_the_same(yard: Box) -> None:
    container = yard.sandbox().create(["sh", "-c", "sleep 1; exit 3"]).start()
    told = at_once([lambda: Container.find(container.id).wait(60)] * 40)
    assert [one.exit_code for one in told] == [3] * 40  # type: ignore[attr-defined]


def test_removed_by_two_stopped_by_two(yard: Box) -> None:
    container = yard.sandbox().create(["sleep", "60"]).start()
    told = at_once([container.stop, container.stop, container.kill])
    assert not [one for one in told if isinstance(one, Exception)] or container.state == "exited"
    at_once([lambda: container.remove(force=True)] * 4)
    assert Container.all() == []


FULL = """
set -e
mount -t tmpfs -o size=1m,nr_inodes=100 ocisbx "$1"
cd "$2"
shift 2
"$@" run -d --name full --max-output 64m -- sh -c 'head -c 8m /dev/zero; exit 6' >/dev/null
"$@" wait full && echo ended || echo "code $?"
"$@" ps -a --json
df -k "$XDG_STATE_HOME" | tail -n 1
"$@" rm full
"$@" ps -a --json
"""


def test_a_full_disk_takes_the_output_and_not_the_verdict(yard: Box) -> None:
    """In a mount namespace of one's own: a disk of one megabyte."""
    unshare = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this host gives no user namespace to unshare(1)")
    state = yard.base / "state"
    line = [*unshare, "sh", "-c", FULL, "sh", str(state), str(yard.workspace), *OCISBX]
    done = subprocess.run(
        line, check=False, capture_output=True, text=True, env=environment(yard), timeout=60
    )
    assert "code 125" in done.stdout, done.stderr
    assert "No space left" in done.stderr
    assert '"state": "exited"' in done.stdout
    assert done.stdout.endswith("full\n[]\n"), done.stdout + done.stderr


def test_nothing_can_be_created_on_a_full_disk(yard: Box) -> None:
    state = yard.base / "state"
    shutil.rmtree(state / "ocisbx", ignore_errors=True)
    (state / "ocisbx").mkdir()
    (state / "ocisbx" / "containers").touch()
    with pytest.raises(ocisbx.OcisbxError) as refusal:
        yard.sandbox().create(["true"])
    assert refusal.value.remedy
    assert yard.left() == []
    (state / "ocisbx" / "containers").unlink()


STRANGER = """
import os, socket, sys
client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
directory = os.open(sys.argv[1], os.O_PATH)
client.connect(f"/proc/self/fd/{directory}/{sys.argv[2]}")
for packet in (b"x", b"{}", b"[]", b'{"verb": 1}', b'{"verb": "stop"}', b"\\xff" * 60000,
               b'{"verb": "signal", "number": 99}', b'{"verb": "signal", "number": true}',
               b'{"verb": "stop", "grace_s": NaN}', b"[" * 60000):
    client.send(packet)
    sys.stdout.write(client.recv(4096).decode() + "\\n")
"""


def test_nonsense_on_the_control_socket_is_answered_and_harms_nothing(yard: Box) -> None:
    container = yard.sandbox().create(["sleep", "60"]).start()
    controls = yard.run_directory / "ocisbx" / "controls"
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, str(controls), container.id],
        check=True,
        capture_output=True,
        text=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 10
    assert all("error" in one for one in answers)
    assert container.state is State.RUNNING
    assert (controls / container.id).stat().st_mode & 0o777 == 0o600


def test_a_stopped_supervisor_does_not_hang_who_looks(yard: Box) -> None:
    container = yard.sandbox().create(["sleep", "60"]).start()
    pid = container.record.supervisor.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert container.state is State.RUNNING
        assert container.wait(0.2) is None
        assert container.logs() == b""
        assert collect() == []
    finally:
        os.kill(pid, signal.SIGCONT)
    container.kill()
    assert container.wait(20) is not None
