"""What one environment of the guest looks like from inside; prints one JSON object.

Started by test_environments.py in each of them, by the file's path. $KILL is a process to kill
while the place is being taken.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
from typing import Any

from ocisbx.cgroup.place import settle
from ocisbx.container.scenes import NEEDED, find_scene
from ocisbx.errors import CgroupError
from ocisbx.host import Host
from ocisbx.probe.cgroups import join, look
from ocisbx.probe.gather import cgroups

LIMIT_BYTES = 64 << 20


def record() -> Host:
    """The host, but for what $PRETEND (an object of fields of Cgroups) says of it."""
    pretended = json.loads(os.environ.get("PRETEND", "{}"))
    return Host(
        machine=platform.machine(), kernel=platform.release(), uid=os.geteuid(), gid=os.getegid(),
        home="/", cwd="/", cgroups=cgroups().model_copy(update=pretended),
    )  # fmt: skip


def use_place() -> dict[str, Any]:
    """Settle, make a cgroup with a limit, start something in it, and take it away."""
    try:
        site = settle(look(), NEEDED)
    except CgroupError as error:
        return {"error": error.render()}
    again = settle(look(), NEEDED)
    path = f"{join(site.mount, site.parent)}/ocisbx-test-{os.getpid()}"
    os.mkdir(path)
    with open(f"{path}/memory.max", "w", encoding="ascii") as file:
        file.write(str(LIMIT_BYTES))
    with open(f"{path}/memory.max", encoding="ascii") as file:
        limit = int(file.read())
    # Not ourselves: systemd takes a scope away as soon as nothing is in it.
    enter = f"echo $$ >{path}/cgroup.procs; cat /proc/self/cgroup"
    inside = subprocess.check_output(["sh", "-c", enter], text=True).strip().removeprefix("0::")
    os.rmdir(path)
    return {"way": site.way, "own": site.own, "parent": site.parent, "limit": limit,
            "inside": inside, "controllers": site.controllers, "same": again == site}  # fmt: skip


def main() -> None:
    host = record()
    scene = find_scene(host, sys.argv[1:] or NEEDED)
    told = {"cgroups": host.cgroups.model_dump(), "scene": scene.name, "remedy": scene.remedy}
    if killed := os.environ.get("KILL"):
        threading.Timer(1, subprocess.call, [["sudo", "kill", "-KILL", killed]]).start()
    told["used"] = use_place()
    sys.stdout.write(json.dumps(told) + "\n")


main()
