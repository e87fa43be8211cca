"""When a session ends: with its owner, at its limits, by whoever is asked to; and what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ocisbx
from ocisbx import Container, Session
from ocisbx.background.leftovers import collect
from ocisbx.background.used import USED_FILE, Use, last_used
from ocisbx.bundle.record import State, boot_s
from tests.box import eventually, nap, running
from tests.command_line import environment
from tests.command_line import ocisbx as command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.box import Box

pytestmark = pytest.mark.runtime


OWNER = """
import os, sys, time, ocisbx
session = ocisbx.Session(name="owned", workspace=os.getcwd(), keep=sys.argv[2] == "keep")
session.run(["sh", "-c", f"(setsid sleep {sys.argv[1]} >/dev/null 2>&1 &)"])
print(session.id, flush=True)
end = {"killed": lambda: os.kill(os.getpid(), 9), "forgotten": lambda: sys.exit(0),
       "failed": lambda: 1 / 0, "keep": lambda: os._exit(0), "closed": session.close,
       "exec": lambda: os.execv("/bin/true", ["true"])}
end[sys.argv[2]]()
"""


@pytest.mark.parametrize("how", ["killed", "forgotten", "failed", "closed", "exec"])
def test_it_ends_with_its_owner_however_that_ends(house: Box, how: str) -> None:
    mark = nap()
    done = owner(house, mark, how)
    assert eventually(lambda: running(mark) == [])
    # Who ended it itself has taken it away; else how it ended stays until somebody asks.
    records = Container.all()
    if how == "closed":
        assert records == []
        return
    assert [one.id for one in records] == [done.stdout.strip()]
    assert eventually(lambda: records[0].state is State.EXITED)
    with pytest.raises(ocisbx.ConfigError, match="not a session that runs"):
        Session.find("owned")


def test_one_that_is_kept_outlives_its_owner_and_is_found_again(house: Box) -> None:
    mark = nap()
    done = owner(house, mark, "keep")
    assert eventually(lambda: running(mark))
    found = Session.find("owned")
    assert found.id == done.stdout.strip()
    assert found.is_running
    assert found.run(["echo", "on"]).stdout == b"on\n"
    found.close()
    assert running(mark)
    again = Session.find(found_id := done.stdout.strip())
    with again:
        assert again.id == found_id
    assert running(mark)
    again = Session.find("owned")
    again.end()
    assert eventually(lambda: running(mark) == [])
    assert Container.all() == []


def owner(house: Box, mark: str, how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", OWNER, mark, how],
        env=environment(house),
        cwd=house.workspace,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=60,
    )


def test_only_sessions_are_found(house: Box) -> None:
    container = house.sandbox().create(["sleep", "60"], name="other").start()
    for given in ("other", container.id, "nobody", "", "../x"):
        with pytest.raises(ocisbx.ConfigError):
            Session.find(given)


def test_closed_is_closed(house: Box) -> None:
    session = house.session(name="once")
    session.close()
    with pytest.raises(ocisbx.InvalidState, match="not open"):
        session.id  # noqa: B018 -- what it raises
    session.open()
    session.open()
    assert session.is_running
    session.close()
    session.close()
    assert not session.is_running
    assert Container.all() == []
    with session:
        assert session.run(["true"]).exit_code == 0
    kept = house.session(keep=True)
    kept.open()
    kept.close()
    with pytest.raises(ocisbx.InvalidState, match="was closed"):
        kept.run(["true"])
    kept.end()
    assert Container.all() == []


def test_idle_ones_end_and_those_in_use_do_not(house: Box) -> None:
    with house.session(idle_s=3.0) as session:
        container = Container.find(session.id)
        assert session.run(["sleep", "4"]).exit_code == 0
        for _ in range(8):
            time.sleep(0.5)
            assert session.run(["true"]).exit_code == 0
        ended = time.monotonic()
        assert eventually(lambda: container.state is State.EXITED)
        assert time.monotonic() - ended > 0.5
        result = container.wait()
        assert result is not None
        assert result.termination == "cancelled"
        with pytest.raises(ocisbx.InvalidState, match="has ended"):
            session.run(["true"])


def test_a_lifetime_ends_it_whatever_runs(house: Box) -> None:
    with house.session(lifetime_s=4, idle_s=60) as session:
        with pytest.raises(ocisbx.InvalidState, match="while the command ran"):
            session.run(["sleep", "60"])
        assert eventually(lambda: not session.is_running)


def test_closed_by_another_thread(house: Box) -> None:
    session = house.session()
    session.open()
    with session.start(["sleep", "60"]) as running:
        session.close()
        with pytest.raises(ocisbx.InvalidState, match="while the command ran"):
            running.wait(30)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_limits_of_nothing_are_refused(house: Box, seconds: float) -> None:
    with pytest.raises(ocisbx.ConfigError):
        house.session(idle_s=seconds)
    with pytest.raises(ocisbx.ConfigError):
        house.session(lifetime_s=seconds)


def test_no_clock_that_can_be_set_is_asked(house: Box) -> None:
    """Setting this machine's is not ours to do: what is on the way asks none."""
    sources = [
        "background/used.py", "background/supervisor.py", "background/commands.py",
        "session/session.py", "backends/beside.py", "backends/driven.py", "bundle/record.py",
    ]  # fmt: skip
    root = os.path.dirname(ocisbx.__file__)
    for name in sources:
        with open(f"{root}/{name}", encoding="utf-8") as file:
            assert "time.time" not in file.read(), name


