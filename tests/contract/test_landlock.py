"""Landlock in a real sandbox: it closes what the mounts cannot, and programs notice nothing."""

from __future__ import annotations

import json
import socket
import uuid
from typing import TYPE_CHECKING

import pytest

from ocisbx.init.selftest import ARGV, parse_self_test
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

# Every line raises where something does not work.
WORKS = """
import mmap, os, shutil, socket, sys, tempfile, threading
import multiprocessing

os.makedirs("a/deep"); os.makedirs("b")
open("a/file", "w").write("content")
os.rename("a/file", "b/file")
os.rename("a/deep", "b/deep")
os.link("b/file", "a/second")
os.replace("a/second", "b/deep/second")
os.symlink("file", "b/link")
os.truncate("b/file", 3)
assert open("b/link").read() == "con"
with open("b/file", "r+") as file:
    file.truncate(1)
descriptor = os.open("b", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(descriptor, b"unnamed at first")
folder = os.open("b", os.O_PATH)
os.link(f"/proc/self/fd/{descriptor}", "b/named", src_dir_fd=folder, follow_symlinks=True)
assert open("b/named").read() == "unnamed at first"
os.mkfifo("fifo"); os.unlink("fifo"); shutil.rmtree("b/deep")

for place in ("/tmp", "/dev/shm", os.environ["HOME"], "/var/tmp"):
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(b"x")
    shutil.copy("b/file", place)
shutil.move("/tmp/file", "moved")
for device in ("/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/dev/stderr"):
    os.close(os.open(device, os.O_WRONLY))
controller, terminal = os.openpty()
assert os.get_terminal_size(terminal)
open("/proc/self/comm", "w").write("renamed")
open("/proc/self/oom_score_adj", "w").write("500")
descriptor = os.memfd_create("memory")
os.write(os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY), b"x")

def add(value, lock, total):
    with lock:
        total.value += value

lock, total = multiprocessing.Semaphore(1), multiprocessing.Value("i", 0)
workers = [multiprocessing.Process(target=add, args=(n, lock, total)) for n in range(4)]
for worker in workers: worker.start()
for worker in workers: worker.join()
assert total.value == 6
worker = multiprocessing.Process(target=threading.Event().wait)
worker.start(); worker.terminate(); worker.join()
assert worker.exitcode == -15
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]

def serve(listener):
    connection, _ = listener.accept()
    connection.sendall(connection.recv(9))

for family, address in (
    (socket.AF_UNIX, "\\0abstract"), (socket.AF_UNIX, "path"), (socket.AF_INET, ("127.0.0.1", 0)),
):
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    server = multiprocessing.Process(target=serve, args=(listener,))
    server.start()
    client = socket.socket(family)
    client.connect(listener.getsockname())
    client.sendall(b"hello")
    assert client.recv(9) == b"hello"
    server.join()
    assert server.exitcode == 0
print("all of it")
"""


LANDLOCK = "Landlock is a further layer"


def test_what_programs_do_still_works(box: Box) -> None:
    if box.lacks(LANDLOCK):
        entry = box.run(["true"]).enforcement["landlock"]
        assert (entry.state, entry.actual) == (EnforcementState.UNSUPPORTED, False)
        return
    result = box.python(WORKS)
    assert (result.stdout, result.stderr, result.exit_code) == (b"all of it\n", b"", 0)
    assert sorted(path.name for path in box.workspace.iterdir()) == ["a", "b", "moved", "path"]


def landlock_abi(box: Box, level: str) -> int:
    result = box.run([*ARGV], isolation={"level": level})
    return parse_self_test(result.stdout).landlock


REACH = """
import errno, json, os, socket, sys
answers = []
for reach in (
    lambda: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[1]),
    lambda: os.kill(1, 0),
):
    try:
        reach()
        answers.append("reached")
    except OSError as error:
        answers.append(errno.errorcode[error.errno])
print(json.dumps(answers))
"""


@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_sockets_of_the_host_and_process_1_are_out_of_reach(box: Box, level: str) -> None:
    """Also with the host's network, to which abstract names belong; baseline has no Landlock."""
    if box.lacks(LANDLOCK):
        # gVisor's abstract names are its own.
        assert json.loads(box.python(REACH, "x").stdout)[0] == "ECONNREFUSED"
        return
    name = f"ocisbx-test-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        result = box.python(REACH, name, network="host", isolation={"level": level})
    scoped = level == "restricted" and landlock_abi(box, level) >= 6
    assert json.loads(result.stdout) == (["EPERM"] * 2 if scoped else ["reached"] * 2)


def test_the_self_test_names_what_holds(box: Box) -> None:
    result = box.run([*ARGV])
    found = parse_self_test(result.stdout)
    untold = box.lacks("/proc/self/status tells of no_new_privs and ambient capabilities")
    assert (found.no_new_privs, found.seccomp) == (None if untold else True, 2)
    assert found.cap_eff == found.cap_prm == found.cap_inh == found.cap_bnd == 0
    assert found.cap_amb == (None if untold else 0)
    assert found.clone == 0
    for name in ("clone3", "openat", "keyctl", "mount", "unshare"):
        assert getattr(found, name) != 0, name


def test_a_volume_is_writable_and_what_holds_it_is_not(box: Box) -> None:
    """The paths of -w are the mounts' own: nothing writable is forgotten, whatever its name."""
    volume = box.base / "vol: üñí\n-w --"
    volume.mkdir()
    (box.base / "one.txt").write_text("old")
    script = "import os; open('/v/x y/made', 'w'); os.truncate('/one.txt', 1); os.mkdir('/s/d')"
    mounts = [
        {"source": str(volume), "target": "/v/x y"},
        {"source": f"{box.base}/one.txt", "target": "/one.txt"},
    ]
    result = box.python(script, volumes=mounts, tmpfs={"/s": None})
    assert (result.stderr, result.exit_code) == (b"", 0)
    assert (volume / "made").exists()
    assert (box.base / "one.txt").read_text() == "o"
