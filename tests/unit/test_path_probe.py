"""Where rules lead on a real tree, what mountinfo says, and placeholders."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.compile import WALKED_LIMIT
from ocisbx.backends.placeholders import forget_placeholders, hold, registers
from ocisbx.backends.spares import HOMES, pool
from ocisbx.container.rules import Rule, Verb
from ocisbx.errors import OcisbxError
from ocisbx.host import Matches, PathKind
from ocisbx.placeholder import LISTED, Placeholder, absent, are_blank, is_blank
from ocisbx.plan import fingerprint
from ocisbx.probe import policy
from ocisbx.probe.mounted import ANYWHERE, Granted, Judge, read_table

if TYPE_CHECKING:
    from pathlib import Path


# ------------------------------------------------------------------------------------- the host
def led(pattern: str, verb: Verb = "deny_write") -> Matches:
    return policy.find_matches([Rule(verb, pattern, pattern, "caller")])[pattern]


def test_plain_paths(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/f").write_text("x")
    (tmp_path / "link").symlink_to("d")
    os.mkfifo(tmp_path / "fifo")
    (file,) = led(f"{tmp_path}/link/f").places
    assert (file.real, file.kind, file.missing) == (f"{tmp_path}/d/f", PathKind.FILE, "")
    assert [(link.path, link.target, link.rest) for link in file.links] == [
        (f"{tmp_path}/link", "d", "f")
    ]
    (gone,) = led(f"{tmp_path}/link/x/y").places
    assert (gone.real, gone.missing) == (f"{tmp_path}/d/x/y", f"{tmp_path}/d/x")
    assert gone.kind is PathKind.MISSING
    (empty,) = led(f"{tmp_path}/d/e").places
    assert (empty.kind, empty.missing) == (PathKind.DIRECTORY, f"{tmp_path}/d/e")
    assert led(f"{tmp_path}/fifo").places[0].kind is PathKind.OTHER
    (tmp_path / "round").symlink_to("round")
    assert led(f"{tmp_path}/round/x").places[0].kind is PathKind.MISSING
    assert led(f"{tmp_path}/d/f/x").places[0].kind is PathKind.MISSING


def test_globs(tmp_path: Path) -> None:
    for name in ("a/.env", "a/b/.env", ".env", "a/b/c.key"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    # Not followed: what it leads to is found where it lies.
    (tmp_path / "z").symlink_to("a")
    (tmp_path / "y.key").symlink_to("a/b/c.key")
    found = led(f"{tmp_path}/**/.env")
    assert [one.real for one in found.places] == [
        f"{tmp_path}/{name}" for name in (".env", "a/.env", "a/b/.env")
    ]
    assert found.walked == tuple(f"{tmp_path}{name}" for name in ("", "/a", "/a/b"))
    assert found.cut == ""
    keys = led(f"{tmp_path}/**/*.key")
    assert [(one.real, len(one.links)) for one in keys.places] == [
        (f"{tmp_path}/a/b/c.key", 0),
        (f"{tmp_path}/a/b/c.key", 1),
    ]
    assert led(f"{tmp_path}/none/*").walked == (f"{tmp_path}/none",)
    (tmp_path / os.fsdecode(b"\xff.key")).write_text("x")
    assert "not UTF-8" in led(f"{tmp_path}/*.key").cut


def test_a_walk_has_bounds(tmp_path: Path) -> None:
    for number in range(policy.PLACES_LIMIT + 1):
        (tmp_path / f"{number}").touch()
    assert str(policy.PLACES_LIMIT) in led(f"{tmp_path}/*").cut
    deep = tmp_path / "deep"
    deep.joinpath(*["d"] * (policy.WALK_DEPTH + 1)).mkdir(parents=True)
    assert f"deeper than {policy.WALK_DEPTH}" in led(f"{deep}/**/x").cut
    assert WALKED_LIMIT > policy.WALK_DEPTH


def test_other_names(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text("x")
    (tmp_path / "d/inside").hardlink_to(tmp_path / "d/f")
    assert led(f"{tmp_path}/d").places[0].elsewhere == ""
    assert led(f"{tmp_path}/d/f").places[0].elsewhere == f"{tmp_path}/d/f"
    (tmp_path / "outside").hardlink_to(tmp_path / "d/f")
    assert led(f"{tmp_path}/d").places[0].elsewhere
    assert led(f"{tmp_path}/d", "allow_write").places[0].elsewhere == ""


def test_own_code_where_it_can_be_written(tmp_path: Path) -> None:
    assert policy.own_code([], [str(tmp_path)]) == ()
    runtime = tmp_path / "bin" / "crun"
    runtime.parent.mkdir()
    runtime.touch()
    assert policy.own_code([str(runtime)], [str(tmp_path)]) == (str(runtime),)
    package = os.path.dirname(os.path.dirname(policy.__file__))
    assert package in policy.own_code([], [os.path.dirname(package)])


def test_what_is_blank(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert is_blank(str(path))
    path.mkdir()
    assert is_blank(str(path))
    (path / "f").touch()
    assert not is_blank(str(path))
    for text, blank in ((".", True), ("", False), ("..", False), ("x", False)):
        (tmp_path / "f").write_text(text)
        assert is_blank(f"{tmp_path}/f") == blank
    (tmp_path / "l").symlink_to(".")
    assert not is_blank(f"{tmp_path}/l")


def test_which_names_are_certainly_absent(tmp_path: Path) -> None:
    """Not those of which a file system might find another spelling, nor in a directory of many."""
    wanted = [".a", ".b", ".c", ".d", ".\u00fc"]
    assert absent(str(tmp_path), wanted[:3]) == frozenset()
    assert absent(str(tmp_path), wanted) == {".a", ".b", ".c", ".d"}
    (tmp_path / ".A").touch()
    (tmp_path / ".b").touch()
    assert absent(str(tmp_path), wanted) == {".c", ".d"}
    (tmp_path / "\u212a").touch()
    assert absent(str(tmp_path), wanted) == frozenset()
    (tmp_path / "\u212a").unlink()
    for number in range(LISTED - 1):
        (tmp_path / f"{number}").touch()
    assert absent(str(tmp_path), wanted) == frozenset()
    with pytest.raises(FileNotFoundError):
        absent(f"{tmp_path}/none", wanted)


@pytest.mark.parametrize("others", [0, LISTED + 1])
def test_whether_names_are_blank(tmp_path: Path, others: int) -> None:
    wanted = [".a", ".b", ".c", ".d"]
    assert are_blank(f"{tmp_path}/none", wanted)
    assert are_blank(str(tmp_path), wanted)
    for number in range(others):
        (tmp_path / f"{number}").touch()
    (tmp_path / ".c").mkdir()
    assert are_blank(str(tmp_path), wanted)
    (tmp_path / ".c/f").touch()
    assert not are_blank(str(tmp_path), wanted)
    assert not are_blank(f"{tmp_path}/.c/f", wanted)


def test_what_a_plan_sees_of_a_directory(tmp_path: Path) -> None:
    seen = fingerprint(str(tmp_path), "entries")
    (tmp_path / "x").mkdir()
    assert fingerprint(str(tmp_path), "entries") != seen
    (tmp_path / "x").rmdir()
    assert fingerprint(str(tmp_path), "entries") == seen
    (tmp_path / "x").symlink_to("/")
    linked = fingerprint(str(tmp_path), "entries")
    (tmp_path / "x").unlink()
    (tmp_path / "x").write_text("")
    assert fingerprint(str(tmp_path), "entries") not in (seen, linked)
    assert fingerprint(f"{tmp_path}/none", "entries") is None


# ----------------------------------------------------------------------------------- mountinfo
HOST = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:5 / /dev rw - devtmpfs devtmpfs rw
25 22 0:30 / /run/user/1000 rw - tmpfs tmpfs rw
26 22 8:2 /sub/vol /srv rw - btrfs /dev/vdb rw
27 22 8:1 /data /mnt/new\\040name rw - ext4 /dev/vda rw
"""
GRANTED = [
    Granted("/usr", "/usr", writable=False),
    Granted("/srv/work", "/srv/work", writable=True),
    Granted("/mnt/new name", "/given", writable=True),
    Granted("/run/user/1000/ocisbx/kept", ANYWHERE, writable=False),
    Granted("/home/me/.cache/views/x", "/", writable=True),
]
SOUND = """\
40 30 8:1 /home/me/.cache/views/x / ro - ext4 /dev/vda rw
41 40 0:50 / /proc rw - proc proc rw
42 40 0:51 / /dev rw - tmpfs tmpfs rw
43 42 0:5 /null /dev/null rw - devtmpfs devtmpfs rw
44 41 0:5 /null /proc/kcore rw - devtmpfs devtmpfs rw
45 40 8:1 /usr /usr ro - ext4 /dev/vda rw
46 40 8:2 /sub/vol/work /srv/work rw - btrfs /dev/vdb rw
47 46 8:2 /sub/vol/work/.git /srv/work/.git rw - btrfs /dev/vdb rw
48 47 8:2 /sub/vol/work/.git/config /srv/work/.git/config ro - btrfs /dev/vdb rw
49 46 0:30 /ocisbx/kept/covers/empty /srv/work/.vscode ro - tmpfs tmpfs rw
50 40 8:1 /data /given rw - ext4 /dev/vda rw
"""
STRANGE = {
    "something else of the host": "60 46 8:1 /home/me /srv/work/.git rw - ext4 /dev/vda rw",
    "a file system of the host's": "60 46 0:30 / /srv/work/x rw - tmpfs tmpfs rw",
    "the host's proc": "60 46 0:21 / /srv/work/x rw - proc proc rw",
    "given at another place": "60 46 8:2 /sub/vol/work/secret /srv/work/x ro - btrfs /dev/vdb rw",
    "given for reading": "60 46 8:1 /usr /usr rw - ext4 /dev/vda rw",
    "beside what is given": "60 46 8:2 /sub/vol/workers /srv/workers ro - btrfs /dev/vdb rw",
    "kept, writable": "60 46 0:30 /ocisbx/kept/covers/empty /srv/work/x rw - tmpfs tmpfs rw",
    "deleted": "60 46 8:2 /sub/vol/work/x//deleted /srv/work/x rw - btrfs /dev/vdb rw",
    "an unknown device": "60 46 9:9 / /srv/work/x rw - nfs4 server:/x rw",
}


