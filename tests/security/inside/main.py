"""The inside probe: one program that makes every inside observation in one go.

Runs in the sandbox, by the system's Python, and in a bare `unshare -Ur` for what the kernel refuses
anyway. It observes and judges nothing; `tests/security/assertions.py` says what must hold.

argv: where to write, the abstract name that the host listens at, the masked paths (comma between),
the host's file, the read-only directory, the sleep of the process that stays behind, and the
observations that are wanted (none: all).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.security.inside import calls, files, processes

OBSERVATIONS = {**processes.OBSERVATIONS, **files.OBSERVATIONS, **calls.OBSERVATIONS}

# A failed observation is no observation: {FAILED: what}.
FAILED = "failed"


def observe(name: str) -> object:
    try:
        return OBSERVATIONS[name]()
    except Exception as error:  # noqa: BLE001 -- the others are still wanted
        return {FAILED: repr(error)}


def leave_a_process(seconds: str) -> None:
    """A daemon: a grandchild in a session of its own, which closes everything."""
    subprocess.run(
        ["sh", "-c", f"exec setsid sleep {seconds} </dev/null >/dev/null 2>&1 &"], check=True
    )


def main() -> None:
    destination, seconds, wanted = sys.argv[1], sys.argv[6], sys.argv[7:]
    seen = {name: observe(name) for name in wanted or OBSERVATIONS}
    with open(f"{destination}.draft", "w", encoding="utf-8") as file:
        json.dump(seen, file)
    if seconds:
        leave_a_process(seconds)
    os.rename(f"{destination}.draft", destination)
    # The host looks at this process meanwhile, and closes the pipe when it has.
    os.write(1, b"seen\n")
    while os.read(0, 1):
        pass
