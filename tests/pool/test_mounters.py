"""What waits beside a container to give it its workspace."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.box import PYTHON, eventually
from tests.pool.test_owner import collected, leaf, owner
from tests.pool.test_workspaces import directory, one_of_them, pool, text

if TYPE_CHECKING:
    import ocisbx
    from ocisbx.backends.mounter import Mounter
    from tests.box import Box
    from tests.pool.conftest import Make

__all__ = ["leaf", "pool"]

pytestmark = pytest.mark.runtime


def mounter(pool: ocisbx.Pool) -> Mounter:
    """That of the container which is handed out next."""
    pool.open()
    found = pool._store._waiting[0]._mounter
    assert found is not None
    return found


def namespaces(pid: int | str) -> dict[str, str]:
    return {kind: os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("user", "mnt")}


@one_of_them
def test_it_takes_no_copy_of_the_mounts_before_it_is_asked(pool: ocisbx.Pool) -> None:
    """What is mounted in a workspace until then is to be seen in it."""
    assert namespaces(mounter(pool)._child.pid) == namespaces("self")


@one_of_them
def test_a_container_whose_mounter_has_ended_is_not_handed_out(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    ended = mounter(pool)._child
    ended.kill(signal.SIGKILL)
    assert ended.wait(10) is not None
    assert text(pool, "echo sound", ours) == "sound\n"


@one_of_them
@pytest.mark.parametrize("warm", [None, PYTHON])
def test_nothing_runs_before_its_workspace_is_there(box: Box, make: Make, warm: str | None) -> None:
    """What is started ahead neither: it must not be told its code before."""
    pool = make(1, workspace="per-call", warm=warm)
    ours = directory(box, "ours")
    slow = mounter(pool)._child
    slow.kill(signal.SIGSTOP)
    goes_on = threading.Timer(0.3, slow.kill, [signal.SIGCONT])
    goes_on.start()
    begun_s = time.monotonic()
    if warm is None:
        result = pool.run(["touch", "made"], workspace=ours)
    else:
        result = pool.run_code("open('made', 'w').close()", workspace=ours)
    took_s = time.monotonic() - begun_s
    goes_on.join()
    assert (result.exit_code, result.stderr) == (0, b"")
    assert took_s >= 0.25
    assert os.listdir(ours) == ["made"]


@one_of_them
@pytest.mark.parametrize("given", [True, False])
def test_it_is_gone_while_the_command_runs(box: Box, pool: ocisbx.Pool, *, given: bool) -> None:
    """Reaped, too: a command may run for hours. Beside a short one nothing is done."""
    used = Path(f"/proc/{mounter(pool)._child.pid}")
    there = []
    ours = directory(box, "ours") if given else None
    # The caller's callbacks run when the command has said something.
    script = "sleep 0.2; echo"
    pool.run(["sh", "-c", script], workspace=ours, on_stdout=lambda _: there.append(used.exists()))
    assert there == [False]


@one_of_them
@pytest.mark.parametrize("given", [True, False])
def test_it_is_gone_after_a_short_command(box: Box, pool: ocisbx.Pool, *, given: bool) -> None:
    used = Path(f"/proc/{mounter(pool)._child.pid}")
    pool.run(["true"], workspace=directory(box, "ours") if given else None)
    assert eventually(lambda: not used.exists())


@one_of_them
def test_while_it_is_there_it_holds_no_mount_of_the_hosts(box: Box, pool: ocisbx.Pool) -> None:
    """Else what the workspace lies on could not be unmounted when the call has returned."""
    pool.open()
    member = pool._store.take()
    try:
        with pool._sandbox.workspace(directory(box, "ours")) as wanted:
            assert wanted is not None
            mounter, given = member._mounter, wanted.fit(member.workspaces)
            with contextlib.ExitStack() as names:
                assert mounter is not None
                mounter.begin(given, names)
                assert mounter.is_done()
                held = mounts_of_descriptors(mounter._child.pid)
                assert held
                assert not held & mounts_of("self")
                member.retire()
    finally:
        pool._store.put_back(member)


def mounts_of(pid: int | str) -> set[str]:
    return {line.split()[0] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()}


def mounts_of_descriptors(pid: int) -> set[str]:
    """The mounts on which lie what its descriptors stand for (proc_pid_fdinfo(5))."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    return {line.split()[1] for text in texts for line in text.splitlines() if "mnt_id" in line}


@one_of_them
def test_a_borrowers_command_has_none_beside_it(box: Box, pool: ocisbx.Pool) -> None:
    used = Path(f"/proc/{mounter(pool)._child.pid}")
    with pool.lend(str(directory(box, "ours"))):
        assert not used.exists()


@one_of_them
def test_none_outlives_its_owner_though_a_fork_does(box: Box, leaf: str) -> None:
    with owner(box, leaf, 2, "fork", "per-call") as found:
        children = psutil.Process(found.pid).children()
        mounters = [child for child in children if "ocisbx-cell" in " ".join(child.cmdline()[:1])]
        assert len(mounters) == 2
        found.kill()
        found.wait()
        try:
            assert eventually(lambda: not any(child.is_running() for child in mounters))
        finally:
            for child in set(children) - set(mounters):
                with contextlib.suppress(psutil.Error):
                    child.kill()
    assert collected(box, leaf) == 2
