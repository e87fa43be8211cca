"""The init on every runtime at hand: start, report, signals, hang-up, the end of everything."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.init import protocol, wire
from ocisbx.init.protocol import Failed, Kind, Ready, Stage, Started, Target
from tests.runtimes.init_container import (
    NATIVE,
    RUNTIMES,
    TIMEOUT_S,
    Bundle,
    Container,
    Runtime,
    python,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.runtime
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda one: one.name)
every_native = pytest.mark.parametrize("runtime", NATIVE, ids=lambda one: one.name)
one_native = pytest.mark.parametrize("runtime", NATIVE[-1:], ids=lambda one: one.name)

WAITING = ["/bin/sh", "-c", "echo up; while :; do sleep 0.05; done"]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb"), os.fdopen(write, "wb"):
        yield read, write


def _is_gone(pid: int, within_s: float = TIMEOUT_S) -> bool:
    """Whether the process has ended (a zombie counts) or ends in time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.005)
    return False


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@every_runtime
@pytest.mark.parametrize("code", [0, 7, 124, 125, 126, 127, 137, 255])
def test_an_exit_code_is_reported_as_it_is(runtime: Runtime, code: int, tmp_path: Path) -> None:
    report, out, err, exit_code = run(Bundle(tmp_path, runtime, ["sh", "-c", f"exit {code}"]))
    assert (report.kind, report.status) == (Kind.EXITED, code)
    assert (out, err, exit_code) == (b"", b"", code)


@every_runtime
@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV])
def test_a_signal_is_reported_as_a_signal(runtime: Runtime, signo: int, tmp_path: Path) -> None:
    argv = ["sh", "-c", f"ulimit -c 0; kill -{signo} $$"]
    report, _, _, exit_code = run(Bundle(tmp_path, runtime, argv))
    assert (report.kind, report.status, exit_code) == (Kind.SIGNALED, signo, 128 + signo)


@every_runtime
def test_the_payload_starts_clean(runtime: Runtime, tmp_path: Path) -> None:
    source = """
import os
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1])
print(os.getpid() > 1, os.getppid(), os.getsid(0) == os.getpid() == os.getpgid(0))
"""
    _, out, _, _ = run(Bundle(tmp_path, runtime, python(source)))
    assert out.decode().splitlines() == ["[0, 1, 2]", "True 1 True"]


@every_runtime
def test_the_payload_blocks_and_ignores_no_signal(runtime: Runtime, tmp_path: Path) -> None:
    _, out, _, _ = run(Bundle(tmp_path, runtime, ["grep", "^Sig", "/proc/self/status"]))
    masks = dict(line.split(":\t") for line in out.decode().splitlines())
    for name in ("SigBlk", "SigIgn"):  # gVisor shows no masks
        assert int(masks.get(name, "0"), 16) == 0


@every_runtime
def test_the_descriptors_of_go_are_the_payloads_stdio(runtime: Runtime, tmp_path: Path) -> None:
    argv = ["sh", "-c", "read line; echo out $line; echo err >&2"]
    report, out, err, _ = run(Bundle(tmp_path, runtime, argv), b"hello\n")
    assert (report.status, out, err) == (0, b"out hello\n", b"err\n")


