"""What others, and earlier payloads, may have prepared: places, views, names and programs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.gc import Leftover, collect, remove, sweep
from ocisbx.backends.names import claim_name, forget_names, lookup_name, release_name
from ocisbx.bundle.check import check_bundle
from ocisbx.bundle.directory import BundleDirectory, remove_tree
from ocisbx.bundle.kept import read_config
from ocisbx.bundle.owner import read_owner
from ocisbx.bundle.view import shared_view
from ocisbx.errors import BundleError, InvalidState
from ocisbx.places import bundle_names, ensure, find_places, trusted
from ocisbx.plan import RootNode
from tests.unit.test_owner import owner

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUNTIME_DIR", "CACHE_HOME", "STATE_HOME"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name))


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A directory of the caller's, old enough to look like a leftover."""
    path = tmp_path / "home" / "precious"
    path.mkdir(parents=True)
    (path / "file").write_text("x")
    path.chmod(0o755)
    os.utime(path, (0, 0))
    return path


def test_a_link_in_the_place_of_the_bundles_is_not_followed(precious: Path) -> None:
    runtime = ensure(find_places().runtime)
    os.symlink(precious.parent, f"{runtime}/bundles")
    assert bundle_names() == []
    sweep()
    assert collect() == []
    assert (precious / "file").exists()


def test_a_place_that_others_can_write_is_not_looked_into(precious: Path) -> None:
    runtime = ensure(find_places().runtime)
    bundles = ensure(find_places().bundles)
    os.symlink(precious, f"{bundles}/.1.0.x")
    os.chmod(runtime, 0o770)  # noqa: S103 -- what is to be refused
    assert not trusted(runtime)
    sweep()
    assert collect() == []
    assert os.path.lexists(f"{bundles}/.1.0.x")


def test_a_bundle_of_this_process_is_no_leftover_until_it_is_gone() -> None:
    bundle = BundleDirectory(f"{find_places().bundles}/ours")
    bundle.create(0o700, owner(id="ours"))
    os.unlink(f"{bundle.path}/owner.json")
    sweep()
    assert bundle_names() == ["ours"]

    bundle.remove()
    os.mkdir(bundle.path)
    sweep()
    assert bundle_names() == []


def test_a_link_among_the_bundles_is_deleted_and_nothing_behind_it(precious: Path) -> None:
    ensure(find_places().runtime)
    link = f"{ensure(find_places().bundles)}/.1.0.x"
    os.symlink(precious, link)
    remove_tree(link)
    assert not os.path.lexists(link)
    assert precious.stat().st_mode & 0o777 == 0o755
    assert (precious / "file").exists()


@pytest.mark.parametrize("umask", [0o777, 0o177, 0o077, 0])
def test_places_have_their_mode_whatever_the_umask(umask: int) -> None:
    before = os.umask(umask)
    try:
        BundleDirectory(f"{find_places().bundles}/0123").create(0o700, owner())
    finally:
        os.umask(before)
    assert bundle_names() == ["0123"]


def test_a_view_that_is_a_link_is_not_used(precious: Path) -> None:
    nodes = (RootNode("directory", "/a", "", 0o755),)
    made = shared_view(nodes)
    assert made is not None
    os.rename(made, f"{made}.old")
    os.symlink(precious, made)
    assert shared_view(nodes) is None


def test_a_name_is_released_by_its_holder_only() -> None:
    for container_id in ("0123", "4567"):
        BundleDirectory(f"{find_places().bundles}/{container_id}").create(
            0o700, owner(id=container_id)
        )
    claim_name("mine", "0123")
    with pytest.raises(InvalidState):
        claim_name("mine", "4567")
    release_name("mine", "4567")
    assert lookup_name("mine") == "0123"
    forget_names()
    assert lookup_name("mine") == "0123"
    release_name("mine", "0123")
    claim_name("mine", "4567")
    assert lookup_name("mine") == "4567"


def test_a_leftover_that_is_gone_counts_as_removed() -> None:
    ensure(find_places().runtime)
    path = f"{ensure(find_places().bundles)}/0123"
    assert remove(Leftover("0123", path, None), settle_s=0.0)


@pytest.mark.parametrize("name", ["config.json", "owner.json"])
def test_a_bundle_whose_file_is_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(BundleError):
        (read_config if name == "config.json" else read_owner)(str(tmp_path))


@pytest.mark.parametrize(
    "change", [{"pid": "1"}, {"command": 5}, {"command": [5]}, {"runtime_version": None}]
)
def test_a_record_of_other_types_is_none(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "owner.json").write_text(owner(**change).to_json())
    with pytest.raises(BundleError):
        read_owner(str(tmp_path))


def test_a_root_with_a_nul_is_a_violation(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"ociVersion": "1.0.2", "root": {"path": "a\\u0000b"}, "process": {"cwd": "/", '
        '"user": {"uid": 0, "gid": 0}, "args": ["/.ocisbx/init", "--", "true"]}}'
    )
    assert "$.root.path" in [found.path for found in check_bundle(str(tmp_path))]
