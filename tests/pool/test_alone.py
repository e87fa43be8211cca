"""No two calls share anything, and what a payload does is nobody else's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ocisbx.result import Termination as T
from tests.box import PYTHON, eventually, nap, running
from tests.pool.conftest import NATIVE

if TYPE_CHECKING:
    import ocisbx
    from tests.box import Box
    from tests.pool.conftest import Make

pytestmark = [pytest.mark.runtime, pytest.mark.security]

# Of the first runtime; so many of each other one, and of gVisor, which starts ten times as slowly.
CALLS = 300
CALLS_OTHERS = 60
CALLS_GVISOR = 12
# Its namespaces, when its process 1 started, all processes, and what is in /tmp and /dev/shm
# before a mark of its own is left there, and in the background.
TRACE = """
for one in pid mnt ipc uts net; do readlink /proc/self/ns/$one; done | tr '\\n' ' '
cut -d' ' -f22 /proc/1/stat
ls -A /tmp /var/tmp /dev/shm | grep -v ':$' | tr '\\n' ' '; echo
cat /proc/[0-9]*/comm | sort | tr '\\n' ' '; echo
touch /tmp/mark /var/tmp/mark /dev/shm/mark
sleep MARK >/dev/null 2>&1 &
"""


class Trace(NamedTuple):
    namespaces: str
    born: str
    files: str
    processes: str


def trace(pool: ocisbx.Pool, mark: str) -> Trace:
    result = pool.run(["sh", "-c", TRACE.replace("MARK", mark)])
    assert result.exit_code == 0, result.stderr
    first, files, processes = result.stdout.decode().splitlines()
    namespaces, _, born = first.rpartition(" ")
    return Trace(namespaces, born, files.strip(), processes.strip())


def test_no_two_calls_share_anything(box: Box, make: Make) -> None:
    """`benchmarks/pool_soak.py` does the same with 10,000."""
    gvisor = box.runtime.name == "runsc"
    calls = CALLS_GVISOR if gvisor else CALLS if box.runtime == NATIVE[0] else CALLS_OTHERS
    pool = make(4)
    pool.open()
    seen: list[Trace] = []
    mark = nap()

    def work() -> None:
        seen.extend(trace(pool, mark) for _ in range(calls // 3))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == calls
    # At most the directory that leads to the workspace.
    assert not any("mark" in one.files.split() for one in seen)
    # The shell, and what it runs: nobody else's.
    assert not any("sleep" in one.processes for one in seen)
    if not gvisor:
        # A namespace's number may be used again; not with the start of its process 1.
        assert len({(one.namespaces, one.born) for one in seen}) == len(seen)
    pool.close()
    assert eventually(lambda: running(mark) == [])


LOOK_FOR_SOCKETS = """
import os, socket, stat
found = []
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError as error:
        found.append(f"{pid}: {error.strerror}")
        continue
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError as error:
            continue
        found.append(f"{pid} {name} {target.split(':')[0]}")
for number in range(3, 256):
    try:
        os.fstat(number)
    except OSError:
        continue
    found.append(f"open {number}")
print("\\n".join(sorted(found)))
"""


def test_there_is_no_descriptor_of_the_protocol(pool: ocisbx.Pool) -> None:
    result = pool.run([PYTHON, "-I", "-S", "-c", LOOK_FOR_SOCKETS])
    lines = result.stdout.decode().splitlines()
    assert result.exit_code == 0, result.stderr
    assert not any("socket" in line for line in lines), lines
    assert not any(line.startswith("open") for line in lines), lines


def test_a_payload_that_kills_process_1(box: Box, pool: ocisbx.Pool) -> None:
    result = pool.run(["sh", "-c", "kill -9 1; kill -STOP 1; sleep 0.2; echo alive"], timeout_s=5)
    # gVisor protects no process 1 from what is inside; nobody but the payload has harm of it.
    if box.runtime.name != "runsc":
        assert (result.exit_code, result.stdout) == (0, b"alive\n")
    everything = pool.run(["sh", "-c", "kill -9 -1; echo alive"])
    assert everything.exit_code == 0 or everything.signal == 9
    assert pool.run(["true"]).exit_code == 0


def test_a_payload_that_fills_its_disk(make: Make) -> None:
    pool = make(1, tmpfs={"/tmp": 1 << 20})
    full = pool.run(["sh", "-c", "head -c 100000000 /dev/zero >/tmp/file"])
    assert full.exit_code != 0
    assert b"No space left" in full.stderr
    next_one = pool.run(["sh", "-c", "ls /tmp; head -c 1000 /dev/zero >/tmp/file"])
    assert next_one.exit_code == 0
    assert b"file" not in next_one.stdout


def test_a_payload_that_never_reads_its_input(pool: ocisbx.Pool) -> None:
    data = bytes(4 << 20)
    assert pool.run(["true"], input=data).exit_code == 0
    result = pool.run(["sleep", "600"], input=data, timeout_s=0.3)
    assert result.termination is T.TIMED_OUT


def test_a_payload_that_leaves_others_behind(pool: ocisbx.Pool) -> None:
    mark = nap()
    script = f"setsid sleep {mark} & (sleep {mark} &) ; exit 3"
    assert pool.run(["sh", "-c", script]).exit_code == 3
    pool.close()
    assert eventually(lambda: not running(mark))


def test_a_payload_that_closes_its_streams(pool: ocisbx.Pool) -> None:
    assert pool.run(["sh", "-c", "exec 0<&- 1>&- 2>&-; sleep 0.1; exit 6"]).exit_code == 6
