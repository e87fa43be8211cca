"""tools/run on a fresh copy of the tree: set up once, from anywhere, whatever came in between.

These tests fetch the locked packages from the configured index, or from pip's cache.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("pyproject.toml", "README.md", "ocisbx", "tools")
COMMAND = ("--workspace", "none", "--", "/bin/echo", "from inside")

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(300)]


def fresh(folder: Path) -> Path:
    """Returns a copy of the tree as git would clone it: nothing built, no environment."""
    folder.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "bin")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


def start(tree: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(tree / "tools" / "run"), *COMMAND],
        cwd="/",
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(tree: Path, **environment: str) -> tuple[str, str]:
    with start(tree, **environment) as process:
        out, progress = process.communicate()
    assert process.returncode == 0, progress
    return out, progress


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree in a folder with spaces that has been set up, by two calls at once."""
    tree = fresh(tmp_path_factory.mktemp("setup") / "a clone of it")
    with start(tree) as one, start(tree) as other:
        ends = [process.communicate() for process in (one, other)]
    assert [out for out, _ in ends] == ["from inside\n"] * 2
    progress = sorted(progress for _, progress in ends)
    assert sum("making a virtual environment" in lines for lines in progress) == 1
    return tree


def test_a_later_call_prints_the_payloads_output_alone(tree: Path) -> None:
    assert run(tree) == ("from inside\n", "")


def test_touched_files_with_the_same_content_are_no_reason_to_redo_it(tree: Path) -> None:
    for name in ("pyproject.toml", "tools/requirements/run.txt"):
        (tree / name).touch()
    assert run(tree) == ("from inside\n", "")


def test_a_tree_that_lost_what_was_built_in_it_is_set_up_again(tree: Path) -> None:
    shutil.rmtree(tree / "ocisbx/init/bin")
    assert run(tree)[0] == "from inside\n"


def test_a_moved_tree_is_set_up_for_its_new_place(tree: Path) -> None:
    moved = tree.rename(tree.with_name("moved"))
    try:
        out, progress = run(moved)
        assert out == "from inside\n"
        assert "installing ocisbx" in progress
    finally:
        moved.rename(tree)


def test_a_tree_that_is_read_only_is_set_up_in_the_users_cache(tree: Path, tmp_path: Path) -> None:
    clone = fresh(tmp_path / "read-only")
    pip_cache = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_CACHE_DIR": pip_cache}
    clone.chmod(0o555)
    try:
        assert run(clone, **environment)[0] == "from inside\n"
        assert run(clone, **environment) == ("from inside\n", "")
    finally:
        clone.chmod(0o755)
    assert not (clone / ".venv").exists()
    assert not (clone / "ocisbx" / "init" / "bin").exists()


@pytest.mark.parametrize(("how", "delay_s"), [(signal.SIGKILL, 0.5), (signal.SIGTERM, 6.0)])
def test_an_interrupted_set_up_is_done_anew(
    tmp_path: Path, how: signal.Signals, delay_s: float
) -> None:
    clone = fresh(tmp_path / "clone")
    with start(clone) as process:
        time.sleep(delay_s)
        os.killpg(process.pid, how)
        process.communicate()
    out, _ = run(clone)
    assert out == "from inside\n"
    assert run(clone) == ("from inside\n", "")
