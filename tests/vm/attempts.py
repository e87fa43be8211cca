"""A driver under test, in a place where the tests cannot be themselves: attempts.py ATTEMPTS.

ATTEMPTS is a JSON list, carried out in turn in this one process; each prints a line of JSON. An
object is a run, of fields of SandboxConfig: its result, or {"error", "said", "remedy"}. A list
["move", DIRECTORY] moves this process to another cgroup; ["wait", FILE] waits until there is one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ocisbx

COMMAND = ["true"]


def run(fields: dict[str, Any]) -> dict[str, Any]:
    command = fields.pop("command", COMMAND)
    started = time.monotonic()
    try:
        result = ocisbx.run(command, **({"workspace": "none"} | fields))
    except ocisbx.OcisbxError as error:
        told = {"error": type(error).__name__, "said": str(error), "remedy": error.remedy}
    else:
        told = json.loads(result.to_json())
    return told | {"cgroup": own(), "took_s": time.monotonic() - started}


def own() -> str:
    return Path("/proc/self/cgroup").read_text(encoding="utf-8").strip().removeprefix("0::")


def act(verb: str, argument: str) -> dict[str, Any]:
    if verb == "move":
        Path(argument, "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    while verb == "wait" and not os.path.exists(argument):
        time.sleep(0.05)
    return {"cgroup": own()}


def main(attempts: str) -> None:
    for one in json.loads(attempts):
        told = run(one) if isinstance(one, dict) else act(*one)
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
