"""`ocisbx pool serve`, and `run --pool`: containers of one process for the commands of others."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.gc import collect
from tests.box import eventually, nap, running
from tests.command_line import ocisbx, start
from tests.pool.conftest import NEWEST, on_any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from ocisbx.host import RuntimeBinary
    from tests.box import Box

pytestmark = pytest.mark.runtime


@pytest.fixture(params=NEWEST, ids=[one.name for one in NEWEST])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    """What a server and its callers say to each other does not depend on a runtime's version."""
    found: RuntimeBinary = request.param
    return found


@pytest.fixture
def path(box: Box) -> str:
    return str(box.base / "pool")


@pytest.fixture
def server(box: Box, path: str) -> Iterator[subprocess.Popen[str]]:
    with serving(box, path) as process:
        yield process
        process.terminate()
        try:
            assert process.wait(60) in (0, -9)
        finally:
            process.kill()
    assert not os.path.exists(path) or process.returncode == -9


def serving(box: Box, path: str, *options: str) -> subprocess.Popen[str]:
    process = start(box, "pool", "serve", "--socket", path, "--size", "2", *options)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any("containers are ready" in line for line in lines), process.wait(10)
    return process


COMMANDS = (
    (["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137),
    (["no-such-program"], 127), (["/etc/hostname"], 126),
)  # fmt: skip


def test_a_command_is_as_without_a_pool(box: Box, path: str, server: subprocess.Popen[str]) -> None:
    for words, code in COMMANDS:
        cold = ocisbx(box, "run", "--", *words)
        done = ocisbx(box, "run", "--pool", path, "--", *words)
        assert (done.returncode, done.stdout) == (cold.returncode, cold.stdout), words
        assert done.returncode == code
        assert set(done.stderr.splitlines()) <= set(cold.stderr.splitlines()), words


def test_streams_environment_directory_timeout(
    box: Box, path: str, server: subprocess.Popen[str]
) -> None:
    (box.workspace / "sub").mkdir()
    words = ("-i", "-e", "ONE=1", "-w", f"{box.workspace}/sub", "--", "sh", "-c")
    done = ocisbx(
        box, "run", "--pool", path, *words, "cat; echo $ONE; pwd; echo err >&2", input="input\n"
    )
    assert done.stdout == f"input\n1\n{box.workspace}/sub\n"
    assert done.stderr.endswith("err\n")
    late = ocisbx(box, "run", "--pool", path, "--timeout", "0.3", "--", "sleep", "600")
    assert late.returncode == 124
    told = ocisbx(box, "run", "--pool", path, "--json", "--", "echo", "out")
    document = json.loads(told.stdout)
    assert document["exit_code"] == 0
    assert document["stdout"] == "out\n"
    wrong = ocisbx(box, "run", "--pool", path, "--network", "host", "--", "true")
    assert wrong.returncode == 125
    assert "--network cannot be given together with --pool" in wrong.stderr


def test_each_has_a_container_of_its_own(
    box: Box, path: str, server: subprocess.Popen[str]
) -> None:
    seen: list[str] = []
    script = "ls -A /tmp | grep mark; touch /tmp/mark; cut -d' ' -f22 /proc/1/stat"

    def work() -> None:
        seen.append(ocisbx(box, "run", "--pool", path, "--", "sh", "-c", script).stdout)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(text.strip().isdigit() for text in seen), seen


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_caller_that_ends_in_the_middle(
    box: Box, path: str, server: subprocess.Popen[str], number: signal.Signals
) -> None:
    mark = nap()
    script = f"echo up; exec sleep {mark}"
    with start(box, "run", "--pool", path, "--", "sh", "-c", script) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "up\n"
        caller.send_signal(number)
        assert caller.wait(20) == (-9 if number is signal.SIGKILL else 130)
    assert eventually(lambda: not running(mark))
    assert ocisbx(box, "run", "--pool", path, "--", "echo", "fine").stdout == "fine\n"
    assert server.poll() is None


def test_the_server_is_killed(box: Box, path: str, server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait()
    assert eventually(lambda: collect() or not any(box.bundles.iterdir()))
    assert eventually(lambda: box.left() == []), box.left()
    refused = ocisbx(box, "run", "--pool", path, "--", "true")
    assert refused.returncode == 125
    assert "no pool listens" in refused.stderr
    # What it left is replaced.
    with serving(box, path) as second:
        assert ocisbx(box, "run", "--pool", path, "--", "true").returncode == 0
        second.terminate()
        assert second.wait(60) == 0


def test_the_server_ends_while_a_command_runs(
    box: Box, path: str, server: subprocess.Popen[str]
) -> None:
    script = "echo up; exec sleep 600"
    with start(box, "run", "--pool", path, "--", "sh", "-c", script) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "up\n"
        server.terminate()
        assert caller.wait(30) in (125, 137)
        assert server.wait(60) == 0


def test_the_socket_is_the_users_alone(box: Box, path: str, server: subprocess.Popen[str]) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    again = ocisbx(box, "pool", "serve", "--socket", path)
    assert again.returncode == 125
    assert "somebody listens" in again.stderr
    # Who says nothing, or something, is nobody's harm.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as idle:
        idle.connect(path)
        idle.send(b"anything")
        assert ocisbx(box, "run", "--pool", path, "--", "true").returncode == 0


@on_any
@pytest.mark.parametrize(
    ("words", "says"),
    [(["serve"], "needs a place"), ([], "none of its verbs"), (["stop"], "none of its verbs"),
     (["serve", "--socket", "P", "--size", "0"], "containers cannot be"),
     (["serve", "--socket", "P", "--size", "1000000"], "containers cannot be"),
     (["serve", "--socket", "P", "--size", "x"], "no number"),
     (["serve", "--socket", "/no/such/place/P"], "a socket cannot be made"),
     (["serve", "--socket", "P", "--runtime", "/no/runtime"], "/no/runtime"),
     (["serve", "--socket", "P" * 200], "a socket cannot be made"),
     (["serve", "--socket", "P", "word"], "one word too many")],
)  # fmt: skip
def test_servers_that_cannot_be(box: Box, words: list[str], says: str) -> None:
    done = ocisbx(box, "pool", *words)
    assert done.returncode == 125
    assert says in done.stderr
    assert not (box.workspace / "P").exists()


def test_a_file_in_the_place_of_the_socket(box: Box, path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write("precious")
    assert "is no socket" in ocisbx(box, "pool", "serve", "--socket", path).stderr
    with open(path, encoding="utf-8") as file:
        assert file.read() == "precious"
