"""The same observations in a bare `unshare -Ur`: what the kernel refuses to anybody unprivileged.

No filter, every capability within the user namespace, the host's own files: an assertion that holds
here needs no layer of ours.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psutil

from ocisbx.presets import MASKED_PATHS_RESTRICTED
from tests.security.scene import SECRET, Seen, copy_probe, host_facts, posture, probe_command

# Of those that some assertion marks as the kernel's. Walks over whole trees of the host are not.
WANTED = ("calls", "identity", "setuid", "setgroups", "namespaces", "kernel_doors", "kernel_log",
          "mknod_device", "setuid_program", "oom_score")  # fmt: skip


@functools.cache
def bare() -> Seen:
    """Made once for each worker."""
    base = Path(tempfile.mkdtemp(prefix="ocisbx-bare-"))
    try:
        place = copy_probe(base / "probe")
        secret = base / "secret"
        secret.write_text(SECRET)
        masks = ",".join(MASKED_PATHS_RESTRICTED)
        arguments = (str(base / "seen.json"), "none", masks, str(secret), str(base), "", *WANTED)
        with subprocess.Popen(
            ["unshare", "-Ur", "--fork", *probe_command(str(place)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == b"seen\n"
            pids = [process.pid, *(one.pid for one in psutil.Process(process.pid).children())]
            outside: dict[str, Any] = {
                "postures": [posture(pid) for pid in pids],
                "user_kernel": False,
            }
            process.stdin.close()
        inside = json.loads((base / "seen.json").read_text())
    finally:
        shutil.rmtree(base)
    return Seen(inside, outside | host_facts())
