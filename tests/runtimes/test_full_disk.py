"""A disk without room, where bundles and captures lie."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.box import Box

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


@pytest.mark.parametrize(("disk", "size"), [("16k", 10), ("256k", 10), ("1m", 4 << 20)])
def test_a_full_disk(box: Box, disk: str, size: int) -> None:
    """The directory of bundles and captures is a small tmpfs (in namespaces of the test's own)."""
    if box.runtime.name == "runc" and "1.1" in box.runtime.version and disk == "256k":
        disk = "512k"
    # Not as its root, whose places have to be open to mapped ids: pytest's directories are not.
    mount = f"mount -t tmpfs -o size={disk},mode=700 t {box.run_directory}"
    enter = f'{mount} && exec setpriv --inh-caps=-all --ambient-caps=-all "$@"'
    completed = subprocess.run(
        [
            *("unshare", "--map-current-user", "--mount", "--keep-caps", "sh", "-c", enter, "sh"),
            *(sys.executable, "-c", IN_A_SMALL_DISK),
            *(box.runtime.path, str(box.workspace), str(size)),
        ],
        env={**os.environ, **box.environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    end, left, remembered = completed.stdout.splitlines() or ["", completed.stderr, ""]
    assert left == "[]", (end, completed.stderr)
    if disk == "1m":
        assert re.search("cannot write the capture file .*: No space left on device", end), end
    elif disk == "16k":
        assert re.search("cannot write the bundle .*: No space left on device", end), end
    else:
        assert end.split()[0] in {"exited", "BundleError", "OcisbxError", "RuntimeFailed"}, end
    assert remembered == "None" or "words=''" in remembered
