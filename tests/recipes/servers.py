"""Programs that tools/test-programs gets: servers that the recipes talk to, and OpenTofu."""

from __future__ import annotations

import os
from glob import glob

from tests.command_line import ROOT

PROGRAMS = ROOT / ".runtimes" / "programs"
OPENTOFU = PROGRAMS / "opentofu"
PLACES = {"sshd": "usr/sbin", "postgres": "usr/lib/postgresql/*/bin"}


def program(name: str) -> tuple[str, dict[str, str]]:
    """The path of a server, and the environment that it is started with."""
    for root in ("/", f"{PROGRAMS}/{name}/"):
        for path in sorted(glob(f"{root}{PLACES[name]}/{name}"), reverse=True):
            libraries = ":".join(glob(f"{root}usr/lib/*-linux-gnu"))
            extra = {} if root == "/" else {"LD_LIBRARY_PATH": libraries}
            return path, {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **extra}
    raise AssertionError(f"there is no {name} here: tools/test-programs {name} gets it")
