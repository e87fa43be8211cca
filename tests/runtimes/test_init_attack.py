"""The payload cannot forge, read or prevent the report: attacks on process 1, on every runtime."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ocisbx.init import wire
from ocisbx.init.protocol import Exited, Kind, Started
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

pytestmark = [pytest.mark.runtime, pytest.mark.security]
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda one: one.name)
every_native = pytest.mark.parametrize("runtime", NATIVE, ids=lambda one: one.name)

ATTACKS = Path(__file__).with_name("init_attacks.py").read_text()
REFUSED = {"EPERM", "EACCES", "ENOSYS"}  # ENOSYS: gVisor has no process_madvise
# gVisor shows these of every process: numbers and counters, nothing that could be used.
SHOWN_BY_GVISOR = {"fdinfo", "io", "namespace", "syscall"}


@every_runtime
def test_no_attack_on_process_1_gets_through(runtime: Runtime, tmp_path: Path) -> None:
    call = f"main(unstoppable={runtime in NATIVE})"  # gVisor lets its process 1 be killed
    source = f"{ATTACKS}\n{call}\nraise SystemExit(42)"
    report, out, err, exit_code = run(Bundle(tmp_path, runtime, python(source)))
    assert (report.kind, report.status, exit_code) == (Kind.EXITED, 42, 42), err.decode()
    results: dict[str, Any] = json.loads(out)
    assert results.pop("forge") == []
    assert results.pop("signals") == {"missing": [], "extra": []}
    through = {name: got for name, got in results.items() if got not in REFUSED}
    assert set(through) <= (set() if runtime in NATIVE else SHOWN_BY_GVISOR), through
    assert len(results) > 15


@every_native
def test_a_payload_with_cap_sys_ptrace_can_forge(runtime: Runtime, tmp_path: Path) -> None:
    """The counter-proof, and the guarantee's limit: that capability overrides PR_SET_DUMPABLE."""
    source = f"{ATTACKS}\nforge_with_descriptor_3()"
    bundle = Bundle(tmp_path, runtime, python(source), capabilities=("CAP_SYS_PTRACE",))
    with Container(bundle) as container:
        container.go()
        container.expect(Started)
        assert container.expect(Exited).status == 77


@every_native
def test_the_driver_can_still_look_from_outside(runtime: Runtime, tmp_path: Path) -> None:
    with Container(Bundle(tmp_path, runtime, ["sleep", "100"])) as container:
        container.go()
        container.expect(Started)
        pidfd = os.pidfd_open(container.init_pid)
        os.close(pidfd)
        for name in ("status", "stat", "cgroup", "mountinfo"):
            assert Path(f"/proc/{container.init_pid}/{name}").read_bytes()


@every_native
def test_limits_that_the_payload_sets_for_process_1_do_not_silence_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    """prlimit(2) asks for equal ids only, so these succeed; the report comes all the same."""
    source = """
import os, resource
for name in ("NOFILE", "NPROC", "FSIZE", "STACK", "AS", "DATA", "SIGPENDING", "CORE"):
    resource.prlimit(1, getattr(resource, f"RLIMIT_{name}"), (0, 0))
os.setpriority(os.PRIO_PROCESS, 1, 19)
os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))
os.sched_setaffinity(1, {min(os.sched_getaffinity(0))})
for _ in range(50):
    if os.fork() == 0: os._exit(0)
raise SystemExit(42)
"""
    report, _, err, exit_code = run(Bundle(tmp_path, runtime, python(source)))
    assert (report.kind, report.status, exit_code) == (Kind.EXITED, 42, 42), err.decode()


@every_native
def test_process_1_out_of_cpu_time_is_a_hang_up_never_a_false_report(
    runtime: Runtime, tmp_path: Path
) -> None:
    """What remains to a payload: RLIMIT_CPU of process 1, used up by a flood of signals."""
    source = """
import os, resource
resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))
import signal
for signo in (10, 12): signal.signal(signo, signal.SIG_IGN)
if os.fork() == 0:
    while True: os.kill(1, 12)
while True: os.kill(1, 10)
"""
    with Container(Bundle(tmp_path, runtime, python(source))) as container:
        container.go()
        container.expect(Started)
        assert wire.receive(container.sock) is None
        assert container.wait() == 137


@every_runtime
def test_a_flood_of_signals_does_not_keep_the_driver_out(runtime: Runtime, tmp_path: Path) -> None:
    source = """
import os, signal
for signo in (10, 34): signal.signal(signo, signal.SIG_IGN)
while True:
    try:
        for signo in (10, 34, 34, 34): os.kill(1, signo)
    except BlockingIOError:
        pass  # gVisor's queue is full
"""
    with Container(Bundle(tmp_path, runtime, python(source))) as container:
        container.go()
        container.expect(Started)
        time.sleep(0.3)
        start = time.monotonic()
        wire.send_signal(container.sock, 9)
        report, _ = container.finish()
        assert (report.kind, report.status) == (Kind.SIGNALED, 9)
        assert time.monotonic() - start < TIMEOUT_S


@every_runtime
def test_the_init_started_by_the_payload_refuses_and_kills_nothing(
    runtime: Runtime, tmp_path: Path
) -> None:
    argv = ["sh", "-c", "sleep 100 & /ocisbx-init -- true; echo $?; kill -0 $! && echo alive"]
    _, out, err, _ = run(Bundle(tmp_path, runtime, argv))
    assert out == b"125\nalive\n"
    assert err == b"ocisbx-init: must be process 1 of a container\n"


@pytest.mark.parametrize("signo", [9, 19])
@every_runtime
def test_a_deadly_signal_from_inside_never_makes_a_false_report(
    runtime: Runtime, signo: int, tmp_path: Path
) -> None:
    """Linux ignores both for process 1; in gVisor SIGKILL ends it and SIGSTOP stops it."""
    source = f"import os, time; os.kill(1, {signo}); time.sleep(0.2); raise SystemExit(42)"
    with Container(Bundle(tmp_path, runtime, python(source))) as container:
        container.go()
        container.expect(Started)
        if runtime in NATIVE:
            report, exit_code = container.finish()
            assert (report.kind, report.status, exit_code) == (Kind.EXITED, 42, 42)
            return
        if signo == 9:
            assert wire.receive(container.sock) is None
            assert container.wait() == 137
        else:
            container.sock.settimeout(2)
            with pytest.raises(TimeoutError):
                wire.receive(container.sock)
            container.kill()
