"""A call in a container that was ready is like a cold one, on every runtime."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.errors import ConfigError, InvalidState, PolicyDenied, RuntimeFailed, Unsupported
from ocisbx.result import Termination as T
from tests.box import PYTHON
from tests.pool.conftest import of_each_name, on_any

if TYPE_CHECKING:
    from pathlib import Path

    import ocisbx
    from tests.box import Box
    from tests.pool.conftest import Make

pytestmark = pytest.mark.runtime


SCRIPTS = (
    "exit 0", "exit 7", "exit 255", "kill -9 $$", "kill -TERM $$", "echo out; echo err >&2",
    "cat; exit 3", "sleep 0 & exit 4", "id -u; id -g; groups", "ulimit -a", "umask",
    "ls -l /proc/self/fd | wc -l", "cat /proc/self/status | grep -E 'Cap|NoNew|Seccomp:|Sig'",
    "mount | sort | wc -l", "ls /", "pwd", "hostname", "cat /proc/self/oom_score_adj",
)  # fmt: skip


@on_any
def test_the_pipes_of_the_next_call_are_there_and_go_with_the_pool(make: Make) -> None:
    pool, made = make(1), []
    assert pool._ahead is not None
    for _ in range(2):
        assert pool.run(["echo", "x"]).stdout == b"x\n"
        made.append({os.fstat(end).st_ino for pipe in pool._ahead._pipes for end in pipe})
    # The second call took those that the first one had made.
    assert len(made[0]) == len(made[1]) == 2
    assert not made[0] & made[1]
    pool.close()
    assert pool._ahead._pipes == []
    # An interpreter has its own.
    assert make(1, warm=PYTHON)._ahead is None


@of_each_name
@pytest.mark.timeout(300)
def test_it_is_as_a_cold_call(box: Box, pool: ocisbx.Pool) -> None:
    """Each script in a container of its own, of one pool."""
    names = ("termination", "exit_code", "signal", "stdout", "stderr", "command", "runtime")
    for script in SCRIPTS:
        cold = box.sh(script, input=b"input\n")
        warm = pool.run(["sh", "-c", script], input=b"input\n")
        for name in (*names, "enforcement"):
            assert getattr(warm, name) == getattr(cold, name), (script, name)
        assert warm.usage.wall_s, script


def test_a_command_that_is_not_there(pool: ocisbx.Pool) -> None:
    result = pool.run(["no-such-program"])
    assert (result.termination, result.shell_exit_code) == (T.NOT_FOUND, 127)
    assert result.hint is not None
    result = pool.run(["/etc/hostname"])
    assert (result.termination, result.shell_exit_code) == (T.NOT_EXECUTABLE, 126)


@on_any
@pytest.mark.parametrize("command", [[], "true", [1], ["a\0b"], None, ["x" * 200_000]])
def test_commands_that_are_none(pool: ocisbx.Pool, command: Any) -> None:
    with pytest.raises(ConfigError):
        pool.run(command)


def test_a_shell_line(pool: ocisbx.Pool) -> None:
    result = pool.run("echo $((20 + 3))", shell=True)
    assert result.stdout == b"23\n"


def test_the_environment_and_the_directory_of_a_call(box: Box, make: Make) -> None:
    (box.workspace / "sub").mkdir()
    pool = make(env={"set": {"ONE": "1", "TWO": "2"}})
    script = 'echo "$ONE $TWO $THREE"; pwd'
    result = pool.run(
        ["sh", "-c", script], env={"TWO": "zwei", "THREE": "3"}, workdir=f"{box.workspace}/sub"
    )
    assert result.stdout.decode() == f"1 zwei 3\n{box.workspace}/sub\n"
    assert pool.run(["sh", "-c", script]).stdout.decode() == f"1 2 \n{box.workspace}\n"
    with pytest.raises(RuntimeFailed, match="working directory cannot be entered"):
        pool.run(["true"], workdir="/no/such/directory")


def test_a_long_command_and_environment(pool: ocisbx.Pool) -> None:
    words = ["x" * 1000] * 100
    result = pool.run(
        ["sh", "-c", 'echo "$#" "${#LONG}"', "sh", *words], env={"LONG": "y" * 60_000}
    )
    assert result.stdout == b"100 60000\n"


def test_files_are_the_workspace(box: Box, pool: ocisbx.Pool) -> None:
    (box.workspace / "in").write_text("from outside\n", encoding="utf-8")
    assert pool.run(["sh", "-c", "cat in; echo inside >out"]).stdout == b"from outside\n"
    assert (box.workspace / "out").read_text(encoding="utf-8") == "inside\n"


def test_a_megabyte_each_way(pool: ocisbx.Pool) -> None:
    data = os.urandom(1 << 20)
    result = pool.run(["cat"], input=data)
    assert result.stdout == data


def test_input_of_a_descriptor(pool: ocisbx.Pool, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"a file\n")
    with file.open("rb") as opened:
        assert pool.run(["cat"], input=opened).stdout == b"a file\n"


def test_callbacks(pool: ocisbx.Pool) -> None:
    seen: list[bytes] = []
    result = pool.run(
        ["sh", "-c", "echo out; echo err >&2"], on_stdout=seen.append, on_stderr=seen.append
    )
    assert sorted(seen) == [b"err\n", b"out\n"]
    assert result.stdout == b"out\n"


def test_a_callback_that_fails(pool: ocisbx.Pool) -> None:
    def fail(_data: bytes) -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        pool.run(["sh", "-c", "echo out; sleep 600"], on_stdout=fail)
    assert pool.run(["true"]).exit_code == 0


@of_each_name
def test_a_timeout(make: Make) -> None:
    pool = make(timeout_s=600, grace_s=60)
    started = time.monotonic()
    result = pool.run(["sh", "-c", "trap 'echo term; exit 1' TERM; sleep 600 & wait"], timeout_s=2)
    assert (result.termination, result.shell_exit_code) == (T.TIMED_OUT, 124)
    assert result.stdout == b"term\n"
    assert time.monotonic() - started < 30
    impatient = make(1, grace_s=0.2)
    assert impatient.run(["sh", "-c", "trap '' TERM; sleep 600"], timeout_s=0.3).signal is None


@on_any
@pytest.mark.parametrize("timeout_s", [0, -1, "x", float("nan"), True])
def test_timeouts_that_cannot_be(pool: ocisbx.Pool, timeout_s: Any) -> None:
    with pytest.raises(ConfigError):
        pool.run(["true"], timeout_s=timeout_s)


def test_the_output_limit(make: Make) -> None:
    pool = make(capture={"max_bytes": 1000, "on_limit": "kill"})
    result = pool.run(["sh", "-c", "while :; do echo line; done"])
    assert result.termination is T.OUTPUT_LIMIT
    assert len(result.stdout) == 1000
    cut = make(capture={"max_bytes": 1000}).run(["head", "-c", "5000", "/dev/zero"])
    assert (cut.exit_code, len(cut.stdout), cut.captured_stdout.total_bytes) == (0, 1000, 5000)


def test_one_stream_for_both(make: Make) -> None:
    result = make(capture={"combine": True}).run(["sh", "-c", "echo out; echo err >&2"])
    assert (result.stdout, result.stderr) == (b"out\nerr\n", b"")


def test_commands_that_policy_denies(make: Make) -> None:
    pool = make(commands={"allow": ["true"]})
    with pytest.raises(PolicyDenied):
        pool.run(["sh", "-c", "true"])
    assert pool.run(["true"]).exit_code == 0
    assert pool.counts.busy == 0


def test_the_audit_log(box: Box, make: Make) -> None:
    pool, silent = make(), make(audit=False)
    result = pool.run(["echo", "--password=hunter2"])
    silent.run(["echo", "silent"])
    # A pool writes it after the caller has the result.
    for one in (pool, silent):
        one.close()
    (log,) = (box.base / "state").rglob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line["id"] for line in lines] == [result.id]
    assert "hunter2" not in log.read_text(encoding="utf-8")


def test_many_threads(make: Make) -> None:
    pool = make(4)
    pool.open()
    results: list[bytes] = []

    def work(name: int) -> None:
        for turn in range(4):
            text = f"{name} {turn}".encode()
            result = pool.run(["cat"], input=text)
            assert result.stdout == text
            results.append(result.id.encode())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 32


def test_a_pool_that_was_closed(make: Make) -> None:
    pool = make()
    pool.close()
    pool.close()
    with pytest.raises(InvalidState):
        pool.run(["true"])
    with pytest.raises(InvalidState):
        pool.open()


def test_opened_twice(make: Make) -> None:
    with make() as pool:
        pool.open()
        assert pool.run(["true"]).exit_code == 0


def test_close_while_calls_run(make: Make) -> None:
    pool = make()
    ended: list[int | None] = []

    def work() -> None:
        ended.append(pool.run(["sh", "-c", "echo up; sleep 1; exit 5"], on_stdout=up).exit_code)

    running = threading.Event()

    def up(_data: bytes) -> None:
        running.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert running.wait(30)
    pool.close()
    assert pool.counts.waiting == 0
    thread.join()
    assert ended == [5]


def test_an_interrupted_call(pool: ocisbx.Pool) -> None:
    """KeyboardInterrupt ends the payload, and the pool goes on."""

    def interrupt(_data: bytes) -> None:
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.run(["sh", "-c", "echo up; sleep 600"], on_stdout=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert pool.counts.busy == 0
    assert pool.run(["true"]).exit_code == 0


def test_limits_where_there_is_no_cgroup(make: Make) -> None:
    """Where a host cannot limit at all, it says that."""
    pool = make()
    if pool._sandbox.resolve().cgroup is None:
        with pytest.raises(Unsupported, match=r"give the pool a limit|cannot be enforced here"):
            pool.run(["true"], limits={"pids": 10})
