"""Programs of servers that the recipes talk to: installed, or those of tools/test-servers."""

from __future__ import annotations

import os
from glob import glob

from tests.command_line import ROOT

UNPACKED = ROOT / ".runtimes" / "servers"
PLACES = {"sshd": ("usr/sbin",), "postgres": ("usr/lib/postgresql/*/bin",)}


def program(name: str) -> tuple[str, dict[str, str]]:
    """The path of a server, and the environment that it is started with."""
    for place in PLACES[name]:
        for root in ("/", f"{UNPACKED}/"):
            for path in sorted(glob(f"{root}{place}/{name}"), reverse=True):
                libraries = ":".join(glob(f"{root}usr/lib/*-linux-gnu"))
                extra = {} if root == "/" else {"LD_LIBRARY_PATH": libraries}
                return path, {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **extra}
    raise AssertionError(f"there is no {name} here: tools/test-servers gets it")
