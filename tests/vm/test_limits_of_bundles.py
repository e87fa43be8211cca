"""Limits of presets and of kept bundles, also by hand; and that no payload lifts them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.base import Call
from ocisbx.backends.kept import keep_bundle, kept_plan, rerun_command, shell_line
from ocisbx.calls import run_plan
from ocisbx.result import EnforcementState as S
from ocisbx.result import Termination as T
from tests.box import PYTHON, Box, eventually
from tests.command_line import ROOT
from tests.vm.rig import (
    FOUND,
    HIERARCHY,
    MANAGER,
    MIB,
    PATIENCE_S,
    box,
    box_of,
    cache,
    fast,
    lines_of,
    runtime,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

__all__ = ["box", "cache", "fast", "runtime"]

pytestmark = pytest.mark.vm


def test_what_a_preset_wishes_is_held(box: Box) -> None:
    sandbox = box.sandbox(preset="locked-down")
    with sandbox.start(["sleep", "1000"]) as running:
        cgroup = box_of(running.id)
        wished = {"memory.max": str(1 << 30), "memory.swap.max": "0", "pids.max": "256"}
        assert {name: value(cgroup, name) for name in wished} == wished
        assert value(cgroup, "cpu.max") == "100000 100000"
        running.kill()
        result = running.wait(PATIENCE_S)
    assert result is not None
    for name in ("memory", "cpus", "pids"):
        assert result.enforcement[name].state is S.ENFORCED
    # -1 lifts what a preset wishes.
    lifted = box.run(["true"], preset="locked-down", limits={"pids": -1, "cpus": -1})
    assert {"pids", "cpus"} & lifted.enforcement.keys() == set()


KEPT = {"memory_bytes": 48 * MIB, "cpus": 0.5, "pids": 40}
KEPT_FILES = {
    "memory.max": str(48 * MIB),
    "memory.swap.max": "0",
    "cpu.max": "50000 100000",
    "pids.max": "40",
}


def kept(box: Box, *command: str) -> Path:
    plan = box.sandbox(limits=KEPT).resolve()
    return Path(keep_bundle(str(box.base / "kept"), plan, Call(command, os.environ)))


def test_a_kept_bundle_holds_its_limits(box: Box) -> None:
    directory = kept(box, "tail", "/dev/zero")
    document = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    linux = document["linux"]
    assert re.fullmatch(r"user\.slice:ocisbx:[0-9a-f]{20}", linux["cgroupsPath"])
    assert linux["resources"]["memory"] == {"limit": 48 * MIB, "swap": 48 * MIB}
    assert linux["resources"]["pids"] == {"limit": 40}
    linux["resources"]["memory"] = {"limit": 20 * MIB, "swap": 20 * MIB}
    (directory / "config.json").write_text(json.dumps(document), encoding="utf-8")
    result = run_plan(kept_plan(str(directory)), Call(("tail", "/dev/zero"), {}))
    assert (result.termination, result.signal) == (T.OOM_KILLED, 9), result.stderr
    assert 19 * MIB <= (result.usage.memory_peak_bytes or 0) <= 20 * MIB


# Killed by whoever has seen what holds; it ends by itself where nobody does.
RESIDENT = "echo up; exec sleep 987"


def held_by_hand(words: Sequence[str], holder: str = "sleep 987") -> tuple[dict[str, str], bytes]:
    """What holds of a container that this command starts, and what it prints in all.

    `holder`: the command line, as pgrep(1) matches it, of a process of the container's.
    """
    bounded = ["timeout", f"{PATIENCE_S:.0f}", *words]
    with subprocess.Popen(
        bounded, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        # Debian's runc warns first.
        said = b"".join(until_up(process.stdout))
        held = {}
        if said.endswith(b"up\n"):
            assert eventually(lambda: pids_of(holder), PATIENCE_S)
            (pid,) = pids_of(holder)
            own = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").strip()
            path = HIERARCHY / own.removeprefix("0::/")
            held = {name: strictest(path, name) for name in KEPT_FILES}
            os.kill(pid, signal.SIGKILL)
        said += process.stdout.read()
    return held, said


def until_up(stream: IO[bytes]) -> Iterator[bytes]:
    for line in stream:
        yield line
        if line == b"up\n":
            return


def pids_of(line: str) -> list[int]:
    found = subprocess.run(["pgrep", "-xf", line], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def strictest(path: Path, name: str) -> str:
    """What holds in the cgroup and above it: a runtime may have made one for the container inside
    of systemd's, which has the limits."""
    levels = (one for one in (path, *path.parents) if one.is_relative_to(MANAGER))
    there = [value(one, name) for one in levels if (one / name).exists()]
    return min((text for text in there if not text.startswith("max")), key=first_number)