OWN = [Granted("/home/me/.cache/bundles/b/root", "/own", writable=True)]


@pytest.fixture
def judge() -> Judge:
    return Judge(HOST, tuple(GRANTED))


def test_a_sound_container(judge: Judge) -> None:
    own = "51 40 8:1 /home/me/.cache/bundles/b/root /own rw - ext4 /dev/vda rw\n"
    for _ in range(2):
        assert judge.strange(SOUND + own, OWN) == []
    # What is one container's own is strange in another.
    assert [row.point for row in judge.strange(SOUND + own, ())] == ["/own"]


@pytest.mark.parametrize("what", STRANGE)
def test_a_strange_mount(judge: Judge, what: str) -> None:
    point = STRANGE[what].split(" ")[4]
    # Nothing is learned from it, and what is learned of sound ones does not hide it.
    for _ in range(2):
        assert [row.point for row in judge.strange(f"{SOUND}{STRANGE[what]}\n", OWN)] == [point]
        assert judge.strange(SOUND, OWN) == []


def test_a_name_may_hold_what_ends_a_line_elsewhere(tmp_path: Path) -> None:
    text = f"{SOUND}60 46 8:2 /sub/vol/a\rb /srv/a\rb rw - btrfs /dev/vdb rw\n"
    (tmp_path / "mountinfo").write_text(text, newline="")
    assert read_table(f"{tmp_path}/mountinfo") == text


