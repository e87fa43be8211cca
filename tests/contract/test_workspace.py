"""The workspace and volumes: at their own places, whatever their names; and what is refused."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ocisbx
from ocisbx.errors import ConfigError, RuntimeFailed, Unsupported
from tests.contract.conftest import of_each_kind, refused

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

NAMES = (
    "plain",
    "with space",
    " leading and trailing ",
    "ünïcödé-日本語-🦀",
    "new\nline",
    "tab\tand\x01control\x7f",
    "colon:inside",
    "C:",
    "-leading-dash",
    "quo'te\"s`",
    "back\\slash\\040",
    "$HOME%s{}*?[a]",
    "comma,src=x,ro",
    "#hash",
    "...",
    "x" * 255,
)
SCRIPT = 'printf %s "$PWD"; cat given >&2; umask 022; echo made >made; mkdir -p d; echo x >d/x'


@of_each_kind
@pytest.mark.parametrize("name", NAMES, ids=[ascii(name)[:30] for name in NAMES])
def test_names(box: Box, name: str) -> None:
    workspace = box.base / name
    workspace.mkdir()
    (workspace / "given").write_text("given")
    result = box.sh(SCRIPT, workspace=str(workspace))
    assert (result.exit_code, result.stdout.decode()) == (0, str(workspace)), result.stderr
    assert result.stderr == b"given"
    for path in (workspace / "made", workspace / "d", workspace / "d" / "x"):
        assert (path.stat().st_uid, path.stat().st_gid) == (os.getuid(), os.getgid())
    assert (workspace / "made").read_text() == "made\n"


def test_names_of_volumes(box: Box) -> None:
    """As tables: in a text a colon separates."""
    volumes = [box.base / name for name in NAMES]
    for number, volume in enumerate(volumes):
        volume.mkdir()
        (volume / "given").write_text(f"<{number}>")
    result = box.run(
        ["cat", *[f"{volume}/given" for volume in volumes], "/elsewhere/0/given"],
        volumes=[
            *[{"source": str(one), "target": str(one), "read_only": True} for one in volumes],
            {"source": str(volumes[0]), "target": "/elsewhere/0"},
        ],
    )
    said = "".join(f"<{number}>" for number in range(len(NAMES))) + "<0>"
    assert (result.exit_code, result.stdout.decode()) == (0, said), result.stderr


def deep(base: Path, length: int) -> str:
    """A directory below `base` whose path has exactly this many bytes, built step by step."""
    path = str(base)
    parent = os.open(base, os.O_RDONLY)
    while (left := length - len(path) - 1) > 0:
        size = left if left <= 200 else min(200, left - 2)
        os.mkdir("d" * size, dir_fd=parent)
        child = os.open("d" * size, os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
        path += "/" + "d" * size
    os.close(parent)
    assert len(path) == length
    return path


@pytest.mark.parametrize("length", [1000, 2000, 3000, 3900, 4080, 4095])
def test_long_paths(box: Box, length: int) -> None:
    """Some put the root's own path (short of 100 bytes here) before each target."""
    workspace = deep(box.base, length)
    if box.lacks("paths may have 4095 bytes") and length > 3900:
        with pytest.raises(Unsupported, match="cannot mount anything at a path") as raised:
            box.run(["true"], workspace=workspace)
        assert "crun" in raised.value.remedy
        return
    result = box.run(["sh", "-c", "pwd; echo made >made"], workspace=workspace)
    assert (result.exit_code, result.stdout.decode()) == (0, workspace + "\n"), result.stderr


@refused
def test_a_path_that_is_no_text(box: Box) -> None:
    workspace = os.fsdecode(os.fsencode(box.base) + b"/\xff\xfe")
    Path(workspace).mkdir()
    with pytest.raises(ConfigError):
        box.run(["true"], workspace=workspace)


@pytest.mark.parametrize("place", ["", "/var/tmp"], ids=["below a tmpfs", "elsewhere"])
def test_through_symlinks(box: Box, place: str) -> None:
    """At the place that the caller named, and at the real one."""
    base = Path(tempfile.mkdtemp(dir=place or box.base))
    try:
        real = base / "real" / "project"
        real.mkdir(parents=True)
        (base / "one").symlink_to("real")
        (base / "two").symlink_to(base / "one")
        written = base / "two" / "project"
        script = 'pwd -L; echo made >made; cat "$1/made" "$2/made" "$3/one/project/made"'
        command = ["sh", "-c", script, "sh", str(written), str(real), str(base)]
        result = box.run(command, workspace=str(written))
        assert result.stdout.decode() == f"{written}\nmade\nmade\nmade\n", result.stderr
        assert [path.name for path in real.iterdir()] == ["made"]
    finally:
        shutil.rmtree(base)


