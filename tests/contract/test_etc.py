"""What a container sees of the host's /etc: the same as the host, and nothing to write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.compile import compile_plan
from ocisbx.config import SandboxConfig
from ocisbx.container.view import LISTED, shown_of_etc
from ocisbx.probe.paths import list_directory
from ocisbx.quirks import find_quirks
from ocisbx.steady import survey
from tests.command_line import environment, ocisbx

if TYPE_CHECKING:
    from ocisbx.plan import Plan
    from tests.box import Box

pytestmark = pytest.mark.runtime

SHOWN = shown_of_etc({path: list_directory(path) for path in LISTED})
# All that a reader can tell of what lies at the paths of the arguments.
TELL = """
import hashlib, os, stat, sys
def tell(path):
    info = os.lstat(path)
    kind, mode = stat.S_IFMT(info.st_mode), stat.S_IMODE(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        print(repr(path), kind, os.readlink(path))
    elif stat.S_ISDIR(info.st_mode):
        print(repr(path), kind, mode, info.st_mtime_ns)
        for name in sorted(os.listdir(path)):
            tell(f"{path}/{name}")
    elif os.access(path, os.R_OK):
        digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
        print(repr(path), kind, mode, info.st_mtime_ns, digest)
for path in sys.argv[1:]:
    tell(path)
"""
WRITE = """
import os, sys
for path in sys.argv[1:]:
    name = f"{path}/of-ocisbx" if os.path.isdir(path) else path
    try:
        open(name, "a")
        print(path)
    except OSError:
        pass
"""
# With /etc/magic a file that we may write, as who we are: a run, a change of the file, a run.
CHANGED = """
set -e
mount --bind "$1" "$2"
shift 1
for text in one two; do
    echo $text >"$1"
    setpriv --ambient-caps -all "$PYTHON" -P -m ocisbx run --runtime "$RUNTIME" -- cat "$1"
done
"""


def plain(path: str) -> bool:
    """Whether it is a file in a file system of its own: what is mounted on it may be anything."""
    return os.path.isfile(path) and not os.path.ismount(path)


def test_it_is_what_the_host_has(box: Box) -> None:
    outside = subprocess.run(
        [sys.executable, "-c", TELL, *SHOWN], capture_output=True, text=True, check=True
    )
    inside = box.python(TELL, *SHOWN)
    assert inside.exit_code == 0, inside.stderr
    assert inside.stdout.decode().splitlines() == outside.stdout.splitlines()


def test_nothing_of_it_can_be_written(box: Box) -> None:
    before = {path: os.lstat(path).st_ctime_ns for path in SHOWN}
    assert box.python(WRITE, *SHOWN).stdout == b""
    assert {path: os.lstat(path).st_ctime_ns for path in SHOWN} == before


def test_what_is_small_costs_no_mount(box: Box) -> None:
    points = {line.split(" ")[4] for line in box.text("cat /proc/self/mountinfo").splitlines()}
    small = {path for path in SHOWN if survey(path) is not None}
    assert small, "every distribution has some"
    quirks = find_quirks(box.runtime.name, box.runtime.version)
    copied = set() if os.geteuid() == 0 or quirks.writes_root else small
    assert points & set(SHOWN) == set(SHOWN) - copied


def test_a_copy_is_roots_as_far_as_the_payload_can_tell(box: Box) -> None:
    """Of a mount the owner is nobody, whom no program that asks who owns its files trusts."""
    for node in plan_of(box).nodes:
        if node.kind == "copy":
            assert box.text(f"stat -c %u:%g {node.path}") == "0:0\n"


def test_a_plan_has_a_guard_for_each_copy(box: Box) -> None:
    plan = plan_of(box)
    copied = [node.path for node in plan.nodes if node.kind == "copy"]
    assert [guard.path for guard in plan.guards if guard.sight == "steady"] == copied


def test_a_bundle_that_is_kept_has_mounts(box: Box) -> None:
    """It may be run when what was copied is long out of date."""
    options = ["--runtime", box.runtime.path, "-o", str(box.base / "kept")]
    done = ocisbx(box, "bundle", "make", *options, "true")
    assert done.returncode == 0, done.stderr
    config = json.loads((box.base / "kept" / "config.json").read_text())
    assert set(SHOWN) <= {mount["destination"] for mount in config["mounts"]}
    small = next(path for path in SHOWN if os.path.isfile(path) and survey(path) is not None)
    assert not (box.base / "kept" / "rootfs" / small[1:]).read_bytes()


def plan_of(box: Box) -> Plan:
    fields = {"runtime": {"names": [box.runtime.path]}, "workspace": str(box.workspace)}
    return compile_plan(SandboxConfig.build(fields))


def test_a_change_of_the_host_is_seen_by_the_next_run(box: Box) -> None:
    """Also one that leaves the directory as it was."""
    files = [path for path in SHOWN if plain(path)]
    if not files:
        pytest.skip("this distribution has no single file in /etc that is shown")
    target = files[-1]
    mine = box.base / "mine"
    mine.touch()
    done = subprocess.run(
        ["unshare", "--user", "--map-current-user", "--mount", "--keep-caps",
         "sh", "-c", CHANGED, "sh", mine, target],
        env=environment(box, {"PYTHON": sys.executable, "RUNTIME": box.runtime.path}),
        cwd=box.workspace,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout == "one\ntwo\n", done.stderr
    assert Path(target).read_bytes() != b"two\n"
