"""A workspace whose name leads elsewhere between its judgement, its opening and its mount."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx.backends.late import opened
from ocisbx.calls import given_call
from ocisbx.errors import InvalidState
from ocisbx.mounts import PER_CALL_PLACE
from ocisbx.plan import identity
from ocisbx.pool.member import Order
from tests.box import PATIENCE_S, eventually
from tests.cgroups import state
from tests.pool.test_workspaces import (
    SECRET,
    _nothing_is_mounted_here,
    directory,
    native,
    one_of_them,
    pool,
    text,
)
from tests.security.steps import programs_of
from tests.trees import repository, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ocisbx.backends.late import Late
    from tests.box import Box
    from tests.pool.conftest import Make

__all__ = ["_nothing_is_mounted_here", "pool"]

pytestmark = pytest.mark.runtime


@contextlib.contextmanager
def between(pool: ocisbx.Pool, workspace: Path) -> Iterator[Any]:
    """What a call does, halted between the judgement of its workspace and the mount."""
    with pool._sandbox.workspace(workspace) as judged:
        assert judged is not None
        member = pool._store.take()
        try:
            yield member, judged.fit(member.workspaces)
        finally:
            pool._store.put_back(member)


@one_of_them
def test_a_name_that_leads_elsewhere_after_the_judgement(box: Box, pool: ocisbx.Pool) -> None:
    """What was judged is mounted, by its descriptor."""
    ours, secret = directory(box, "ours"), directory(box, "secret")
    (ours / "mine").write_text("mine")
    (secret / "mine").write_text(SECRET)
    with between(pool, ours) as (member, given):
        ours.rename(box.base / "moved")
        ours.symlink_to(secret)
        call = given_call(["cat", f"{PER_CALL_PLACE}/mine"])
        with pytest.raises(ocisbx.OcisbxError) as refused:
            assert member.give(Order(given.late.on(member.plan), call, workspace=given))
        # What keeps names free is made by its path, on which there is a link now.
        assert "names free" in refused.value.what
    assert tree(secret) == {"mine": SECRET}


def judged(pool: ocisbx.Pool, workspace: Path) -> Late:
    made = pool._sandbox.made(pool._sandbox.resolve())
    assert made is not None
    return made.find(str(workspace))


@one_of_them
def test_a_parent_that_was_a_link_while_its_identity_was_asked_for(
    box: Box, pool: ocisbx.Pool
) -> None:
    """By the name it is the right directory then, and not the one that the rules are about."""
    parent = box.base / "parent"
    secret = box.base / "elsewhere"
    (parent / "ours").mkdir(parents=True)
    (secret / "ours").mkdir(parents=True)
    late = judged(pool, parent / "ours")
    parent.rename(box.base / "spare")
    parent.symlink_to(secret)
    wrong = late._replace(identity=identity((secret / "ours").stat()))
    with pytest.raises(InvalidState, match="changed while") as refused, opened(wrong):
        pass
    assert "symlink" in refused.value.why


@one_of_them
def test_a_rule_that_is_the_pools_own_holds_for_what_comes_later(box: Box, make: Make) -> None:
    """It was compiled for an earlier call with the same workspace."""
    ours = directory(box, "ours")
    pool = make(2, workspace="per-call", filesystem={"deny_read": [f"{box.base}/**/.env"]})
    assert text(pool, "cat .env 2>&1 || echo none", ours).endswith("none\n")
    (ours / ".env").write_text(SECRET)
    for _ in range(4):
        assert SECRET not in text(pool, "cat .env 2>&1; true", ours)


@one_of_them
@pytest.mark.parametrize("put", ["link", "directory", "nothing"])
def test_a_name_that_changes_before_it_is_opened(box: Box, pool: ocisbx.Pool, put: str) -> None:
    ours = directory(box, "ours")
    late = judged(pool, ours)
    ours.rename(box.base / "moved")
    if put == "link":
        ours.symlink_to(box.base / "moved")
    elif put == "directory":
        ours.mkdir()
    with pytest.raises(InvalidState, match="changed while"), opened(late):
        pass


@one_of_them
@pytest.mark.parametrize("name", [".git", ".git/hooks"])
def test_a_link_where_something_is_protected(box: Box, pool: ocisbx.Pool, name: str) -> None:
    ours, secret = directory(box, "ours"), directory(box, "secret")
    repository(ours)
    (secret / "hooks").mkdir()
    with between(pool, ours) as (member, given):
        (ours / name).rename(ours / "spare")
        (ours / name).symlink_to(secret)
        with pytest.raises(ocisbx.OcisbxError):
            member.mount(given)
    assert tree(secret) == {"hooks": None}
    assert text(pool, "true", ours) == ""


@one_of_them
def test_without_the_cells_look_at_links_they_would_be_followed(box: Box, make: Make) -> None:
    """What the test above is about is the kernel's doing, and nothing before it."""
    taken = (".resolve = resolve | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,", ".resolve = 0,")
    ours, secret = directory(box, "ours"), directory(box, "secret")
    repository(ours)
    (secret / "hooks").mkdir()
    with (
        programs_of(box.base / "programs", ("cell_workspace.c", *taken)),
        between(make(1, workspace="per-call"), ours) as (member, given),
    ):
        (ours / ".git/hooks").rename(ours / "spare")
        (ours / ".git/hooks").symlink_to(secret)
        assert member.mount(given)


@one_of_them
def test_without_read_only_layers_what_is_protected_would_be_written(box: Box, make: Make) -> None:
    taken = ("writable ? 0 : MOUNT_ATTR_RDONLY,", "0,")
    ours = directory(box, "ours")
    repository(ours)
    write = "echo evil >.git/hooks/pre-commit && echo written; true"
    assert text(make(1, workspace="per-call"), write, ours) == ""
    with programs_of(box.base / "programs", ("cell_workspace.c", *taken)):
        assert text(make(1, workspace="per-call"), write, ours) == "written\n"


@one_of_them
def test_a_swap_that_never_ends(box: Box, pool: ocisbx.Pool) -> None:
    """The link leads to what is no sandbox's to have, and no call ever sees that."""
    ours, aside, secret = directory(box, "ours"), box.base / "aside", box.run_directory / "secret"
    pool.open()
    secret.write_text(SECRET)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            ours.rename(aside)
            ours.symlink_to(box.run_directory)
            time.sleep(0.0005)
            ours.unlink()
            aside.rename(ours)
            time.sleep(0.01)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: list[bytes] = []
    refused = 0
    until = time.monotonic() + PATIENCE_S
    try:
        # Until some came through, and some were refused.
        while (len(seen) < 10 or refused < 10) and time.monotonic() < until:
            try:
                seen.append(pool.run(["sh", "-c", "cat secret; touch made"], workspace=ours).stdout)
            except ocisbx.OcisbxError:
                refused += 1
    finally:
        over.set()
        swapper.join()
        secret.unlink()
    assert refused
    assert set(seen) == {b""}
    assert os.listdir(ours) == ["made"]


@native
def test_a_member_that_ends_before_the_mount(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    with between(pool, ours) as (member, given):
        os.kill(member.execution.init_pid, signal.SIGKILL)
        assert eventually(lambda: state(member.execution.init_pid) in ("", "Z"))
        assert not member.mount(given)
    assert text(pool, "echo fine", ours) == "fine\n"
