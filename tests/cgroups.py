"""A part of the cgroup v2 hierarchy that the tests may divide, and processes in it.

tools/test, started by root, makes one for the test user; elsewhere the tests are started with
`systemd-run --user --scope -p Delegate=yes tools/test`. Without one these tests fail rather than
pass for nothing; only where there is no way, no cgroup v2 or a read-only one, they are skipped.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.box import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
REMEDY = (
    "these tests need a delegated cgroup: run tools/test as root, which makes one, or "
    "`systemd-run --user --scope -p Delegate=yes tools/test`"
)
ENTER = 'echo $$ >"$0/cgroup.procs" && exec "$@"'


def delegated_parent() -> Path:
    """The cgroup in which ours lies, when it is ours to divide: siblings can be made there."""
    mount = next((one for one in MOUNTS if (one / "cgroup.procs").exists()), None)
    if mount is None or os.statvfs(mount).f_flag & os.ST_RDONLY:
        pytest.skip("this host has no cgroup v2 that can be written")
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    own = next(line[3:] for line in lines if line.startswith("0::"))
    parent = (mount / own.lstrip("/")).parent
    if own == "/" or not os.access(parent, os.W_OK) or os.geteuid() == 0:
        pytest.fail(REMEDY)
    return parent


@pytest.fixture
def cgroup() -> Iterator[str]:
    """An empty cgroup beside our own; what the test leaves of it is killed and removed."""
    path = delegated_parent() / f"ocisbx-{uuid.uuid4().hex[:20]}"
    path.mkdir()
    yield str(path)
    if path.exists():
        (path / "cgroup.kill").write_text("1", encoding="ascii")
        assert eventually(lambda: not members(path))
        assert eventually(lambda: remove(path))


def remove(path: Path) -> bool:
    for parent, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(parent)
        except OSError:
            return False
    return True


def start(cgroup: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process whose first instruction runs inside the cgroup."""
    return subprocess.Popen(["sh", "-c", ENTER, cgroup, *argv], stdin=subprocess.DEVNULL)


def members(cgroup: Path | str) -> set[int]:
    """The processes of the cgroup and all below."""
    found: set[int] = set()
    for file in (Path(cgroup) / "cgroup.procs", *Path(cgroup).rglob("cgroup.procs")):
        try:
            found.update(map(int, file.read_text(encoding="ascii").split()))
        except OSError:
            continue
    return found


def state(pid: int) -> str:
    """One letter (proc_pid_stat(5)): R, S, T stopped, t traced, Z; empty: no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text[text.rindex(")") + 2 :][0]