@every_runtime
def test_without_stdin_the_payload_reads_nothing_and_combine_joins(
    runtime: Runtime, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    argv = ["sh", "-c", "read line || echo end; echo err >&2; readlink /proc/self/fd/0"]
    with Container(Bundle(tmp_path, runtime, argv)) as container:
        container.go(stdout=pipe[1], combine=True)
        container.expect(Started)
        container.finish()
    assert os.read(pipe[0], 100) == b"end\nerr\n/dev/null\n"


@every_runtime
def test_what_go_does_not_bring_is_the_runtimes_own(
    runtime: Runtime, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    argv = ["sh", "-c", "echo out; echo err >&2"]
    with Container(Bundle(tmp_path, runtime, argv), stdio=(0, pipe[1], pipe[1])) as container:
        container.go()
        container.expect(Started)
        container.finish()
    assert sorted(os.read(pipe[0], 100).splitlines()) == [b"err", b"out"]


SCRIPT = b"#!/bin/sh\necho found\n"
PROGRAMS = {
    "opt/a/denied": (SCRIPT, 0o644),
    "opt/a/both": (SCRIPT, 0o644),
    "opt/b/both": (SCRIPT, 0o755),
    "opt/b/garbage": (b"\x00\x01\x02 no format", 0o755),
    "opt/b/orphan": (b"#!/no/such/interpreter\n", 0o755),
    "opt/b/plain": (b"echo no first line\n", 0o755),
    "opt/b/dir/x": (b"", 0o644),
}


@every_runtime
@pytest.mark.parametrize(
    ("name", "reason", "exit_code"),
    [
        ("missing", errno.ENOENT, 127),
        ("/no/such/program", errno.ENOENT, 127),
        ("", errno.ENOENT, 127),
        ("orphan", errno.ENOENT, 127),
        ("/opt/b/orphan", errno.ENOENT, 127),
        ("denied", errno.EACCES, 126),
        ("/opt/a/denied", errno.EACCES, 126),
        ("dir", errno.EACCES, 126),
        ("/opt/b/dir", errno.EACCES, 126),
        ("/opt/b/plain/x", errno.ENOTDIR, 127),
        ("garbage", errno.ENOEXEC, 126),
        ("/opt/b/plain", errno.ENOEXEC, 126),
        ("x" * 300, errno.ENAMETOOLONG, 127),
    ],
)
def test_a_failed_exec_reports_its_errno(
    runtime: Runtime, name: str, reason: int, exit_code: int, tmp_path: Path
) -> None:
    env = ["PATH=/opt/a:/nowhere:/opt/b"]
    bundle = Bundle(tmp_path, runtime, [name], env=env, files=PROGRAMS)
    with Container(bundle) as container:
        container.go()
        assert container.expect(Failed) == Failed(Stage.EXEC, reason)
        wire.send_end(container.sock)
        assert container.wait() == exit_code


@one_native
@pytest.mark.parametrize(
    ("env", "cwd", "name"),
    [
        (["PATH=/opt/a:/nowhere:/opt/b"], "/", "both"),
        (["PATH=/nowhere:"], "/opt/b", "both"),
        (["PATH="], "/opt/b", "both"),
        (["PATH=/" + "x" * 5000 + ":/opt/b"], "/", "both"),
        (["XPATH=/nowhere", "PATHS=/nowhere", "PATH=/opt/b"], "/", "both"),
        (["PATH=/nowhere"], "/opt", "b/both"),
        ([], "/", "true"),
    ],
)
def test_the_search_is_that_of_execvp(
    runtime: Runtime, env: list[str], cwd: str, name: str, tmp_path: Path
) -> None:
    report, _, _, _ = run(Bundle(tmp_path, runtime, [name], env=env, cwd=cwd, files=PROGRAMS))
    assert (report.kind, report.status) == (Kind.EXITED, 0)


@every_runtime
def test_usage_is_the_payloads_and_the_total_has_the_orphans_too(
    runtime: Runtime, tmp_path: Path
) -> None:
    source = """
import os, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
burn(0.15)
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        burn(0.15); os._exit(0)
    os._exit(0)
os.wait(); os.close(write); os.read(read, 1)
time.sleep(0.1)
"""
    report, _, _, _ = run(Bundle(tmp_path, runtime, python(source)))
    payload = report.payload.user_usec + report.payload.system_usec
    total = report.total.user_usec + report.total.system_usec
    assert payload >= 130_000
    assert total - payload >= 110_000
    assert report.wall_ns >= 250_000_000
    if runtime in NATIVE:  # gVisor's rusage has times and faults only
        assert 2 << 20 < report.payload.max_rss_bytes <= report.total.max_rss_bytes < 1 << 30
        assert report.payload.minor_faults > 100


@every_runtime
def test_orphans_are_reaped_while_the_payload_runs(runtime: Runtime, tmp_path: Path) -> None:
    source = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
for _ in range(200):
    left = [one for one in os.listdir("/proc") if one.isdigit()]
    if len(left) == 2: break
    time.sleep(0.01)
print(len(left))
"""
    _, out, _, _ = run(Bundle(tmp_path, runtime, python(source)))
    assert out == b"2\n"


@every_runtime
def test_what_the_payload_leaves_dies_with_it(runtime: Runtime, tmp_path: Path) -> None:
    argv = ["sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & sleep 1000 & exit 5"]
    start = time.monotonic()
    report, out, _, exit_code = run(Bundle(tmp_path, runtime, argv))
    assert (report.status, out, exit_code) == (5, b"", 5)
    assert time.monotonic() - start < 60


@every_native
def test_the_packets_name_the_init_by_its_pid_on_the_host(
    runtime: Runtime, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    with Container(Bundle(tmp_path, runtime, WAITING)) as container:
        container.go(stdout=pipe[1])
        container.expect(Started)
        status = Path(f"/proc/{container.init_pid}/status").read_text()
        [pids] = [line for line in status.splitlines() if line.startswith("NSpid:")]
        assert pids.split()[1] == str(container.init_pid)
        assert pids.split()[-1] == "1"


COUNTING = """
import os, signal, sys, time
got = []
for signo in set(signal.valid_signals()) - {9, 17, 19}:
    signal.signal(signo, lambda signo, frame: got.append(signo))
if os.fork() == 0:
    while True: time.sleep(0.01)
print("up", flush=True)
while not got: time.sleep(0.005)
print(got[0], flush=True)
"""


@every_runtime
@pytest.mark.parametrize("target", Target)
def test_the_driver_signals_inside(
    runtime: Runtime, target: Target, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    with Container(Bundle(tmp_path, runtime, python(COUNTING))) as container:
        container.go(stdout=pipe[1])
        container.expect(Started)
        assert os.read(pipe[0], 100) == b"up\n"
        wire.send_signal(container.sock, signal.SIGUSR1, target)
        report, _ = container.finish()
        assert (report.kind, report.status) == (Kind.EXITED, 0)
    assert os.read(pipe[0], 100) == b"10\n"


@every_native
@pytest.mark.parametrize(
    "signo", [signal.SIGTERM, signal.SIGINT, signal.SIGWINCH, signal.SIGTSTP, signal.SIGRTMIN + 3]
)
def test_a_signal_from_outside_reaches_the_payload(
    runtime: Runtime, signo: int, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    with Container(Bundle(tmp_path, runtime, python(COUNTING))) as container:
        container.go(stdout=pipe[1])
        container.expect(Started)
        assert os.read(pipe[0], 100) == b"up\n"
        os.kill(container.init_pid, signo)
        container.finish()
    assert os.read(pipe[0], 100) == b"%d\n" % signo


@every_native
def test_a_waiting_init_ends_by_sigterm(runtime: Runtime, tmp_path: Path) -> None:
    with Container(Bundle(tmp_path, runtime, WAITING)) as container:
        container.expect(Ready)
        os.kill(container.init_pid, signal.SIGWINCH)
        os.kill(container.init_pid, signal.SIGTERM)
        assert container.wait() == 128 + signal.SIGTERM


@every_runtime
def test_a_hang_up_before_go_ends_the_container(runtime: Runtime, tmp_path: Path) -> None:
    with Container(Bundle(tmp_path, runtime, WAITING)) as container:
        container.expect(Ready)
        container.sock.close()
        assert container.wait() == 125


@every_runtime
def test_a_hang_up_while_the_payload_runs_kills_it(
    runtime: Runtime, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    with Container(Bundle(tmp_path, runtime, WAITING)) as container:
        container.go(stdout=pipe[1])
        container.expect(Started)
        assert os.read(pipe[0], 10) == b"up\n"
        inside = _children(container.init_pid) if runtime in NATIVE else []
        container.sock.close()
        assert container.wait() == 125
    assert all(_is_gone(pid) for pid in [*inside, container.init_pid])


@every_runtime
def test_without_the_go_ahead_the_init_waits_two_seconds(runtime: Runtime, tmp_path: Path) -> None:
    with Container(Bundle(tmp_path, runtime, ["sh", "-c", "exit 9"])) as container:
        start = time.monotonic()
        container.go()
        container.expect(Started)
        container.expect(protocol.Exited)
        wire.send_signal(container.sock, signal.SIGTERM)  # too late, and harmless
        assert container.wait() == 9
        assert protocol.PATIENCE_MS / 1000 <= time.monotonic() - start < TIMEOUT_S


def _fill(sock: socket.socket) -> None:
    while True:
        sock.send(b"x" * 1000, socket.MSG_DONTWAIT)


@one_native
def test_a_driver_that_does_not_read_holds_nothing_up(runtime: Runtime, tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, runtime, ["sh", "-c", "sleep 0.3; exit 9"])
    with Container(bundle, keep_theirs=True) as container, container.theirs as theirs:
        container.go()
        container.expect(Started)
        with pytest.raises(BlockingIOError):
            _fill(theirs)
        start = time.monotonic()
        assert container.wait() == 9
        assert time.monotonic() - start < TIMEOUT_S


@every_runtime
def test_the_output_ends_with_the_payload_not_with_the_init(
    runtime: Runtime, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb"), Container(Bundle(tmp_path, runtime, ["echo", "x"])) as container:
        with os.fdopen(write, "wb"):
            container.go(stdout=write, stderr=write)
        container.expect(Started)
        container.expect(protocol.Exited)
        ready, _, _ = select.select([read], [], [], TIMEOUT_S)
        assert ready
        assert os.read(read, 100) == b"x\n"
        assert os.read(read, 100) == b""  # before END: the init holds no copy
        wire.send_end(container.sock)
        assert container.wait() == 0
