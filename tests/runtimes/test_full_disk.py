"""A disk without room, where bundles and captures lie."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.box import Box

Completed = subprocess.CompletedProcess[str]

ROOT = Path(__file__).resolve().parents[2]

IN_A_SMALL_DISK = """
import os, sys
import ocisbx
runtime, workspace, size = sys.argv[1:]
try:
    result = ocisbx.run(["head", "-c", size, "/dev/zero"], runtime={"names": [runtime]},
                        workspace=workspace)
    print(result.termination.value, result.exit_code, result.stdout_bytes, result.stdout_truncated)
except ocisbx.OcisbxError as error:
    print(type(error).__name__, error.exit_code, str(error), error.remedy)
run = os.environ["XDG_RUNTIME_DIR"]
print(os.listdir(f"{run}/ocisbx/bundles") if os.path.isdir(f"{run}/ocisbx/bundles") else [])
from ocisbx.probe.remembered import runtime_memory
print(runtime_memory().trial(runtime, None))
"""


FULL_OF_A_DEATH = """
import os, signal, subprocess, sys, time
import ocisbx
runtime, workspace, role = sys.argv[1:]
box = ocisbx.Sandbox(runtime={"names": [runtime]}, workspace=workspace)
run = os.environ["XDG_RUNTIME_DIR"]
if role == "dies":
    with box.start(["sh", "-c", "head -c 900000 /dev/zero; sleep 100"]):
        while os.statvfs(run).f_bavail * os.statvfs(run).f_frsize > 300000:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
subprocess.run([sys.executable, "-c", sys.orig_argv[2], runtime, workspace, "dies"])
with open(f"{run}/rest", "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
for _ in range(100):
    try:
        print(box.run(["echo", "on"]).stdout, len(os.listdir(f"{run}/ocisbx/bundles")))
        break
    except ocisbx.OcisbxError as error:
        # The container of who was killed may end a moment later.
        time.sleep(0.1)
        print(error)
"""


def on_a_small_disk(box: Box, disk: str, script: str, word: str) -> Completed:
    """The directory of bundles and captures is a small tmpfs (in namespaces of the test's own)."""
    # Not as its root, whose places have to be open to mapped ids: pytest's directories are not.
    mount = f"mount -t tmpfs -o size={disk},mode=700 t {box.run_directory}"
    enter = f'{mount} && exec setpriv --inh-caps=-all --ambient-caps=-all "$@"'
    return subprocess.run(
        [
            *("unshare", "--map-current-user", "--mount", "--keep-caps", "sh", "-c", enter, "sh"),
            *(sys.executable, "-c", script, box.runtime.path, str(box.workspace), word),
        ],
        env={**os.environ, **box.environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_what_killed_drivers_have_left_does_not_fill_the_disk_for_good(box: Box) -> None:
    done = on_a_small_disk(box, "1200k", FULL_OF_A_DEATH, "goes on")
    assert done.stdout.splitlines()[-1:] == ["b'on\\n' 0"], (done.stdout, done.stderr)


@pytest.mark.parametrize(("disk", "size"), [("16k", 10), ("256k", 10), ("1m", 4 << 20)])
def test_a_full_disk(box: Box, disk: str, size: int) -> None:
    if box.runtime.name == "runc" and "1.1" in box.runtime.version and disk == "256k":
        disk = "512k"
    completed = on_a_small_disk(box, disk, IN_A_SMALL_DISK, str(size))
    end, left, remembered = completed.stdout.splitlines() or ["", completed.stderr, ""]
    assert left == "[]", (end, completed.stderr)
    if disk == "1m":
        assert re.search("cannot write the capture file .*: No space left on device", end), end
    elif disk == "16k":
        assert re.search("cannot write the bundle .*: No space left on device", end), end
    else:
        assert end.split()[0] in {"exited", "BundleError", "OcisbxError", "RuntimeFailed"}, end
    assert remembered == "None" or "words=''" in remembered