def first_number(text: str) -> int:
    return int(text.split(maxsplit=1)[0])


def test_a_kept_bundle_rerun_by_hand_holds_them_too(box: Box) -> None:
    """By the bare runtime and systemd: from a delegated scope, and from a login over ssh."""
    directory = str(kept(box, "sh", "-c", RESIDENT))
    line = shell_line(rerun_command(directory))
    words = ["env", f"PYTHONPATH={ROOT}", PYTHON, "-P", "-m", "ocisbx", "bundle", "rerun"]
    by_ssh = shlex.join([*words, "--exec", directory])
    for command in (["env", "-i", "sh", "-c", line], ["ssh", "dev@localhost", by_ssh]):
        held, said = held_by_hand(command)
        assert held == KEPT_FILES, (command, said)


# gVisor's payloads are no processes of the host's.
OTHERS = {
    "Debian's crun": (("crun", True), "sleep 987"),
    "Debian's runc": (("runc", True), "sleep 987"),
    "youki": (("youki", False), "sleep 987"),
    "runsc": (("runsc", False), "runsc-sandbox .*"),
    "Debian's runsc": (("runsc", True), "runsc-sandbox .*"),
}


@pytest.mark.parametrize(("which", "holder"), OTHERS.values(), ids=OTHERS)
def test_other_runtimes_hold_those_of_a_kept_bundle(
    fast: Box, which: tuple[str, bool], holder: str
) -> None:
    """Those that ask systemd for the container's cgroup, and one that is started in a scope."""
    fast.runtime = FOUND[which]
    # gVisor's kernel counts as the container.
    room = {"memory_bytes": 256 * MIB, "pids": 150}
    plan = fast.sandbox(limits=KEPT | room).resolve()
    call = Call(("sh", "-c", RESIDENT), os.environ)
    directory = keep_bundle(str(fast.base / "kept"), plan, call)
    line = shell_line(rerun_command(directory))
    held, said = held_by_hand(["env", "-i", "sh", "-c", line], holder)
    assert held == KEPT_FILES | {"memory.max": str(256 * MIB), "pids.max": "150"}, said


# ------------------------------------------------------------------------- what the payload can do
LIFT = """
mkdir /tmp/m && mount -t cgroup2 none /tmp/m && echo mounted
cd /tmp/m || exit
cat /proc/self/cgroup
echo max >memory.max; echo max >pids.max; echo "max 100000" >cpu.max; echo 0 >memory.oom.group
ls -d user.slice ocisbx-* 2>/dev/null
mkdir -p mine/deeper && echo made
echo $$ >mine/deeper/cgroup.procs && echo moved
for i in 1 2 3 4 5 6 7 8 9; do mkdir mine/n$i; done
tail /dev/zero; echo $?
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 100 & done
"""


def test_the_payload_cannot_lift_its_limits(box: Box) -> None:
    """Even with all capabilities and the hierarchy mounted: those of P are out of its reach."""
    limits = {"memory_bytes": 24 * MIB, "pids": 12}
    result = box.sh(LIFT, isolation={"level": "privileged"}, limits=limits)
    lines = lines_of(result)
    assert lines[:2] == ["mounted", "0::/"], result.stderr
    assert lines[2:] == ["made", "moved", "137"], result.stderr
    assert (result.termination, result.usage.oom_kills) == (T.PIDS_LIMIT, 1), result.stderr
    assert result.usage.pids_peak == 12
    for name in ("memory", "pids"):
        assert result.enforcement[name].state is S.ENFORCED


def test_an_ordinary_payload_sees_no_hierarchy(box: Box) -> None:
    limits = {"memory_bytes": 64 * MIB}
    script = (
        "ls -A /sys/fs/cgroup; mkdir /tmp/m; mount -t cgroup2 none /tmp/m; "
        "grep ' cgroup' /proc/mounts"
    )
    result = box.sh(script, limits=limits)
    assert (result.stdout, result.exit_code) == (b"", 1)
