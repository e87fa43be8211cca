"""Root file systems built for real by `tools/build-rootfs`, as whoever runs the tests."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
Build = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def build() -> Build:
    def run(
        *arguments: str | Path, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, PROJECT / "tools" / "build-rootfs", *arguments]
        environment = {**os.environ, **(env or {})}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def recipes(tmp_path_factory: pytest.TempPathFactory, build: Build) -> Path:
    """A copy of the recipes; its lock of busybox has what the distribution serves today."""
    copy = tmp_path_factory.mktemp("recipes")
    for recipe in (PROJECT / "rootfs").glob("*/recipe.toml"):
        shutil.copytree(recipe.parent, copy / recipe.parent.name, ignore=lambda *_: ["root"])
    done = build("busybox", "--recipes", copy, "--update-lock")
    assert done.returncode == 0, done.stderr
    return copy


@pytest.fixture(scope="session")
def built(build: Build, recipes: Path) -> Callable[[str], Path]:
    """Give the root of a name; Debian's two are kept between runs, outside the tree.

    The distribution replaces versions at will, so that the kept copy has a lock of its own.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = home / "ocisbx-dev" / "rootfs"

    def root(name: str) -> Path:
        if name == "busybox":
            return recipes / "busybox" / "root"
        kept, fresh = cache / "recipes" / name, PROJECT / "rootfs" / name
        recipe = (fresh / "recipe.toml").read_bytes()
        if not (kept / "lock.toml").exists() or (kept / "recipe.toml").read_bytes() != recipe:
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / "lock.toml", kept / "lock.toml")
            shutil.copyfile(fresh / "recipe.toml", kept / "recipe.toml")
        arguments = (name, "--recipes", cache / "recipes", "-o", cache / name)
        done = build(*arguments)
        if done.returncode == 1:
            done = build(*arguments, "--update-lock")
        assert done.returncode == 0, done.stderr
        return cache / name

    return root
