"""An unpacked root of the caller's: nothing is ever created in it, unless it is writable."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.errors import ConfigError
from tests.contract.conftest import refused

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

PROGRAMS = ("sh", "cat", "ls", "touch", "id", "true", "pwd")


@pytest.fixture
def root(box: Box) -> Path:
    """A few programs of this machine with their libraries, as a distribution would lay them out."""
    made = box.base / "root"
    for name in ("usr/bin", "etc", "proc", "sys", "dev", "tmp"):
        (made / name).mkdir(parents=True)
    (made / "bin").symlink_to("usr/bin")
    (made / "lib").symlink_to("usr/lib")
    (made / "lib64").symlink_to("usr/lib64")
    (made / "etc" / "marker").write_text("of the root\n")
    for name in PROGRAMS:
        program = Path(shutil.which(name) or name).resolve()
        shutil.copy(program, made / "usr" / "bin" / name)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
        for word in listed.stdout.split():
            if word.startswith("/"):
                target = made / "usr" / word.lstrip("/").removeprefix("usr/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, target)
    return made


def tree(root: Path) -> list[tuple[str, int, int]]:
    found = []
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        found.append((str(path.relative_to(root)), info.st_mode, info.st_size))
    return found


def test_the_root_is_shown_and_untouched(box: Box, root: Path) -> None:
    before = tree(root)
    script = (
        "cat /etc/marker; pwd; echo /*; touch made; touch /x /etc/x /usr/x 2>/dev/null || echo ro"
    )
    text = box.text(script, rootfs=str(root))
    lines = text.split("\n")
    assert lines[:2] == ["of the root", str(box.workspace)]
    assert {"/bin", "/dev", "/etc", "/proc", "/tmp", "/usr"} <= set(lines[2].split())
    assert lines[-2] == "ro"
    assert (box.workspace / "made").exists()
    assert tree(root) == before


def test_volumes_and_tmpfs_leave_the_root_untouched(box: Box, root: Path) -> None:
    before = tree(root)
    (box.base / "volume").mkdir()
    (box.base / "volume" / "file").write_text("volume\n")
    text = box.text(
        "cat /usr/share/deep/file /new/file; touch /var/cache/x && cd /var/cache && echo *",
        rootfs=str(root),
        volumes=[f"{box.base}/volume:/usr/share/deep:ro", f"{box.base}/volume:/new"],
        tmpfs={"/var/cache": "1M"},
    )
    assert text == "volume\nvolume\nx\n"
    assert tree(root) == before


def test_a_writable_root_is_written(box: Box, root: Path) -> None:
    isolation = {"read_only_root": False}
    text = box.text("echo new >/etc/new; cat /etc/new", rootfs=str(root), isolation=isolation)
    assert text == "new\n"
    assert (root / "etc" / "new").read_text() == "new\n"
    assert (root / "etc" / "new").stat().st_uid == os.getuid()


def test_a_writable_root_of_ours_is_this_containers_own(box: Box) -> None:
    isolation = {"read_only_root": False}
    assert box.text("echo x >/var/x; cat /var/x; touch /new", isolation=isolation) == "x\n"
    assert box.text("echo /var/* /new*", isolation=isolation) == "/var/tmp /new*\n"


@refused
@pytest.mark.parametrize("name", ["dev", "proc", "sys", "etc"])
def test_a_symlink_where_the_runtime_mounts_is_refused(box: Box, root: Path, name: str) -> None:
    shutil.rmtree(root / name)
    (root / name).symlink_to("/tmp")
    with pytest.raises(ConfigError, match=f"/{name} is a symlink"):
        box.run(["true"], rootfs=str(root))


@refused
@pytest.mark.parametrize("path", ["/", "/proc", "/nowhere", "/etc/passwd"])
def test_refused_roots(box: Box, path: str) -> None:
    with pytest.raises(ConfigError):
        box.run(["true"], rootfs=path)
