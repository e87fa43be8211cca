"""tools/build-rootfs: what it builds, that it builds it again, and how it refuses."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rootfs.conftest import PROJECT, Build
from tools.rootfs_tree import digest

NAMES = ["busybox", "minimal", "python-git"]
MARKED = ["busybox", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]


@pytest.fixture
def crossable() -> Iterator[Path]:
    """A directory that mmdebstrap's mapped root can cross, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="ocisbx-rootfs-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def _lock(recipes: Path, name: str) -> dict[str, dict[str, object]]:
    suites = tomllib.loads((recipes / name / "lock.toml").read_text())
    return {
        f"{suite} {arch}": table
        for suite, arches in suites.items()
        for arch, table in arches.items()
    }


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _inside(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the root with no more than namespaces, chroot(2) and the host's /dev."""
    script = 'mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(root), *command],
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.timeout(300)
def test_the_tree_is_the_callers_and_holds_nothing_special(
    built: Callable[[str], Path], name: str
) -> None:
    root = built(name)
    for folder, directories, files in os.walk(root):
        for path in [Path(folder), *(Path(folder, one) for one in (*directories, *files))]:
            status = path.lstat()
            kind = stat.S_IFMT(status.st_mode)
            assert kind in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}, path
            assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid()), path
            assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID), path
    for point in ("dev", "proc", "sys"):
        assert not (root / point).is_symlink()
        assert list((root / point).iterdir()) == []
    assert not (root / "etc").is_symlink()
    assert (root / "etc/machine-id").read_bytes() == b""
    assert (root / "etc/hostname").read_text() == "localhost\n"
    assert not (root / "etc/apt").exists()
    for empty in ("var/log", "var/cache"):
        assert not (root / empty).exists() or list((root / empty).iterdir()) == []


COMMANDS = [
    ("busybox", ("sh", "-c", "echo $((6*7)) | awk '{print $1, NF}'"), "42 1\n"),
    ("busybox", ("whoami",), "root\n"),
    ("minimal", ("bash", "-c", "dpkg-query -W -f '${Package}' dpkg"), "dpkg"),
    ("minimal", ("perl", "-e", "print 6*7"), "42"),
    ("python-git", ("python3", "-c", "import ssl, sqlite3; print(sum(range(10)))"), "45\n"),
    ("python-git", ("sh", "-c", "git --version | cut -d. -f1"), "git version 2\n"),
]