def test_a_row_that_a_name_seems_to_end(judge: Judge) -> None:
    odd = "60 46 8:1 /home/me/a\x1cb /srv/work/x\u2028y rw - ext4 /dev/vda rw\n"
    assert [row.point for row in judge.strange(odd, OWN)] == ["/srv/work/x\u2028y"]


# ---------------------------------------------------------------------------------- placeholders
@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, f"{tmp_path}/{name}")
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def place_of(path: Path) -> str:
    info = path.stat()
    return f"{pool()}/{info.st_dev:x}-{info.st_ino:x}"


def spares(path: Path) -> list[str]:
    return os.listdir(place_of(path))


def test_placeholders_come_and_go(workspace: Path) -> None:
    wanted = [Placeholder(f"{workspace}/a"), Placeholder(f"{workspace}/f", ".")]
    for _ in range(2):
        with hold(wanted):
            assert names(workspace) == ["a", "f"]
            assert (workspace / "f").read_text() == "."
            assert len(os.listdir(registers())) == 1
        assert names(workspace) == []
        assert os.listdir(registers()) == []
        # The second time they come from here.
        assert len(spares(workspace)) == 2


def test_spares_that_are_not_what_they_are_named(workspace: Path) -> None:
    """Who trusted the name would leave it behind, or take away somebody else's."""
    with hold([Placeholder(f"{workspace}/a")]):
        pass
    notes = workspace.parent / "notes"
    notes.write_text("not ours")
    notes.rename(f"{place_of(workspace)}/notes")
    with hold([Placeholder(f"{workspace}/a")]):
        assert names(workspace) == ["a"]
    assert names(workspace) == []
    os.unlink(f"{place_of(workspace)}/notes")
    with hold([Placeholder(f"{workspace}/a")]):
        (workspace / "a").rename(workspace / "b")
        (workspace / "a").mkdir()
    assert names(workspace) == ["a", "b"]


