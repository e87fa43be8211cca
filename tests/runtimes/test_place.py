"""settle() in real cgroups: the driver leaves one that has to be divided, with all in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ocisbx.probe.cgroups import DRIVER_LEAF
from tests.box import eventually
from tests.cgroups import ENTER, cgroup, members, start

__all__ = ["cgroup"]

ROOT = Path(__file__).resolve().parents[2]
# As in a unit that was handed over, whose parent was not: here that is ours too.
SETTLE = """\
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from ocisbx.cgroup.place import settle
from ocisbx.probe.cgroups import look

site = look()
site = site._replace(way="below", parent=site.own)
with ThreadPoolExecutor(8) as pool:
    settled = set(pool.map(settle, [site] * 8))
child = os.fork()
if child == 0:
    os._exit(settle(site) not in settled)
_, status = os.waitpid(child, 0)
print(json.dumps([sorted(settled), look(), status]))
"""
# New processes all the time, each of which lives for a moment.
FORKS = "while :; do sleep 0.02 & sleep 0.01; done"


def settled_in(path: str) -> Any:
    argv = ["sh", "-c", ENTER, path, sys.executable, "-P", "-c", SETTLE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return json.loads(subprocess.check_output(argv, env=environment, timeout=60))


def test_all_processes_leave_for_a_leaf(cgroup: str) -> None:
    others = [start(cgroup, ["sleep", "60"]), start(cgroup, ["sh", "-c", FORKS])]
    try:
        assert eventually(lambda: len(members(cgroup)) > 2)
        sites, after, status = settled_in(cgroup)
        # One settling for all threads, and for a child.
        (site,) = sites
        assert status == 0
        _, mount, own, way, parent, *_ = site
        assert (mount + parent, way) == (cgroup, "below")
        assert own == f"{parent}/{DRIVER_LEAF}"
        assert Path(cgroup, "cgroup.procs").read_text(encoding="ascii") == ""
        leaf = members(Path(cgroup, DRIVER_LEAF))
        assert {process.pid for process in others} <= leaf
        # Seen from there it is the usual case.
        assert after[2:5] == [own, "sibling", parent]
    finally:
        for process in others:
            process.kill()
            process.wait()


def test_it_is_done_again_where_a_leaf_is_there(cgroup: str) -> None:
    Path(cgroup, DRIVER_LEAF).mkdir()
    for _ in range(2):
        sites, _, _ = settled_in(cgroup)
        _, mount, _, _, parent, *_ = sites[0]
        assert mount + parent == cgroup
