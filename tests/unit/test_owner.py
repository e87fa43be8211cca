"""Whose a bundle is: records and the names of drafts, against the processes of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ocisbx.bundle.directory import BundleDirectory
from ocisbx.bundle.owner import Owner, draft_alive, draft_name, read_owner
from ocisbx.errors import BundleError
from ocisbx.probe.processes import boot_id, pid_namespace, start_time

if TYPE_CHECKING:
    from pathlib import Path


def owner(**changes: object) -> Owner:
    document: dict[str, object] = {
        "id": "0123", "name": None, "pid": os.getpid(), "start_time": start_time(os.getpid()),
        "pid_namespace": pid_namespace(), "boot_id": boot_id(), "command": ["true"],
        "created_at": "2026-01-01T00:00:00.000+00:00",
        "workdir": "/", "runtime_name": "runc", "runtime_path": "/usr/sbin/runc",
        "runtime_version": "1.1.5", "runtime_args": [], "cell": "none", "cgroup": "",
        "policy": {},
    }  # fmt: skip
    return Owner(**(document | changes))  # type: ignore[arg-type]


def draft(one: Owner) -> str:
    return draft_name(one.pid, one.start_time, one.pid_namespace, "0123")


def test_alive_is_this_very_process() -> None:
    assert owner().alive()
    for change in ({"start_time": 1}, {"boot_id": "another"}, {"pid": 2**22 + 1}):
        assert not owner(**change).alive(), change


def test_pids_of_another_namespace_are_not_ours_to_judge() -> None:
    """As seen from a container, or from `unshare --pid`: there every pid of ours looks dead."""
    elsewhere = owner(pid=2**22 + 1, pid_namespace=1)
    assert elsewhere.alive()
    assert draft_alive(draft(elsewhere)) is True
    assert not elsewhere._replace(boot_id="another").alive()


def test_drafts_tell_who_makes_them() -> None:
    name = draft(owner())
    assert draft_alive(name) is True
    assert draft_alive(draft(owner(start_time=1))) is False
    for other in (
        "0123",
        ".",
        "..",
        ".x.y.z",
        ".1.2",
        ".1.2.3",
        "1.2.3.4",
        ".-1.2.3.x",
        ". 1.2.3.x",
    ):
        assert draft_alive(other) is None, other


def test_a_bundle_appears_with_its_record(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    bundle = BundleDirectory(str(tmp_path / "run" / "bundles" / "0123"))
    bundle.create(0o700, owner())
    assert os.listdir(tmp_path / "run" / "bundles") == ["0123"]
    assert read_owner(bundle.path) == owner()
    bundle.remove()
    assert os.listdir(tmp_path / "run" / "bundles") == []


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"id": "x"}', "\udcff"])
def test_records_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "owner.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BundleError):
        read_owner(str(tmp_path))