def test_a_spare_goes_back_to_where_it_was_only(workspace: Path) -> None:
    """A payload that may write in one of them may hold it open for longer than it is there."""
    other = workspace.parent / "other"
    other.mkdir()
    texts = [Placeholder(f"{place}/f", ".") for place in (workspace, other)]
    with hold(texts[:1]), open(workspace / "f", "r+") as held:
        inode = os.fstat(held.fileno()).st_ino
    with hold(texts[1:]):
        assert (other / "f").stat().st_ino != inode
    with hold(texts[:1]):
        assert (workspace / "f").stat().st_ino == inode
    # What is none of ours there makes room, too.
    with open(f"{pool()}/odd", "w", encoding="utf-8"):
        pass
    for number in range(HOMES):
        (workspace.parent / f"{number}").mkdir()
        with hold([Placeholder(f"{workspace.parent}/{number}/a")]):
            pass
    assert len(os.listdir(pool())) == HOMES
    assert len(spares(workspace.parent / f"{number}")) == 1


def test_a_spare_of_two_names_after_a_kill(workspace: Path) -> None:
    """It came between link(2) and unlink(2)."""
    wanted = [Placeholder(f"{workspace}/f", ".")]
    with hold(wanted):
        inode = (workspace / "f").stat().st_ino
        os.link(workspace / "f", f"{place_of(workspace)}/. {inode}")
    assert names(workspace) == []
    (spare,) = os.scandir(place_of(workspace))
    assert spare.stat().st_nlink == 1


def test_the_last_one_removes_what_all_of_them_made(workspace: Path) -> None:
    with hold([Placeholder(f"{workspace}/a"), Placeholder(f"{workspace}/b")]):
        with hold([Placeholder(f"{workspace}/b"), Placeholder(f"{workspace}/c")]):
            assert names(workspace) == ["a", "b", "c"]
            forget_placeholders()
        assert names(workspace) == ["a", "b", "c"]
    assert names(workspace) == []


@pytest.mark.parametrize("pooled", [False, True])
def test_nothing_of_somebody_elses_is_taken_away(workspace: Path, *, pooled: bool) -> None:
    (workspace / "mine").mkdir()
    made = ("mine", "filled", "replaced", "gone", "closed")
    wanted = [Placeholder(f"{workspace}/{name}") for name in made]
    wanted.append(Placeholder(f"{workspace}/text", "."))
    if pooled:
        with hold(wanted):
            pass
        assert len(spares(workspace)) == 5
    with hold(wanted):
        # A tick of the clock that sets ctime.
        time.sleep(0.02)
        before = (workspace / "filled").stat()
        (workspace / "filled/f").write_text("x")
        os.utime(workspace / "filled", ns=(before.st_atime_ns, before.st_mtime_ns))
        (workspace / "replaced").rename(workspace / "moved")
        (workspace / "replaced").mkdir()
        (workspace / "gone").rmdir()
        (workspace / "closed/f").write_text("x")
        (workspace / "closed").chmod(0o300)
        (workspace / "text").write_text("longer")
        after, closed = (workspace / "filled").stat(), (workspace / "closed").stat()
    (workspace / "closed").chmod(0o755)
    assert names(workspace) == ["closed", "filled", "mine", "moved", "replaced", "text"]
    assert names(workspace / "filled") == names(workspace / "closed") == ["f"]
    assert (workspace / "filled").stat().st_mtime_ns == after.st_mtime_ns
    assert (workspace / "closed").stat().st_mtime_ns == closed.st_mtime_ns


def test_something_else_is_there(workspace: Path) -> None:
    (workspace / "x").write_text("")
    with (
        pytest.raises(OcisbxError, match="cannot keep names free"),
        hold([Placeholder(f"{workspace}/a"), Placeholder(f"{workspace}/x")]),
    ):
        pass
    (workspace / "link").symlink_to(workspace.parent)
    with pytest.raises(OcisbxError), hold([Placeholder(f"{workspace}/link/x")]):
        pass
    assert names(workspace) == ["link", "x"]
    assert os.listdir(registers()) == []


def test_registers_that_say_nothing(workspace: Path) -> None:
    with hold([Placeholder(f"{workspace}/a")]):
        pass
    for text in ("", "{", "[]", '{"parent": "/nowhere", "made": [["x", "", 1]]}', '{"parent": 1}'):
        with open(f"{registers()}/1-2", "w", encoding="utf-8") as file:
            file.write(text)
        forget_placeholders()
        assert os.listdir(registers()) == []
