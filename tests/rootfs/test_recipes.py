"""Recipes, locks and digests of root file systems as documents: no process is started."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.rootfs_packages import has_subordinate_ids
from tools.rootfs_recipe import BuildError, Locked, Recipe, read_lock, write_lock
from tools.rootfs_tree import digest, is_built_root

ROOTFS = Path(__file__).resolve().parents[2] / "rootfs"
NAMES = sorted(path.parent.name for path in ROOTFS.glob("*/recipe.toml"))
VERSIONS = st.dictionaries(
    st.from_regex(r"[a-z0-9][a-z0-9+.-]+", fullmatch=True),
    st.from_regex(r"([0-9]:)?[0-9][A-Za-z0-9.+~-]*", fullmatch=True),
)


@pytest.mark.parametrize("name", NAMES)
def test_each_recipe_has_a_lock_of_its_present_form(name: str) -> None:
    recipe = Recipe.load(ROOTFS, name)
    lock = read_lock(ROOTFS / name / "lock.toml")
    assert {locked.recipe for tables in lock.values() for locked in tables.values()} == {
        recipe.fingerprint()
    }
    assert all(
        set(recipe.packages) <= locked.packages.keys()
        for tables in lock.values()
        for locked in tables.values()
    )


@given(VERSIONS, VERSIONS)
def test_a_lock_reads_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, str], second: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("lock") / "lock.toml"
    locked = Locked("sha256:0", "sha256:1", first)
    lock = {"bookworm": {"amd64": locked, "arm64": Locked("sha256:0", "sha256:2", second)}}
    write_lock(path, lock)
    assert read_lock(path) == lock
    assert len(locked.differences(second)) == len(dict(first.items() ^ second.items()))


@pytest.mark.parametrize("text", ["x", "[a]\nb = 1\n", "[a.b]\nrecipe = ''\n", "a = 1\n"])
def test_what_is_not_a_lock_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.toml").write_text(text)
    with pytest.raises(BuildError, match=r"lock\.toml"):
        read_lock(tmp_path / "lock.toml")


def _tree(path: Path) -> Path:
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "a").write_text("a")
    (path / "bin" / "l").symlink_to("a")
    return path


def _relink(root: Path) -> None:
    (root / "bin" / "l").unlink()
    (root / "bin" / "l").symlink_to("b")


CHANGES: list[Callable[[Path], object]] = [
    lambda root: (root / "bin" / "a").write_text("b"),
    lambda root: (root / "bin" / "a").chmod(0o700),
    lambda root: (root / "bin" / "a").rename(root / "bin" / "b"),
    lambda root: (root / "bin").chmod(0o700),
    lambda root: (root / "new").mkdir(),
    _relink,
]


def test_the_digest_sees_each_change_but_times(tmp_path: Path) -> None:
    base = digest(_tree(tmp_path / "base"))
    os.utime(tmp_path / "base" / "bin" / "a", (1, 1))
    assert digest(tmp_path / "base") == base
    changed = set()
    for number, change in enumerate(CHANGES):
        root = _tree(tmp_path / str(number))
        change(root)
        changed.add(digest(root))
    assert len(changed | {base}) == 1 + len(CHANGES)


def test_a_tree_with_a_fifo_has_no_digest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BuildError, match="fifo is neither"):
        digest(tmp_path)


def test_the_system_and_a_linked_dev_are_not_taken_for_our_work(tmp_path: Path) -> None:
    for name in ("dev", "proc", "sys"):
        (tmp_path / name).mkdir()
    assert is_built_root(tmp_path)
    (tmp_path / "dev").rmdir()
    (tmp_path / "dev").symlink_to("proc")
    assert not is_built_root(tmp_path)
    assert not is_built_root(Path("/"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("dev:100000:65536\n", True),
        ("1001:100000:65536\n", True),
        ("dev:1:10\ndev:100000:65536", True),
        ("dev:100000:65535\n", False),
        ("devel:100000:65536\n", False),
        ("dev:100000\ndev:1:x\n\n", False),
        ("", False),
    ],
)
def test_subordinate_ids(tmp_path: Path, text: str, found: bool) -> None:  # noqa: FBT001  (a column)
    assert not has_subordinate_ids(tmp_path / "absent", "dev", 1001)
    (tmp_path / "subuid").write_text(text)
    assert has_subordinate_ids(tmp_path / "subuid", "dev", 1001) is found
