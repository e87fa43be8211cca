"""What each command of a session has to itself, on every runtime that can hold one."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import ocisbx
from tests.box import PYTHON, eventually
from tests.sessions.conftest import ABLE, UNABLE

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

pytestmark = pytest.mark.runtime
every = pytest.mark.parametrize("runtime", ABLE.values(), ids=ABLE)
SPEAK = "echo out $A $B; echo err >&2; cat; pwd; exit $A"


@every
def test_each_command_has_its_own(house: Box) -> None:
    with house.session(env={"set": {"B": "b"}}) as session:
        first = session.run(SPEAK, shell=True, input=b"one\n", env={"A": "3"}, workdir="/tmp")
        assert (first.termination, first.exit_code) == ("exited", 3)
        assert (first.stdout, first.stderr) == (b"out 3 b\none\n/tmp\n", b"err\n")
        second = session.run(SPEAK, shell=True, env={"A": "4", "B": "c"})
        assert (second.exit_code, second.stderr) == (4, b"err\n")
        assert second.stdout == f"out 4 c\n{house.workspace}\n".encode()
        assert len({first.id, second.id, session.id}) == 3
        assert first.command == ("/bin/sh", "-c", SPEAK)
        assert session.run(["echo", "$A"]).stdout == b"$A\n"
        assert session.run(["sh", "-c", "kill -9 $$"]).signal == 9
        late = session.run(["sleep", "60"], timeout_s=0.3)
        assert late.termination == "timed_out"
        missing = session.run(["/no/program"])
        assert (missing.termination, missing.shell_exit_code) == ("not_found", 127)
        assert missing.hint is not None
        assert session.run(["/usr"]).termination == "not_executable"
        with pytest.raises(ocisbx.ConfigError, match=r"/no/where.*cannot be entered"):
            session.run(["true"], workdir="/no/where")
        assert session.run(["true"]).exit_code == 0


def test_a_long_command_is_driven_while_its_audit_line_is_made(house: Box) -> None:
    # What looks for secrets takes a second for these.
    words = ["secret" * 170] * 100
    with house.session() as session:
        late = session.run(["sh", "-c", "sleep 0.5", *words], timeout_s=0.2)
    assert late.termination == "timed_out"


@every
def test_usage_is_each_commands(house: Box) -> None:
    burn = "import time\nuntil = time.process_time() + 0.4\nwhile time.process_time() < until: pass"
    with house.session() as session:
        busy = session.run([PYTHON, "-I", "-S", "-c", burn]).usage
        idle = session.run(["sleep", "0.3"]).usage
    assert busy.cpu_user_s is not None
    assert idle.cpu_user_s is not None
    assert idle.wall_s is not None
    assert busy.cpu_user_s + (busy.cpu_system_s or 0) > 0.3
    assert idle.cpu_user_s < 0.2
    assert 0.25 < idle.wall_s < 20


@every
def test_side_by_side_from_threads(house: Box) -> None:
    """They see each other's files, and not each other's streams."""
    script = "touch $N; until test -e a -a -e b -a -e c -a -e d; do sleep 0.01; done; cat; exit $X"
    with house.session(timeout_s=50) as session, ThreadPoolExecutor(4) as threads:
        ends = [
            threads.submit(
                session.run,
                script,
                shell=True,
                input=name.encode(),
                env={"N": name, "X": str(number)},
            )
            for number, name in enumerate("abcd")
        ]
        results = [end.result() for end in ends]
    assert [one.stdout for one in results] == [b"a", b"b", b"c", b"d"]
    assert [one.exit_code for one in results] == [0, 1, 2, 3]


@every
def test_what_a_command_leaves_stays(house: Box) -> None:
    leave = "mkdir /tmp/d; echo kept >/tmp/d/f; sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/d/pid"
    alive = "test -d /proc/$(cat /tmp/d/pid) && cat /tmp/d/f && test ! -e /tmp/none"
    with house.session() as session:
        assert session.run(leave, shell=True).exit_code == 0
        assert session.run(alive, shell=True).stdout == b"kept\n"
        assert session.run("kill -9 $(cat /tmp/d/pid)", shell=True).exit_code == 0
        gone = "while test -d /proc/$(cat /tmp/d/pid); do sleep 0.01; done"
        assert session.run(gone, shell=True, timeout_s=20).exit_code == 0
    with house.session() as other:
        assert other.run(["test", "-e", "/tmp/d"]).exit_code == 1


@every
def test_output_limits_are_each_commands(house: Box) -> None:
    with house.session(capture={"max_bytes": "64k"}) as session:
        cut = session.run("head -c 1M /dev/zero; echo end >&2", shell=True)
        assert (len(cut.stdout), cut.stdout_bytes, cut.stdout_truncated) == (65536, 1 << 20, True)
        assert cut.stderr == b"end\n"
        assert not session.run(["echo", "short"]).stdout_truncated
    with house.session(capture={"max_bytes": "64k", "on_limit": "kill"}) as session:
        assert session.run(["yes"]).termination == "output_limit"
        assert session.run(["echo", "goes on"]).stdout == b"goes on\n"


def test_callbacks_and_large_input(house: Box) -> None:
    data = os.urandom(3 << 20)
    heard: list[bytes] = []
    with house.session() as session:
        result = session.run(["cat"], input=data, on_stdout=heard.append)
        assert b"".join(heard) == result.stdout == data
        assert session.run(["true"], input=data).exit_code == 0
        held = house.base / "input"
        held.write_bytes(data)
        with held.open("rb") as file:
            assert session.run(["cat"], input=file).stdout == data


def test_arguments_longer_than_a_packet(house: Box) -> None:
    word = "x" * 100_000
    with house.session() as session:
        result = session.run(["printenv", "LONG"], env={"LONG": word})
        assert result.stdout.decode() == word + "\n"
        assert session.run(["echo", word]).stdout.decode() == word + "\n"
        with pytest.raises(ocisbx.ConfigError):
            session.run(["echo", "x" * (3 << 20)])
        with pytest.raises(ocisbx.ConfigError):
            session.run("echo")
        with pytest.raises(ocisbx.ConfigError):
            session.run([])


def test_policy_is_asked_for_each_command(house: Box) -> None:
    with house.session(commands={"deny": ["rm"]}) as session:
        with pytest.raises(ocisbx.PolicyDenied):
            session.run(["rm", "-rf", "/"])
        assert session.run(["true"]).exit_code == 0


def test_commands_in_the_background(house: Box) -> None:
    with house.session() as session:
        with session.start("echo up; read x; echo got $x", shell=True, input=b"in\n") as running:
            result = running.wait(20)
            assert result is not None
            assert result.stdout == b"up\ngot in\n"
        with session.start("echo up; sleep 1000", shell=True) as running:
            assert eventually(lambda: running.logs() == b"up\n")
            assert running.poll() is None
            running.signal(15)
            ended = running.wait(20)
            assert ended is not None
            assert ended.signal == 15
        with session.start(["sleep", "1000"]) as running:
            assert running.wait(0.05) is None
        ended = running.wait()
        assert ended is not None
        assert ended.termination == "cancelled"
        with pytest.raises(ocisbx.PolicyDenied), house.session(commands={"deny": ["rm"]}) as strict:
            strict.start(["rm"])


def test_a_hundred_at_once(house: Box) -> None:
    with house.session() as session, ThreadPoolExecutor(100) as threads:
        script = "read x; echo $x; exit $x"
        gate = threading.Barrier(100)

        def one(number: int) -> ocisbx.RunResult:
            gate.wait()
            return session.run(script, shell=True, input=b"%d\n" % number)

        results = list(threads.map(one, range(100)))
    assert [one.exit_code for one in results] == list(range(100))
    assert [one.stdout for one in results] == [b"%d\n" % number for number in range(100)]


def test_every_command_is_in_the_log(house: Box) -> None:
    with house.session() as session:
        results = [session.run(["echo", str(number)]) for number in range(3)]
    lines = (house.base / "state" / "ocisbx" / "audit.jsonl").read_text().splitlines()
    logged = {json.loads(line)["id"] for line in lines}
    assert {one.id for one in results} <= logged


@pytest.mark.skipif(not UNABLE, reason="all runtimes of this host can hold a session")
@pytest.mark.parametrize("runtime", UNABLE[:1], ids=[one.version for one in UNABLE[:1]])
def test_a_runtime_that_takes_no_socket_says_so(house: Box, runtime: RuntimeBinary) -> None:
    with pytest.raises(ocisbx.Unsupported, match=f"{runtime.name}.*cannot hold a session"):
        house.session().open()
    assert house.left() == []
