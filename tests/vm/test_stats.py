"""`ocisbx stats` where every controller is: each number is there, and right."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from ocisbx.backends.gc import collect
from tests.box import eventually

OCISBX = (sys.executable, "-P", "-m", "ocisbx")
TOUCHED = 100 << 20
LIMIT = 256 << 20
HOG = f"x = bytearray({TOUCHED})\nwhile True: pass"
PATIENCE_S = 120


def stats() -> dict[str, Any]:
    words = ("stats", "--no-stream", "--json", "--interval", "3", "hog")
    done = subprocess.run([*OCISBX, *words], capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return found


def test_a_busy_sandbox_with_limits() -> None:
    limits = ("-m", str(LIMIT), "--pids-limit", "50")
    command = ("--", "/usr/bin/python3", "-I", "-S", "-c", HOG)
    busy = subprocess.Popen([*OCISBX, "run", "--name", "hog", *limits, *command])
    try:
        found: dict[str, Any] = {}

        def whole() -> bool:
            found.update(stats())
            memory_bytes: int = found.get("memory_bytes", 0)
            return memory_bytes > TOUCHED

        assert eventually(whole, timeout_s=PATIENCE_S)
    finally:
        busy.terminate()
        busy.wait()
        collect()
    assert [found.pop(key) for key in ("memory_limit_bytes", "pids_limit")] == [LIMIT, 50]
    memory, peak = found.pop("memory_bytes"), found.pop("memory_peak_bytes")
    assert TOUCHED < memory <= peak < TOUCHED * 1.2
    assert 50 < found.pop("cpu_percent") < 110
    assert found.pop("pids") == 2
    assert found.pop("pressure").keys() == {"cpu_s", "memory_s", "io_s"}
    assert [key for key, value in found.items() if value is None] == []
