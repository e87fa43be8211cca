"""What is small enough to be copied, and how it is known that a copy is true."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocisbx.steady import (
    ENTRIES_LIMIT,
    LOOKED_LIMIT,
    SIZE_LIMIT_BYTES,
    TICK_NS,
    copy,
    stands,
    survey,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTLED_S = 1.5 * TICK_NS / 1e9


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with a file, a file below, and a link."""
    top = tmp_path / "fonts"
    (top / "conf.d").mkdir(parents=True)
    (top / "fonts.conf").write_text("sans\n")
    (top / "conf.d" / "10.conf").write_text("serif\n")
    (top / "conf.d" / "20.conf").symlink_to("../fonts.conf")
    time.sleep(SETTLED_S)
    return top


def replace(path: Path) -> None:
    """As package managers do: another file of the same content takes its place."""
    shutil.copy2(path, f"{path}.new")
    os.replace(f"{path}.new", path)


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def append(path: Path) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("x")


def rewrite(path: Path) -> None:
    """As long, and as old."""
    info, text = path.stat(), path.read_text()
    with open(path, "r+", encoding="utf-8") as file:
        file.write(text.upper())
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "appended": lambda top: append(top / "fonts.conf"),
    "rewritten": lambda top: rewrite(top / "conf.d" / "10.conf"),
    "replaced": lambda top: replace(top / "fonts.conf"),
    "closed": lambda top: (top / "fonts.conf").chmod(0o600),
    "another": lambda top: (top / "conf.d" / "30.conf").touch(),
    "one less": lambda top: (top / "conf.d" / "10.conf").unlink(),
    "renamed": lambda top: (top / "fonts.conf").rename(top / "sans.conf"),
    "another link": lambda top: relink(top / "conf.d" / "20.conf"),
    "a link in its place": lambda top: relink(top / "fonts.conf"),
    "gone": shutil.rmtree,
    "moved away": lambda top: top.rename(top.parent / "old"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(tree: Path, change: str) -> None:
    looked = survey(str(tree))
    assert looked is not None
    assert stands(looked)
    CHANGES[change](tree)
    assert not stands(looked)
    time.sleep(SETTLED_S)
    assert survey(str(tree)) != looked


def test_what_has_changed_just_now_may_change_once_more(tree: Path) -> None:
    """With the same ctime, where that is as coarse as the timer."""
    append(tree / "fonts.conf")
    assert survey(str(tree)) is None
    time.sleep(SETTLED_S)
    assert survey(str(tree)) is not None


def test_to_read_it_is_no_change(tree: Path) -> None:
    looked = survey(str(tree))
    assert looked is not None
    (tree / "fonts.conf").read_text()
    os.listdir(tree / "conf.d")
    assert stands(looked)
    assert survey(str(tree)) == looked
    assert {one.path for one in looked} == {
        f"{tree}{path}" for path in ("", "/fonts.conf", "/conf.d", "/conf.d/10.conf")
    }


def many(count: int, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def fill(top: Path) -> None:
        for number in range(count):
            make(top / f"{number}")

    return fill


def large(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(SIZE_LIMIT_BYTES)


UNFIT: dict[str, Callable[[Path], object]] = {
    "too many to look at": many(LOOKED_LIMIT, lambda path: path.touch()),
    "too many to make": many(ENTRIES_LIMIT, lambda path: path.symlink_to("x")),
    "too large": lambda top: large(top / "large"),
    "a pipe": lambda top: os.mkfifo(top / "pipe"),
    "set-user-ID": lambda top: (top / "fonts.conf").chmod(0o4755),
    "a name that JSON cannot say": lambda top: os.mkdir(os.fsencode(top) + b"/\xff"),
    "a directory that could not be deleted": lambda top: (top / "conf.d").chmod(0o555),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_is_not_copied(tree: Path, what: str) -> None:
    UNFIT[what](tree)
    time.sleep(SETTLED_S)
    assert survey(str(tree)) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", ["fonts.conf", "conf.d"])
def test_what_cannot_be_read_is_not_copied(tree: Path, name: str) -> None:
    (tree / name).chmod(0o300 if (tree / name).is_dir() else 0)
    time.sleep(SETTLED_S)
    assert survey(str(tree)) is None
    (tree / name).chmod(0o700)


def test_the_largest_that_is_copied(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    large(top / "large")
    many(LOOKED_LIMIT - 2, lambda path: path.touch())(top)
    many(ENTRIES_LIMIT - LOOKED_LIMIT, lambda path: path.with_suffix(".l").symlink_to("x"))(top)
    time.sleep(SETTLED_S)
    looked = survey(str(top))
    assert looked is not None
    assert len(looked) == LOOKED_LIMIT
    assert len(list(top.iterdir())) == ENTRIES_LIMIT - 1


def test_what_is_not_there_is_not_copied(tmp_path: Path) -> None:
    assert survey(f"{tmp_path}/none") is None
    (tmp_path / "link").symlink_to("/dev/null")
    assert survey(f"{tmp_path}/link") is None


NAMES = st.text("abc", min_size=1, max_size=3)
TREES = st.recursive(
    st.one_of(
        st.tuples(st.just("file"), st.text("xy\n", max_size=5), st.sampled_from([0o644, 0o444])),
        st.tuples(st.just("link"), st.sampled_from(["a", "../b", "/etc/c"])),
    ),
    lambda below: st.dictionaries(NAMES, below, max_size=4),
    max_leaves=8,
)


def build(path: str, tree: object) -> None:
    if isinstance(tree, dict):
        os.mkdir(path)
        for name, below in tree.items():
            build(f"{path}/{name}", below)
        return
    assert isinstance(tree, tuple)
    if tree[0] == "link":
        os.symlink(tree[1], path)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(tree[1])
    os.chmod(path, tree[2])
    os.utime(path, ns=(0, 10**18 + 1))


def told(path: str) -> object:
    """Content, modes and times."""
    if os.path.islink(path):
        return os.readlink(path)
    info = os.stat(path)
    common = info.st_mode, info.st_mtime_ns
    if os.path.isdir(path):
        return common, {name: told(f"{path}/{name}") for name in os.listdir(path)}
    with open(path, "rb") as file:
        return common, file.read()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES, umask=st.sampled_from([0o022, 0o177, 0o277, 0o777, 0]))
def test_a_copy_is_what_its_source_is(tmp_path: Path, tree: object, umask: int) -> None:
    source, target = f"{tmp_path}/source", f"{tmp_path}/target"
    build(source, tree)
    before = told(source)
    old = os.umask(umask)
    try:
        copy(source, target)
        assert told(target) == told(source) == before
    finally:
        os.umask(old)
        for path in (source, target):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.unlink(path)


def test_what_has_vanished_is_left_out(tmp_path: Path) -> None:
    copy(f"{tmp_path}/none", f"{tmp_path}/target")
    assert not os.path.lexists(f"{tmp_path}/target")


def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    copy(f"{tmp_path}/pipe", f"{tmp_path}/target")
    assert (tmp_path / "target").read_bytes() == b""