def test_when_it_was_used_is_believed_only_where_it_can_be(tmp_path: Path) -> None:
    place = str(tmp_path)
    since = boot_s()
    assert last_used(place, since) == since
    first, second = Use(place), Use(place)
    assert last_used(place, since) >= since
    first.end()
    (tmp_path / USED_FILE).write_bytes(bytes(8))
    assert last_used(place, since) > since
    second.end()
    assert since < last_used(place, since) <= boot_s()
    for content in (b"", b"short", b"\xff" * 8, bytes(8), b"\x00" * 6 + b"\xf0\x7f"):
        (tmp_path / USED_FILE).write_bytes(content)
        assert last_used(place, since) == since


def test_one_of_many_processes_gets_the_name(house: Box) -> None:
    house.sandbox().resolve()
    script = """
import sys, time, ocisbx
session = ocisbx.Session(name="mine", workspace="none", keep=True)
sys.stdin.readline()
try:
    session.open()
    print("won", session.id)
except ocisbx.InvalidState as error:
    print("lost", error)
"""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=environment(house),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    time.sleep(1)
    for one in racers:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = sorted(one.communicate(timeout=60)[0].split()[0] for one in racers)
    assert told == ["lost", "lost", "lost", "won"]
    assert [one.name for one in Container.all()] == ["mine"]
    with Session.find("mine") as found:
        assert found.run(["true"]).exit_code == 0
    with pytest.raises(ocisbx.InvalidState, match="in use"):
        house.session(name="mine").open()
    Session.find("mine").end()


def test_one_of_many_threads_opens_it(house: Box) -> None:
    session = house.session()
    gate = threading.Barrier(8)
    ids: list[str] = []

    def act() -> None:
        gate.wait()
        assert session.run(["true"]).exit_code == 0
        ids.append(session.id)

    threads = [threading.Thread(target=act) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert len(Container.all()) == 1
    session.close()


def test_a_supervisor_killed_loses_the_session(house: Box) -> None:
    mark = nap()
    session = house.session(name="lost")
    session.open()
    container = Container.find("lost")
    told: list[object] = []

    def sleep() -> None:
        try:
            told.append(session.run(["sleep", mark]))
        except ocisbx.OcisbxError as error:
            told.append(error)

    thread = threading.Thread(target=sleep)
    thread.start()
    assert eventually(lambda: running(mark))
    os.kill(container.record.supervisor.pid, signal.SIGKILL)
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(told[0], ocisbx.InvalidState), told
    assert "has ended while the command ran" in str(told[0])
    # Its connections are closed a moment before it is dead.
    assert eventually(lambda: container.state is State.LOST)
    assert eventually(lambda: running(mark) == [])
    with pytest.raises(ocisbx.InvalidState, match="has ended"):
        session.run(["true"])
    with pytest.raises(ocisbx.ConfigError, match="not a session that runs"):
        Session.find("lost")
    (row,) = json.loads(command(house, "ps", "-a", "--json").stdout)
    assert (row["name"], row["state"]) == ("lost", "lost")
    collect()
    assert house.left() == [str(house.run_directory / "ocisbx" / "names" / "lost")]
    session.close()
    assert Container.all() == []


def test_a_supervisor_stopped_hangs_nobody_for_long(house: Box) -> None:
    """Commands go to the container's own process 1, so they go on."""
    with house.session() as session:
        pid = Container.find(session.id).record.supervisor.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            assert session.run(["echo", "on"]).stdout == b"on\n"
            with pytest.raises(ocisbx.InvalidState, match="has not answered"):
                Session.find(session.id)
        finally:
            os.kill(pid, signal.SIGCONT)
        with Session.find(session.id) as found:
            assert found.run(["echo", "on"]).stdout == b"on\n"


def test_an_opening_that_fails_leaves_nothing(house: Box) -> None:
    with pytest.raises(ocisbx.OcisbxError):
        house.session(workspace=str(house.base / "none")).open()
    with pytest.raises(ocisbx.OcisbxError):
        house.session(runtime={"names": ["/no/runtime"]}).open()
    with pytest.raises(ocisbx.ConfigError):
        house.session(name="../x").open()
    assert Container.all() == []
    assert house.left() == []


def test_one_after_the_other_leaves_nothing_open(house: Box) -> None:
    for _ in range(10):
        with house.session() as session:
            assert session.run(["true"]).exit_code == 0
    assert Container.all() == []