def test_the_current_directory_is_the_default(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(box.workspace)
    result = ocisbx.run(["sh", "-c", "pwd; touch made"], runtime={"names": [box.runtime.path]})
    assert result.stdout.decode() == f"{box.workspace}\n"
    assert (box.workspace / "made").exists()


def test_none(box: Box) -> None:
    assert box.text("pwd; test ! -e " + str(box.workspace), workspace="none") == "/\n"


def test_read_only(box: Box) -> None:
    (box.workspace / "given").write_text("given")
    refused = "2>/dev/null || echo"
    script = f"cat given; touch made {refused} refused; touch given {refused} too"
    text = box.text(script, workspace=f"{box.workspace}:ro")
    assert text == "givenrefused\ntoo\n"
    assert os.listdir(box.workspace) == ["given"]


def test_volumes(box: Box) -> None:
    for name in ("a", "b", "c"):
        (box.base / name).mkdir()
        (box.base / name / "file").write_text(name)
    file = box.base / "single"
    file.write_text("single")
    volumes = [f"{box.base}/{rest}" for rest in ("a:/x/y/a", "b:ro", "c:/opt/c:ro", "single:/f:ro")]
    script = (
        f"cat /x/y/a/file {box.base}/b/file /opt/c/file /f; touch /x/y/a/made;"
        f"for d in {box.base}/b /opt/c; do touch $d/made 2>/dev/null && echo written; done;"
        "echo x 2>/dev/null >/f && echo written; :"
    )
    assert box.text(script, volumes=volumes) == "abcsingle"
    assert (box.base / "a" / "made").exists()


def test_volumes_inside_the_workspace_and_each_other(box: Box) -> None:
    for name in ("ws/sub", "outer/inner", "third"):
        (box.base / name).mkdir(parents=True)
    (box.base / "third" / "file").write_text("third")
    sub = f"third:{box.workspace}/sub:ro"
    volumes = [f"{box.base}/{rest}" for rest in ("outer:/v", "third:/v/inner:ro", sub)]
    script = "cat /v/inner/file sub/file; touch /v/made made; touch sub/made 2>/dev/null || echo ro"
    assert box.text(script, volumes=volumes) == "thirdthirdro\n"
    assert sorted(os.listdir(box.workspace)) == ["made", "sub"]


def test_a_mount_point_inside_a_read_only_volume(box: Box) -> None:
    """Nothing is created in the volume: its entries are shown one by one instead."""
    (box.base / "outer" / "kept").mkdir(parents=True)
    (box.base / "outer" / "link").symlink_to("kept")
    (box.base / "inner").mkdir()
    (box.base / "inner" / "file").write_text("inner")
    volumes = [f"{box.base}/outer:/v:ro", f"{box.base}/inner:/v/new/place"]
    script = "cd /v; echo *; cat /v/new/place/file; touch /v/kept/x /v/x 2>/dev/null || echo ro"
    assert box.text(script, volumes=volumes) == "kept link new\ninnerro\n"
    assert sorted(os.listdir(box.base / "outer")) == ["kept", "link"]


def test_tmpfs(box: Box) -> None:
    script = "df -B1 --output=size,target /scratch /data | tail -n 2; cd /scratch; echo x >x; cat x"
    lines = box.text(script, tmpfs={"/scratch": "8M", "/data": None}).split("\n")
    assert lines[0].split() == [str(8 << 20), "/scratch"]
    assert lines[1].split()[1] == "/data"
    assert lines[2] == "x"


def test_workdir(box: Box) -> None:
    (box.workspace / "sub").mkdir()
    assert box.text("pwd", workdir=f"{box.workspace}/sub") == f"{box.workspace}/sub\n"
    assert box.text("pwd", workdir="/usr/lib") == "/usr/lib\n"


WORKDIRS = "a missing working directory is made"


def views() -> list[str]:
    views = Path(os.environ["XDG_CACHE_HOME"], "ocisbx", "views")
    return sorted(str(path) for path in views.rglob("*"))


def test_a_working_directory_that_nothing_provides_is_made(box: Box) -> None:
    """As docker does; and not in the root that the next container gets, too."""
    assert box.text("pwd", workdir="/nowhere/at/all") == "/nowhere/at/all\n"
    assert box.text("ls -d /nowhere || echo none") == "none\n"


def test_a_shared_root_is_never_written(box: Box) -> None:
    (box.base / "v").mkdir()
    fields = {"volumes": [f"{box.base}/v:/new/place"], "tmpfs": {"/scratch": "1M"}}
    if box.lacks(WORKDIRS):
        (box.base / "v" / "below").mkdir()
    box.text("true", workdir="/new/place/below", **fields)
    before = views()
    box.text("mkdir /x /etc/x /run/x /var/x || touch /y || :", **fields)
    box.text("true", workdir="/new/place/below", **fields)
    if box.lacks(WORKDIRS):
        with pytest.raises(RuntimeFailed, match=r"working directory|chdir"):
            box.run(["true"], workdir="/tmp/new")
    else:
        box.text("true", workdir="/tmp/new")
    box.text("true")
    assert views() == before


@pytest.mark.parametrize("workdir", ["/usr/nowhere", "/etc/passwd", "/proc/self/fd/3"])
def test_a_working_directory_that_is_none(box: Box, workdir: str) -> None:
    """A cwd below /proc/self/fd once led out of a container (CVE-2024-21626)."""
    with pytest.raises(ocisbx.OcisbxError) as raised:
        box.run(["pwd"], workdir=workdir)
    assert raised.value.exit_code == 125


REFUSED = ["/", "/proc", "/sys", "/dev", "/dev/shm", "/etc", "/usr", "/home", "/var", "/tmp"]


@refused
@pytest.mark.parametrize("path", REFUSED)
def test_refused_workspaces(box: Box, path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        box.run(["true"], workspace=path)
    assert path in raised.value.what
    assert raised.value.why
    assert "--workspace DIR" in raised.value.remedy
    assert "--workspace none" in raised.value.remedy


@refused
@pytest.mark.parametrize("via", ["", "link", "dots"])
def test_home_and_our_own_state_are_refused(box: Box, via: str) -> None:
    state = box.base / "state" / "ocisbx"
    state.mkdir()
    box.run(["true"])
    for path in (Path.home(), Path.home().parent, state, box.run_directory, box.bundles):
        written = str(path)
        if via == "link":
            link = box.base / "link"
            link.unlink(missing_ok=True)
            link.symlink_to(path)
            written = str(link)
        if via == "dots":
            written = f"{path}/../{path.name}"
        with pytest.raises(ConfigError) as raised:
            box.run(["true"], workspace=written)
        assert raised.value.why
        assert "--workspace none" in raised.value.remedy


@refused
@pytest.mark.parametrize(
    ("name", "words"), [("missing", "does not exist"), ("file", "is not a directory")]
)
def test_no_directory(box: Box, name: str, words: str) -> None:
    (box.base / "file").touch()
    with pytest.raises(ConfigError, match=words):
        box.run(["true"], workspace=str(box.base / name))


@refused
def test_relative(box: Box) -> None:
    with pytest.raises(ConfigError):
        box.run(["true"], workspace="relative/path")


@refused
@pytest.mark.parametrize(
    "volume",
    [
        "/:/host:ro", "/proc:/p", "/proc/sys:/p:ro", "/sys:/s:ro", "/dev:/d", "/dev/null:/n",
        "{base}:/proc", "{base}:/proc/sys", "{base}:/dev", "{base}:/dev/shm", "{base}:/sys",
        "{base}:/", "{base}:/etc", "{base}:/.ocisbx", "{base}:/.ocisbx/init", "{base}:/x/../proc",
        "{base}/missing", "{run}/ocisbx:/x", "{run}:/x", "{base}/socket:/s",
    ],
)  # fmt: skip
def test_refused_volumes(box: Box, volume: str) -> None:
    import socket  # noqa: PLC0415 -- for one row

    with socket.socket(socket.AF_UNIX) as one:
        descriptor = os.open(box.base, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        written = volume.format(base=box.base / "ws", run=box.run_directory)
        written = written.replace(f"{box.workspace}/socket", f"{box.base}/socket")
        with pytest.raises(ConfigError) as raised:
            box.run(["true"], volumes=[written])
    assert raised.value.exit_code == 125
