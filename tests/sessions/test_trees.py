"""A command's end takes all that it started, and nothing else; who drives it may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ocisbx
from tests.box import PYTHON, eventually, nap, running
from tests.command_line import environment
from tests.sessions.conftest import ABLE

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

pytestmark = pytest.mark.runtime
every = pytest.mark.parametrize("runtime", ABLE.values(), ids=ABLE)

# A daemon that left everything that could tie it to the command: parent, session, group, streams.
DAEMON = """
import os, sys, time
def daemon(path):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(3):
        os.close(number)
    open(path, "w").write(str(os.getpid()))
    time.sleep(1000)
    os._exit(0)
for number in range(3):
    daemon(f"{sys.argv[1]}/{number}")
print("up", flush=True)
time.sleep(float(sys.argv[2]))
"""
BOMB = """
import os, time
print("up", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""
# How many of those whose numbers lie there are alive (a zombie is not).
COUNT = """
import os, sys
alive = 0
for name in os.listdir(sys.argv[1]):
    try:
        with open("/proc/%s/stat" % open(sys.argv[1] + "/" + name).read()) as file:
            alive += file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        pass
print(alive)
"""


def alive(session: ocisbx.Session, directory: str) -> int:
    return int(session.run([PYTHON, "-I", "-S", "-c", COUNT, directory]).stdout)


@every
def test_daemons_die_with_a_command_that_is_ended_and_stay_after_one_that_ends(house: Box) -> None:
    daemon = [PYTHON, "-I", "-S", "-c", DAEMON]
    with house.session(grace_s=0.2) as session:
        session.run(["mkdir", "/tmp/a", "/tmp/b", "/tmp/c"])
        assert session.run([*daemon, "/tmp/a", "1"]).exit_code == 0
        assert eventually(lambda: alive(session, "/tmp/a") == 3)
        late = session.run([*daemon, "/tmp/b", "1000"], timeout_s=4)
        assert (late.termination, late.stdout) == ("timed_out", b"up\n")
        assert eventually(lambda: alive(session, "/tmp/b") == 0)
        with session.start([*daemon, "/tmp/c", "1000"]) as running:
            assert eventually(lambda: running.logs() == b"up\n")
            assert eventually(lambda: alive(session, "/tmp/c") == 3)
        assert eventually(lambda: alive(session, "/tmp/c") == 0)
        assert alive(session, "/tmp/a") == 3


def test_a_fork_bomb_ends_and_the_session_goes_on(house: Box) -> None:
    """Within RLIMIT_NPROC, which holds on any host; it counts all processes of this user."""
    mine = sum(1 for one in os.scandir("/proc") if one.name.isdigit() and is_mine(one.path))
    limit = {"nproc": mine + 150}
    with house.session(limits={"rlimits": limit}, grace_s=0.2) as session:
        for _ in range(3):
            bomb = session.run([PYTHON, "-I", "-S", "-c", BOMB], timeout_s=2)
            assert (bomb.termination, bomb.stdout) == ("timed_out", b"up\n")
            assert eventually(lambda: listed(session) < 8)
        assert session.run(["echo", "on"]).stdout == b"on\n"


def listed(session: ocisbx.Session) -> int:
    return int(session.run("ls /proc | grep -c '^[0-9]'", shell=True).stdout)


def is_mine(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.getuid()
    except OSError:
        return False


CLIENT = """
import sys, ocisbx
session = ocisbx.Session.find(sys.argv[1])
session.run(["sh", "-c", "(setsid sleep %s &) ; echo up; sleep %s" % (sys.argv[2], sys.argv[2])],
            on_stdout=lambda data: print("up", flush=True))
"""


@every
def test_a_driver_killed_takes_its_command_and_no_other(house: Box, runtime: RuntimeBinary) -> None:
    mark, other = nap(), nap()
    with house.session(keep=True) as session, session.start(["sleep", other]) as kept:
        line = [sys.executable, "-c", CLIENT, session.id, mark]
        with subprocess.Popen(line, env=environment(house), stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"up\n"
            client.kill()
        count = "n=0; for p in /proc/[0-9]*; do grep -qs {} $p/cmdline && n=$((n+1)); done; echo $n"
        # The shell that counts has it in its own arguments.
        script = count.format("$MARK")

        def counted(mark: str) -> int:
            return int(session.run(script, shell=True, env={"MARK": mark}).stdout)

        assert eventually(lambda: counted(mark) == 0)
        assert counted(other) == 1
        assert kept.poll() is None
        assert session.run(["echo", "on"]).stdout == b"on\n"
        session.end()


def test_an_interrupt_ends_the_command_and_not_the_session(house: Box) -> None:
    mark = nap()
    main = threading.get_ident()

    def interrupt() -> None:
        eventually(lambda: running(mark))
        signal.pthread_kill(main, signal.SIGINT)

    with house.session(grace_s=0.2) as session:
        thread = threading.Thread(target=interrupt)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                session.run(["sleep", mark])
        finally:
            signal.signal(signal.SIGINT, before)
            thread.join()
        assert eventually(lambda: running(mark) == [])
        assert session.run(["echo", "on"]).stdout == b"on\n"
        kept = os.listdir(f"{house.base}/state/ocisbx/containers/{session.id}")
        assert sorted(kept) == [".result", "record.json", "started.json"]


def test_cancel_is_gentle_and_then_hurries(house: Box) -> None:
    deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    with house.session(grace_s=60) as session:
        with session.start("trap 'exit 5' TERM; echo up; sleep 100 & wait", shell=True) as polite:
            assert eventually(lambda: polite.logs() == b"up\n")
            polite.cancel()
            ended = polite.wait(20)
            assert ended is not None
            assert ended.termination == "cancelled"
        with session.start(deaf, shell=True) as stubborn:
            assert eventually(lambda: stubborn.logs() == b"up\n")
            stubborn.cancel()
            assert stubborn.wait(0.5) is None
            stubborn.cancel()
            ended = stubborn.wait(20)
            assert ended is not None
            assert ended.termination == "cancelled"


KILL_LEADER = """
import os, signal, sys, time
print("up", flush=True)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(1000)
"""


def test_a_command_that_kills_its_leader_counts_as_killed(house: Box) -> None:
    """It has the same ids, so it may; what it gains is a false end of its own, and no more."""
    mark = nap()
    with house.session() as session:
        result = session.run([PYTHON, "-I", "-S", "-c", KILL_LEADER, mark], timeout_s=50)
        assert (result.termination, result.signal, result.stdout) == ("signaled", 9, b"up\n")
        assert session.run(["echo", "on"]).stdout == b"on\n"
        assert running(mark)
    assert eventually(lambda: running(mark) == [])


KILL_ALL = """
import os, signal, time
print("up", flush=True)
for number in (signal.SIGTERM, signal.SIGKILL):
    for pid in (1, -1):
        try:
            os.kill(pid, number)
        except OSError:
            pass
time.sleep(1)
"""


@every
def test_a_command_that_kills_all_it_can_is_told_from_the_end_of_the_session(
    house: Box, runtime: RuntimeBinary
) -> None:
    """On Linux nobody inside can kill process 1; in gVisor SIGKILL does."""
    with house.session() as session, session.start(["sleep", "1000"]) as beside:
        command = [PYTHON, "-I", "-S", "-c", KILL_ALL]
        if runtime.name == "runsc":
            with pytest.raises(ocisbx.InvalidState, match="has ended while"):
                session.run(command, timeout_s=50)
            with pytest.raises(ocisbx.InvalidState):
                session.run(["true"])
            # It goes with process 1, or a moment before that.
            try:
                ended = beside.wait(20)
            except ocisbx.InvalidState:
                return
            assert ended is not None
            assert ended.signal in (9, 15)
            return
        assert session.run(command, timeout_s=50).stdout == b"up\n"
        assert session.run(["echo", "on"]).stdout == b"on\n"
        ended = beside.wait(20)
        assert ended is not None
        assert ended.signal in (9, 15)


def test_what_never_reads_and_what_never_stops(house: Box) -> None:
    with house.session(grace_s=0.2) as session:
        began = time.monotonic()
        result = session.run(["sleep", "1000"], input=bytes(4 << 20), timeout_s=0.5)
        assert result.termination == "timed_out"
        with session.start(["sleep", "1000"], input=bytes(4 << 20)) as mute:
            flood = session.run("yes | head -c 32M; exit 3", shell=True)
            assert (flood.exit_code, len(flood.stdout)) == (3, 32 << 20)
            assert mute.poll() is None
        assert time.monotonic() - began < 60


FILL = """
import os, time
while True:
    try:
        if not os.fork():
            time.sleep(1000)
    except OSError:
        time.sleep(0.01)
"""


def test_no_room_for_a_further_process_is_told_as_that(house: Box) -> None:
    """The first that cannot be made is the one that would lead the command."""
    with house.session(limits={"rlimits": {"nproc": 40}}) as session:
        with session.start([PYTHON, "-I", "-S", "-c", FILL]):
            assert eventually(lambda: refused(session))
        assert eventually(lambda: not refused(session))


def refused(session: ocisbx.Session) -> bool:
    try:
        session.run(["true"])
    except ocisbx.RuntimeFailed as error:
        return "limits.pids" in error.remedy
    return False