@pytest.mark.parametrize(
    ("name", "command", "output"),
    [pytest.param(*row, marks=[] if row[0] == "busybox" else pytest.mark.slow) for row in COMMANDS],
)
@pytest.mark.timeout(300)
def test_programs_run_in_it(
    built: Callable[[str], Path], name: str, command: tuple[str, ...], output: str
) -> None:
    done = _inside(built(name), *command)
    assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_busybox_built_again_elsewhere_is_the_same(
    build: Build, recipes: Path, tmp_path: Path
) -> None:
    again = tmp_path / "a folder" / "bb"
    environment = {"TZ": "Asia/Tokyo", "LANG": "tr_TR.UTF-8", "SOURCE_DATE_EPOCH": "1"}
    done = build("busybox", "--recipes", recipes, "-o", again, env=environment)
    assert done.returncode == 0, done.stderr
    (locked,) = _lock(recipes, "busybox").values()
    assert digest(again) == digest(recipes / "busybox" / "root") == locked["digest"]
    assert _names(again.parent) == ["bb"]
    assert all(line.startswith("build-rootfs: busybox: ") for line in done.stderr.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_minimal_built_again_is_the_same(
    build: Build, built: Callable[[str], Path], tmp_path: Path
) -> None:
    first = built("minimal")
    done = build("minimal", "--recipes", first.parent / "recipes", "-o", tmp_path / "again")
    if "serves other versions" in done.stderr:  # than when the first was kept
        shutil.rmtree(first.parent / "recipes" / "minimal")
        first = built("minimal")
        done = build("minimal", "--recipes", first.parent / "recipes", "-o", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert digest(tmp_path / "again") == digest(first)


def test_a_second_call_redoes_nothing_and_a_damaged_tree_is_rebuilt(
    build: Build, recipes: Path, tmp_path: Path
) -> None:
    target = tmp_path / "bb"
    shutil.copytree(recipes / "busybox" / "root", target, symlinks=True)
    done = build("busybox", "--recipes", recipes, "-o", target, env={"TMPDIR": "/nowhere"})
    assert done.returncode == 0, done.stderr
    assert "is up to date: sha256:" in done.stderr
    (target / "etc/passwd").write_text("root::0:0:::\n")
    os.mkfifo(target / "etc/fifo")
    done = build("busybox", "--recipes", recipes, "-o", target)
    assert done.returncode == 0, done.stderr
    assert digest(target) == digest(recipes / "busybox" / "root")


def test_other_versions_than_locked_are_named(build: Build, recipes: Path, tmp_path: Path) -> None:
    old = tmp_path / "recipes"
    shutil.copytree(recipes / "busybox", old / "busybox", ignore=lambda *_: ["root"])
    lock = old / "busybox" / "lock.toml"
    lock.write_text(
        re.sub('"busybox-static" = ".*"', '"busybox-static" = "1:0.1-1"', lock.read_text())
    )
    before = lock.read_text()
    done = build("busybox", "--recipes", old, "-o", tmp_path / "out" / "bb")
    assert done.returncode == 1
    assert "  busybox-static: lock 1:0.1-1, distribution 1:" in done.stderr
    assert "--update-lock" in done.stderr
    assert _names(tmp_path / "out") == []
    assert lock.read_text() == before


def test_a_changed_recipe_or_another_release_needs_a_new_lock(
    build: Build, recipes: Path, tmp_path: Path
) -> None:
    shutil.copytree(recipes / "busybox", tmp_path / "busybox", ignore=lambda *_: ["root"])
    recipe = tmp_path / "busybox" / "recipe.toml"
    text = recipe.read_text()
    for change, code, words in (
        (('"mnt"', '"mnt", "srv"'), 1, "has changed since its lock"),
        (('suite = "host"', 'suite = "hamm"'), 69, "do not serve hamm"),
        (('variant = "extract"', 'variant = "huge"'), 125, "variant: 'huge'"),
        (('"mnt"', '"../mnt"'), 125, "path '../mnt'"),
        (("mkdirs", "makedirs"), 125, "unknown field 'makedirs'"),
    ):
        recipe.write_text(text.replace(*change))
        done = build("busybox", "--recipes", tmp_path)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    recipe.write_text(text)
    (tmp_path / "busybox" / "lock.toml").unlink()
    done = build("busybox", "--recipes", tmp_path)
    assert (done.returncode, "has nothing for" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("name", ["nosuch", "../busybox", "", "a\nb"])
def test_an_unknown_name_lists_the_recipes(build: Build, name: str) -> None:
    done = build("--", name)
    assert done.returncode == 125
    assert done.stderr.endswith("remedy: take one of: busybox, minimal, python-git\n")


def test_what_is_missing_is_named_with_the_command_to_run(build: Build, tmp_path: Path) -> None:
    for program in ("apt-get", "dpkg"):
        (tmp_path / program).symlink_to(f"/usr/bin/{program}")
    done = build("busybox", env={"PATH": str(tmp_path)})
    assert done.returncode == 69
    packages = "mmdebstrap uidmap" if os.getuid() else "mmdebstrap"
    assert done.stderr.endswith(f"remedy: sudo apt-get install {packages}\n")


@pytest.mark.parametrize("kind", ["directory", "file", "symlink", "system"])
def test_a_place_that_is_not_ours_is_refused(
    build: Build, recipes: Path, tmp_path: Path, kind: str
) -> None:
    target = Path("/") if kind == "system" else tmp_path / "precious"
    if kind == "directory":
        (target / "thesis").mkdir(parents=True)
    elif kind == "file":
        target.write_text("thesis")
    elif kind == "symlink":
        target.symlink_to(recipes / "busybox" / "root")
    done = build("busybox", "--recipes", recipes, "-o", target)
    assert done.returncode == 125
    assert "remedy: name another with -o" in done.stderr
    assert os.path.lexists(target)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing(recipes: Path, crossable: Path, number: int) -> None:
    out, scratch = crossable / "out", crossable / "tmp"
    scratch.mkdir()
    tool = PROJECT / "tools" / "build-rootfs"
    command = [sys.executable, str(tool), "busybox", "--recipes", str(recipes), "-o"]
    with subprocess.Popen(
        [*command, str(out / "bb")],
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "running apt-get update" in line:
                process.send_signal(number)
        assert process.wait() == 128 + number, "".join(said)
    assert _names(out) == _names(scratch) == []


def test_what_a_killed_build_left_is_removed_by_the_next(
    build: Build, recipes: Path, tmp_path: Path
) -> None:
    (tmp_path / ".bb.build-dead" / "root").mkdir(parents=True)
    shutil.copytree(recipes / "busybox" / "root", tmp_path / "bb", symlinks=True)
    assert build("busybox", "--recipes", recipes, "-o", tmp_path / "bb").returncode == 0
    assert _names(tmp_path) == ["bb"]


def test_a_full_disk_is_told_before_the_start(recipes: Path, tmp_path: Path) -> None:
    tool, out = PROJECT / "tools" / "build-rootfs", tmp_path / "bb"
    script = 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"'
    namespaces = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", tmp_path]
    command = [sys.executable, tool, "busybox", "--recipes", recipes, "-o", out]
    done = subprocess.run(
        list(map(str, [*namespaces, *command])), capture_output=True, text=True, check=False
    )
    assert done.returncode == 125
    assert "no space left to build busybox" in done.stderr
    assert f"{tmp_path}/.bb.build-" in done.stderr
