"""Runs one mutant in a pid namespace of its own; started by test_assertions.py in `unshare`.

A container without a pid namespace shares that of its driver: whatever a runtime then signals, or
leaves behind, is within this one and ends with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from ocisbx.probe.runtimes import find_runtimes
from tests.box import Box
from tests.security.mutants import MUTANTS
from tests.security.scene import look

NEIGHBOURS = 8


def main(path: str, name: str, base: str) -> None:
    runtime = next(found for found in find_runtimes() if found.path == path)
    box = Box(Path(base), runtime, Path(base, "cache"))
    os.environ.update(box.environment)
    # As on a host, where there are many more processes than a sandbox has.
    neighbours = [subprocess.Popen(["sleep", "1000"]) for _ in range(NEIGHBOURS)]
    try:
        sys.stdout.write(json.dumps(asdict(look(box, MUTANTS[name]))))
    finally:
        for one in neighbours:
            one.kill()
            one.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
