"""The end of a container at whose end nobody looks (GO's flag ENDS)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from ocisbx.init import protocol, wire
from ocisbx.init.protocol import Failed, Started
from tests.box import eventually
from tests.runtimes.init_container import NATIVE, RUNTIMES, Bundle, Container

if TYPE_CHECKING:
    from pathlib import Path

    from tests.box import Box
    from tests.runtimes.init_container import Runtime

every_runtime = pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda one: one.name)
one_native = pytest.mark.parametrize("runtime", NATIVE[-1:], ids=lambda one: one.name)

DRIVER = """
import sys, ocisbx
runtime, workspace = sys.argv[1:]
box = ocisbx.Sandbox(runtime={"names": [runtime]}, workspace=workspace)
print(box.resolve().cgroup is None, flush=True)
print(box.run(["sh", "-c", "sleep 1; exit 3"]).exit_code)
"""


@every_runtime
@pytest.mark.parametrize("argv", [["true"], ["missing"]])
def test_where_nobody_looks_at_the_container_it_waits_for_no_end(
    runtime: Runtime, argv: list[str], tmp_path: Path
) -> None:
    with Container(Bundle(tmp_path, runtime, argv)) as container:
        container.go(ends=True)
        if argv == ["missing"]:
            container.expect(Failed)
        else:
            container.expect(Started)
            container.expect(protocol.Exited)
        reported_at = time.monotonic()
        assert wire.receive(container.sock) is None
        assert time.monotonic() - reported_at < protocol.PATIENCE_MS / 1000
        assert container.wait() == (127 if argv == ["missing"] else 0)


@one_native
def test_an_order_that_comes_too_late_loses_no_report(runtime: Runtime, tmp_path: Path) -> None:
    with Container(Bundle(tmp_path, runtime, ["sleep", "1"])) as container:
        container.go(ends=True)
        container.expect(Started)
        init = psutil.Process(container.init_pid)
        [payload] = init.children()
        init.suspend()
        assert eventually(lambda: payload.status() == psutil.STATUS_ZOMBIE)
        # It reaps first, and ends with this unread: the socket is reset.
        wire.send_signal(container.sock, signal.SIGTERM)
        init.resume()
        assert container.expect(protocol.Exited).status == 0
        assert wire.receive(container.sock) is None
        assert container.wait() == 0


@pytest.mark.runtime
def test_a_driver_asks_for_it_where_there_is_no_cgroup(box: Box) -> None:
    """The runtime's end does not wait for a driver that was stopped."""
    argv = [sys.executable, "-P", "-c", DRIVER, box.runtime.path, str(box.workspace)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        has_none = driver.stdout.readline() == "True\n"
        found = psutil.Process(driver.pid)
        assert eventually(
            lambda: any(one.name() == "sleep" for one in found.children(recursive=True))
        )
        [runtime] = found.children()
        os.kill(driver.pid, signal.SIGSTOP)
        try:
            ended_at = time.monotonic() + 1
            assert eventually(lambda: runtime.status() == psutil.STATUS_ZOMBIE)
            early = time.monotonic() - ended_at < protocol.PATIENCE_MS / 1000 - 0.2
        finally:
            os.kill(driver.pid, signal.SIGCONT)
        assert driver.stdout.read() == "3\n"
    assert early or not has_none
